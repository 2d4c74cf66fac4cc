"""Endpoints for servers of tests: sockets in a private folder, which goes with the test process."""

from __future__ import annotations

import functools
import itertools
import tempfile

_NUMBERS = itertools.count(1)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    # Not below a test's own folder: the path of a socket is limited to 107 bytes.
    return tempfile.TemporaryDirectory(prefix="hw-", dir="/tmp")


def new_endpoint() -> str:
    """An ipc endpoint that nobody used before."""
    return f"ipc://{_folder().name}/{next(_NUMBERS)}"
