"""`heron submit`: from a program to a running topology."""
