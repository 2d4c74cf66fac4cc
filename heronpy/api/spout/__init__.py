"""The base classes of spouts."""
