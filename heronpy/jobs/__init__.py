"""Jobs: what a topology should be, written by several writers in layers, and kept true."""
