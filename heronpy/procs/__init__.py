"""Processes: starting, watching and restarting them.

`supervisor`, `restart_policy` and `exit_reason` decide (pure); `forkserver`, `host`, `usage`, `oom` and `child_log`
act; `jobs` guards the asyncio tasks of any process.
"""
