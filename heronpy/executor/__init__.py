"""The executor of a container: starts, watches and restarts processes, writes their logs and serves their metrics.

`desired` and the supervisor of `heronpy.procs` decide (pure); `shell` and its parts act.
"""
