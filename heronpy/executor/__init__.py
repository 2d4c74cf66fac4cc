"""The executor of a container: starts, watches and restarts processes, writes their logs and serves their metrics.

`desired` and the supervisor of `heronpy.procs` make the decisions, and are pure. `shell` and the modules that it uses
carry them out.
"""
