"""`heron top` on a terminal: a topology by component and by task, with keys."""
