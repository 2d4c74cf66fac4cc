"""The cost of jobs, and the number of wrong decisions that their scaler makes."""
