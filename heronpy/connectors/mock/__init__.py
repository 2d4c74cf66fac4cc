"""Sources for experiments and tests."""
