"""The files that an executor passes to the tasks of its container: the topology and the packing plan.

The files are next to the topology's sockets. Tasks therefore need no state manager. The state manager gets only a few
requests per container, regardless of the number of tasks, and a task can restart while the state manager is down. Files
are replaced atomically.
"""

from __future__ import annotations

from pathlib import Path

from heronpy.common.folders import read_own
from heronpy.common.ids import executor_id

#: Size limit of a file; no state manager stores a larger node.
_MAX_BYTES = 64 << 20


def plan_file(sockets_dir: str, container: int) -> Path:
    return Path(sockets_dir) / f"{executor_id(container)}.plan"


def topology_file(sockets_dir: str, container: int) -> Path:
    return Path(sockets_dir) / f"{executor_id(container)}.topology"


def handed(file: Path) -> bytes:
    """The content of one of these files; raises OSError if the file is missing."""
    return read_own(file, _MAX_BYTES)
