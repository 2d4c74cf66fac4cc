"""A test suite as teams wrote it for Apache heronpy: its builder wraps each component of a topology."""
