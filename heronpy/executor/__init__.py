"""The executor: one per container; starts, watches and restarts its processes, keeps their logs and
serves their metrics.

`desired` and the supervisor of `heronpy.procs` decide (pure); `shell` and its parts act.
"""
