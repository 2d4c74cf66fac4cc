"""Metrics: their names, their exposition to Prometheus and the time-bucketed cache."""
