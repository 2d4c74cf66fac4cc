"""The modules in which Apache heronpy has the spouts, bolts and streamlets of the operators; names only."""
