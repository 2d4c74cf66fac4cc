"""Starts a loaded or stored topology, or leaves nothing behind. Prints nothing."""
