"""`heron load-test units`: what work units cost, how late their rows are, and whether these are exact."""
