"""Sources for trials and tests."""
