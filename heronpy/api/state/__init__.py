"""State that components keep across failures."""
