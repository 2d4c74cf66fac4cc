"""Makes endpoints for servers of tests: sockets in a private folder that is removed with the test process."""

from __future__ import annotations

import functools
import itertools
import tempfile
from pathlib import Path

from heronpy.common.ids import short_hash

_NUMBERS = itertools.count(1)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    # Do not use the folder of the test, because the path of a socket is limited to 107 bytes.
    return tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp")


def new_endpoint(topology_id: str = "") -> str:
    """Return a new ipc endpoint, in the folder of a topology's sockets if it is given."""
    folder = Path(_folder().name, short_hash(topology_id) if topology_id else "")
    folder.mkdir(mode=0o700, exist_ok=True)
    return f"ipc://{folder}/{next(_NUMBERS)}"
