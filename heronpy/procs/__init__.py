"""Processes: starting, watching and restarting them.

`supervisor` and `restart_policy` and `exit_reason` decide (pure); `forkserver`, `host`, `usage`, `oom`
and `rotating_log` act.
"""
