"""The cost of jobs, and the number of wrong decisions of their scaler."""
