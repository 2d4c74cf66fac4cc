"""Processes: starting, watching and restarting them.

`supervisor`, `restart_policy` and `exit_reason` make the decisions, and are pure. `forkserver`, `host`, `usage` and
`child_log` carry them out. `jobs` supervises the asyncio tasks of any process.
"""
