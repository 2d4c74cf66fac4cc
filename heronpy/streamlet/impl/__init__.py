"""The operators' spouts, bolts and streamlets under the module names of Apache heronpy. The modules only re-export
names."""
