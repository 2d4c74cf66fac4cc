"""`heron load-test units`: the cost of work units, the delay of their rows, and whether the rows are exact."""
