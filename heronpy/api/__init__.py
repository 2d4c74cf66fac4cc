"""The names that topology writers import. Names and signatures are those of Apache heronpy 0.20.5."""
