"""Sends a container's requests to its scheduler's control endpoint, at one of the addresses in the join token.

When a container ends, it sends the last part of each log to the endpoint, and returns an exit code to its engine.

Invariants: each call has a deadline; no text contains the join token or the session credential; if an endpoint does not
answer, the other addresses are tried.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import Message

from heronpy.common import exit_codes
from heronpy.common.backoff import Backoff
from heronpy.common.errors import (
    DeadlineError,
    FencedError,
    FencedRpcError,
    HeronError,
    InvalidRpcError,
    RetryableError,
    RpcError,
)
from heronpy.executor.container_state import AnswerLate, Cause, End, Ending, Renewed, Send, Word
from heronpy.net.join_token import JoinToken
from heronpy.net.rpc_loop import ControlClient
from heronpy.net.zsock import RARE_HEARTBEAT_MS
from heronpy.proto import endpoint_pb2
from heronpy.storage.log_archive import LogArchive, Run, newest_first
from heronpy.storage.objects.port import ObjectsError

log = logging.getLogger("heronpy.executor")

CALL_S = 5.0
#: Number of consecutive unanswered calls after which the next address is tried.
MISSED_MAX = 2
#: Attempts to read one piece of a package, with pauses that grow to a few seconds.
PIECE_TRIES = 8
_WORDS = {
    endpoint_pb2.VERDICT_GRANTED: Word.GRANTED,
    endpoint_pb2.VERDICT_ACTIVATED: Word.ACTIVATED,
    endpoint_pb2.VERDICT_FENCED: Word.FENCED,
}
LOG_END_MAX_BYTES: Final = 1 << 20


class NoEndpointError(DeadlineError):
    """No endpoint admitted this container in time."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The endpoint's answer to the hello, and the address at which it answered."""

    welcome: endpoint_pb2.Welcome
    endpoint: str


class SchedulerLink:
    """The connection of one submission to the endpoint; requires a running loop."""

    def __init__(
        self,
        token: JoinToken,
        container: int,
        submission: int,
        on_back: Callable[[], None] | None = None,
        secret: bytes = b"",
    ) -> None:
        """`on_back` is called when the endpoint answers again, perhaps for a new scheduler that has no record of this
        container.

        `secret` is given if the submission has already been admitted.
        """
        self._on_back = on_back
        self._token = token
        self._credential = endpoint_pb2.SessionCredential(container=container, submission=submission, secret=secret)
        self._at = 0
        self._missed = 0
        self._client: ControlClient | None = None
        self._closed = False

    @property
    def address(self) -> str:
        return self._token.addresses[self._at]

    async def admit(self, hello_at: Callable[[str], endpoint_pb2.Hello], within_s: float) -> Admitted:
        """Send the hello to each address in turn until one answers; `hello_at(address)` creates the message.

        Raises NoEndpointError after `within_s`, and FencedRpcError or InvalidRpcError for a permanent refusal.
        """
        deadline = time.monotonic() + within_s
        pauses = Backoff(0.2, 5.0)
        last: HeronError | None = None
        while True:
            for _ in self._token.addresses:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise NoEndpointError(
                        f"the scheduler of {self._token.topology_id} did not admit container"
                        f" {self._credential.container} within {within_s:g} s; tried from {socket.gethostname()}:"
                        f" {', '.join(self._token.addresses)} ({last})"
                    )
                try:
                    welcome = await self._connected().call(hello_at(self.address), min(CALL_S, left_s))
                    if not isinstance(welcome, endpoint_pb2.Welcome):
                        raise DeadlineError(f"{self.address} did not answer the hello")
                except (FencedRpcError, InvalidRpcError):
                    raise
                except HeronError as error:
                    last = error
                    self._turn()
                    continue
                self._credential.secret = welcome.secret
                return Admitted(welcome, self.address)
            await asyncio.sleep(min(pauses.next_s(random.random()), max(0.0, deadline - time.monotonic())))

    async def renew(self, send: Send, late_s: float) -> Renewed | AnswerLate:
        """Send a lease request. The answer is late if it takes `late_s` longer than the waiting time in the request."""
        request = endpoint_pb2.Renew(
            credential=self._credential, number=send.number, epoch=send.epoch, stopped=send.stopped, wait_s=send.wait_s
        )
        try:
            answer = await self._call(request, send.wait_s + late_s)
        except HeronError as error:
            # Only a verdict ends a container, because a scheduler that is ending, or an endpoint that has just started,
            # also refuses requests.
            log.warning("the scheduler does not answer: %s", error)
            return AnswerLate(send.number)
        if not isinstance(answer, endpoint_pb2.Renewed) or answer.number != send.number:
            return AnswerLate(send.number)
        after = Cause(answer.after.reason, answer.after.text) if answer.HasField("after") else None
        return Renewed(answer.number, _WORDS.get(answer.verdict, Word.NONE), answer.epoch, answer.why, after)

    async def leave(self, why: str) -> bool:
        """Report that this container will be stopped; returns False if no address answers."""
        return await self._say(endpoint_pb2.Leave(credential=self._credential, why=why))

    async def read_package(self, package: str, offset: int) -> bytes:
        """The piece of the package's archive that begins at `offset`; empty at the end of the archive."""
        pauses = Backoff(0.2, 5.0)
        for left in reversed(range(PIECE_TRIES)):
            request = endpoint_pb2.ReadPackage(credential=self._credential, package=package, offset=offset)
            try:
                piece = await self._call(request, CALL_S)
                return bytes(piece.data) if isinstance(piece, endpoint_pb2.PackagePiece) else b""
            except (DeadlineError, RetryableError):
                if not left:
                    raise
            await asyncio.sleep(pauses.next_s(random.random()))
        raise AssertionError("unreachable")

    async def log_end(self, process: str, data: bytes, cut: bool) -> bool:
        return await self._say(endpoint_pb2.LogEnd(credential=self._credential, process=process, data=data, cut=cut))

    async def spans(self, spans: Iterable[endpoint_pb2.StartSpan]) -> bool:
        """Report the duration of each step of the container's start."""
        return await self._say(endpoint_pb2.StartSpans(credential=self._credential, spans=spans))

    async def _say(self, body: Message) -> bool:
        try:
            await self._call(body, CALL_S)
        except HeronError as error:
            log.warning("the scheduler did not accept %s: %s", type(body).__name__, error)
            return False
        return True

    async def _call(self, body: Message, timeout_s: float) -> Any:
        client = self._connected()
        try:
            answer = await client.call(body, timeout_s)
        except DeadlineError:
            self._missed += 1
            if self._missed >= MISSED_MAX and client is self._client:
                self._turn()
            raise
        self._missed = 0
        return answer

    def _connected(self) -> ControlClient:
        if self._closed:
            raise RpcError("this container has closed its connection to the scheduler")
        if self._client is None:
            self._client = ControlClient(
                self.address, keys=self._token.keys(), on_reconnect=self._on_back, heartbeat_ms=RARE_HEARTBEAT_MS
            )
        return self._client

    def _turn(self) -> None:
        """Switch to the next address; calls that are waiting for the old address get no answer."""
        if len(self._token.addresses) > 1:
            self._disconnect()
            self._at = (self._at + 1) % len(self._token.addresses)
        self._missed = 0

    def close(self) -> None:
        """Close the link; calls that are still waiting raise LostReplyError. Idempotent."""
        self._closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def archive_logs(archive: LogArchive, run: Run, folder: Path, archived: set[str]) -> None:
    """Put all logs of a container into the archive, rotated logs last, and add the names of their processes to
    `archived`.

    The caller may abandon the upload. If the store does not answer, the endpoint gets the remaining logs.
    """
    try:
        for name in newest_first(path.name for path in folder.glob("*.log*")):
            archive.put(run, folder / name)
            if name.endswith(".log"):
                archived.add(name.removesuffix(".log"))
    except (ObjectsError, OSError) as error:
        log.warning("some logs are missing from the archive %s: %s", archive.name, error)


async def send_logs(
    link: SchedulerLink, folder: Path, first: Sequence[str], kept_bytes: int, archived: Container[str] = ()
) -> None:
    """Send the last part of each log, starting with the processes in `first`, until the endpoint accepts no more.

    From archived logs, only the last line of the log of `first[0]` is sent, which states why the container ended.
    """
    for path in sorted(folder.glob("*.log"), key=lambda path: (path.stem not in first, path)):
        if path.stem in archived and path.stem != first[0]:
            continue
        try:
            data, is_cut = _end_of(path, kept_bytes)
        except OSError as error:
            log.warning("the last part of %s was not sent: %s", path.name, error.strerror)
            continue
        if path.stem in archived:
            data, is_cut = b"\n" + data.rstrip(b"\n").rpartition(b"\n")[2], True
        if data and not await link.log_end(path.stem, data, is_cut):
            return


def _end_of(path: Path, count: int) -> tuple[bytes, bool]:
    """The last `count` bytes of a file, and whether the file is longer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, count, max(0, size - count)), size > count
    finally:
        os.close(descriptor)


def code_of(end: End) -> int:
    """The container's exit code, or the negative number of a signal.

    If the executor ended without being asked, the result is the executor's own exit code or signal.
    """
    match end.ending:
        case Ending.EXECUTOR:
            return os.waitstatus_to_exitcode(end.status)
        case Ending.ASKED:
            return exit_codes.TERMINATED
        case Ending.FENCED:
            return exit_codes.FENCED
    return exit_codes.FAILURE


def code_of_error(error: Exception) -> int:
    """The exit code of a container that could not start."""
    if isinstance(error, FencedError):
        return exit_codes.FENCED
    if isinstance(error, RetryableError | DeadlineError):
        return exit_codes.UNAVAILABLE
    return exit_codes.STARTUP_FAILURE
