"""The spouts, bolts and groupings behind the operators of `Streamlet`."""
