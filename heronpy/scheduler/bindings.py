"""Binds each submission of a container to the process that first sent a hello for the submission.

Any process with a join token may send a hello. A submission's first hello therefore binds the submission to the
sender's random nonce, and another process that claims to be the same submission is refused. Bindings outlive the
scheduler, in a private file next to the keys of the endpoint. A hello is answered only after the file has been written.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from heronpy.common.errors import ConfigError, RetryableRpcError
from heronpy.common.folders import replace_file
from heronpy.net.private import read_private

log = logging.getLogger("heronpy.scheduler")

NONCE_BYTES: Final = 32
_FILE: Final = "bound.json"
_FILE_MAX_BYTES: Final = 4 << 20

#: Container and submission.
Who = tuple[int, int]


class Bindings:
    """The bindings of one topology; `may_exist` returns whether a submission may still exist. Not thread-safe."""

    def __init__(self, folder: Path, may_exist: Callable[[Who], bool]) -> None:
        self._file = folder / _FILE
        self._may_exist = may_exist
        self._bound: dict[Who, str] = {}
        self._written: dict[Who, str] = {}
        self._writing = asyncio.Lock()

    def load(self) -> None:
        """Load the bindings of earlier schedulers; raises ConfigError if the file is damaged or writable by others."""
        if not self._file.exists():
            return
        try:
            found = json.loads(read_private(self._file, _FILE_MAX_BYTES))
            self._bound = {(int(one[0]), int(one[1])): str(one[2]) for one in found}
        except (ValueError, TypeError, IndexError, KeyError):
            raise ConfigError(
                f"{self._file}, a record of container processes, is damaged; kill the topology and submit it again"
            ) from None
        self._written = dict(self._bound)

    def is_other(self, who: Who, nonce: bytes) -> bool:
        """Whether the submission is bound to another process."""
        bound = self._bound.get(who)
        return bound is not None and not hmac.compare_digest(bound, _digest(nonce))

    async def bind(self, who: Who, nonce: bytes) -> None:
        """Permanently bind a submission to a nonce; raises RetryableRpcError if the file cannot be written."""
        self._bound.setdefault(who, _digest(nonce))
        async with self._writing:
            if self._written.get(who) == self._bound[who]:
                return
            bound = {one: digest for one, digest in self._bound.items() if one == who or self._may_exist(one)}
            data = json.dumps([[*one, digest] for one, digest in bound.items()]).encode()
            try:
                await asyncio.to_thread(replace_file, self._file, data)
            except (OSError, ConfigError) as error:
                log.warning("cannot record the process of container %d: %s", who[0], error)
                raise RetryableRpcError("the scheduler cannot record this process; try again") from None
            self._written = bound
            self._bound = {one: digest for one, digest in self._bound.items() if one in bound or self._may_exist(one)}


def _digest(nonce: bytes) -> str:
    return hashlib.sha256(nonce).hexdigest()
