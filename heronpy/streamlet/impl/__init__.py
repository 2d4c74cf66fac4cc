"""The modules of Apache heronpy with the spouts, bolts and streamlets of the operators. They only re-export names."""
