"""From a program to a running topology."""
