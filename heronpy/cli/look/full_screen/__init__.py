"""`heron top` on a terminal: shows a topology by component and by task, and reads keys."""
