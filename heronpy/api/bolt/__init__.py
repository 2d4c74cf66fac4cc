"""The base classes of bolts."""
