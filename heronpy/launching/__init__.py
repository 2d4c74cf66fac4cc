"""Starts a loaded or stored topology. A failed start leaves nothing behind. The package prints nothing."""
