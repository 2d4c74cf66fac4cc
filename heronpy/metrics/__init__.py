"""Metrics: their names, their exposition to Prometheus, and a time-bucketed cache."""
