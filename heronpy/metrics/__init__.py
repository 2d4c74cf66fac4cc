"""Metrics: names, exposition to Prometheus, and the time-bucketed cache."""
