"""Collects evidence of what a container's processes are doing: their stacks, a profile, and their objects by type.

It answers `DumpStacks`, `Profile` and `Heap` requests to the container's file service, for each process of the
container, including the executor. py-spy samples a process if it is installed and may attach; otherwise the process
samples itself (see `heronpy.procs.sampler`). At most one request per process and `AT_ONCE_MAX` requests per container
run at a time. Duration, number of stacks and size of the answer have limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from heronpy.common.errors import DeadlineError, InvalidRpcError, RetryableRpcError, RpcError
from heronpy.common.folders import write_private_text
from heronpy.executor.folding import folded, printed_stacks, profile_of
from heronpy.net.answers import packed
from heronpy.procs.heap import LIMIT_MAX_S, LIMIT_MIN_S, TOP_MAX
from heronpy.procs.sampler import RATE_MAX, paths_of
from heronpy.proto import control_pb2
from heronpy.views.evidence import Heap, HeapType, Row

AT_ONCE_MAX = 4
DURATION_MIN_S, DURATION_MAX_S = 0.1, 300.0
#: Time that a sampler needs to start and to write.
SLACK_S = 20.0
LOOK_S = 0.05
#: Maximum bytes of py-spy's output that are read.
RAW_MAX_BYTES = 64 << 20
REASON_MAX = 300
PY_SPY, ITSELF = "py-spy", "the process itself"


class _NoSpyError(Exception):
    """py-spy failed; the text contains the reason."""


class Evidence:
    """Collects evidence of what a container's processes are doing.

    `pid_of` returns the pid of a running process, else 0, and `send` sends it a signal. `stacks` calls the given
    function, which makes the process print its stacks, and returns the process's output. `own` is the name of the
    executor itself.
    """

    def __init__(
        self,
        own: str,
        folder: str,
        pid_of: Callable[[str], int],
        send: Callable[[int, int], None],
        stacks: Callable[[str, Callable[[], None]], Awaitable[str | None]],
    ) -> None:
        self._own = own
        self._folder = folder
        self._pid_of_child = pid_of
        self._send_to_child = send
        self._stacks = stacks
        self._busy: set[str] = set()
        #: The running processes of py-spy.
        self.spies: set[subprocess.Popen[str]] = set()

    # ---- requests ---------------------------------------------------------------------------
    async def dump_stacks(self, request: control_pb2.DumpStacks) -> control_pb2.DumpStacksReply:
        """The stacks of all threads of a process, also written to its log. Raises RpcError if it prints none."""
        with self._turn(request.name) as pid:
            if request.name == self._own:
                text = _own_stacks()
            else:
                text = await self._stacks(request.name, lambda: self._send(pid, signal.SIGUSR1)) or ""
            shown = printed_stacks(text)
            if not shown:
                self._check(request.name, pid, "the stacks were read")
                raise RpcError(f"{request.name} printed no stacks")
            return control_pb2.DumpStacksReply(text=shown)

    async def profile(self, request: control_pb2.Profile) -> control_pb2.Answer:
        """Sample a process; returns the seconds per stack. Raises RpcError if the process ends or cannot be sampled."""
        if not DURATION_MIN_S <= request.duration_s <= DURATION_MAX_S:
            raise InvalidRpcError(
                f"the duration is {request.duration_s:g} s; it must be from {DURATION_MIN_S:g} to {DURATION_MAX_S:g} s"
            )
        if not 1 <= request.rate <= RATE_MAX:
            raise InvalidRpcError(f"the rate is {request.rate}; it must be from 1 to {RATE_MAX} samples per second")
        program = py_spy()
        if request.native and program is None:
            raise RpcError(
                "showing frames of C extensions needs py-spy, which is not installed; run 'pip install py-spy'"
            )
        with self._turn(request.name) as pid:
            rows, by, note = None, PY_SPY, ""
            if program is not None:
                try:
                    rows = await asyncio.to_thread(self._spy, program, pid, request)
                except _NoSpyError as error:
                    self._check(request.name, pid, "being sampled")
                    if request.native:
                        raise RpcError(str(error)) from None
                    note = str(error)
                self._check(request.name, pid, "being sampled")
            if rows is None:
                rows, by = await self._sample(pid, request), ITSELF
            return packed(profile_of(rows, by, note))

    async def heap(self, request: control_pb2.Heap) -> control_pb2.Answer:
        """Count a process's objects by type, which pauses it for up to about `limit_s`. Raises RpcError if it ends."""
        if not LIMIT_MIN_S <= request.limit_s <= LIMIT_MAX_S or not 1 <= request.top <= TOP_MAX:
            raise InvalidRpcError(
                f"a count of objects may take {LIMIT_MIN_S:g} to {LIMIT_MAX_S:g} s and list 1 to {TOP_MAX} types"
            )
        with self._turn(request.name) as pid:
            wanted = {"heap": {"top": request.top, "limit_s": request.limit_s}}
            found = await self._ask(request.name, pid, wanted, request.limit_s, "the objects were counted")
            if "error" in found:
                raise RpcError(f"{request.name} {found['error']}")
            types = [HeapType(name=name, count=count, bytes=size) for name, count, size in found["types"]]
            heap = Heap(
                types=types, kinds=found["kinds"], objects=found["objects"], bytes=found["bytes"],
                share=found["share"], paused_s=found["seconds"], memory_bytes=_rss(pid),
            )  # fmt: skip
            return packed(heap)

    @contextlib.contextmanager
    def _turn(self, name: str) -> Iterator[int]:
        """Refuse other requests for evidence of a process while the context is open; yields the pid."""
        pid = self._pid(name)
        if not pid:
            raise InvalidRpcError(f"{name} is not running in this container")
        if name in self._busy:
            raise RetryableRpcError(f"evidence of {name} is already being collected; try again later")
        if len(self._busy) >= AT_ONCE_MAX:
            raise RetryableRpcError(f"evidence of {AT_ONCE_MAX} processes is already being collected; try again later")
        self._busy.add(name)
        try:
            yield pid
        finally:
            self._busy.discard(name)

    def _pid(self, name: str) -> int:
        return os.getpid() if name == self._own else self._pid_of_child(name)

    def _send(self, pid: int, signum: int) -> None:
        if pid == os.getpid():
            os.kill(pid, signum)
        else:
            self._send_to_child(pid, signum)

    def _check(self, name: str, pid: int, meanwhile: str) -> None:
        if self._pid(name) != pid:
            raise RpcError(f"{name} ended while {meanwhile}")

    # ---- the process itself -----------------------------------------------------------------
    async def _sample(self, pid: int, request: control_pb2.Profile) -> list[Row]:
        wanted = {"duration_s": request.duration_s, "rate": request.rate, "idle": request.idle}
        found = await self._ask(request.name, pid, wanted, request.duration_s, "being sampled")
        return [(tuple(row["stack"]), row["seconds"]) for row in found["rows"]]

    async def _ask(self, name: str, pid: int, wanted: Mapping[str, Any], takes_s: float, meanwhile: str) -> Any:
        """Signal a process and read its answer. Raises RpcError if it ends, and DeadlineError if it does not answer."""
        ask, answer = paths_of(self._folder, pid)
        answer.unlink(missing_ok=True)
        write_private_text(ask, json.dumps(wanted))
        try:
            if not _listens(pid):
                self._check(name, pid, meanwhile)
                raise RetryableRpcError(f"{name} does not answer yet, because it is starting; try again")
            self._send(pid, signal.SIGUSR2)
            deadline = time.monotonic() + takes_s + SLACK_S
            while not answer.exists():
                self._check(name, pid, meanwhile)
                if time.monotonic() > deadline:
                    raise DeadlineError(
                        f"{name} did not answer within {takes_s + SLACK_S:g} s: its main thread is in native code;"
                        " 'heron stacks' shows where, and py-spy can sample it (pip install py-spy)"
                    )
                await asyncio.sleep(LOOK_S)
            return json.loads(answer.read_text(encoding="utf-8"))
        finally:
            for path in (ask, answer):
                with contextlib.suppress(OSError):
                    path.unlink()

    # ---- py-spy -----------------------------------------------------------------------------
    def _spy(self, program: str, pid: int, request: control_pb2.Profile) -> list[Row]:
        """Run py-spy until it ends; returns its samples."""
        out = Path(self._folder) / f"spy-{pid}.raw"
        seconds = math.ceil(request.duration_s)
        words = [program, "record", "--pid", str(pid), "--duration", str(seconds), "--rate", str(request.rate)]
        words += ["--format", "raw", "--output", str(out)]
        words += [*(["--native"] if request.native else []), *(["--idle"] if request.idle else [])]
        try:
            spy = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                errors="replace", umask=0o077,
            )  # fmt: skip
        except OSError as error:
            raise _NoSpyError(f"py-spy cannot be started: {error.strerror}") from None
        self.spies.add(spy)
        try:
            _, said = spy.communicate(timeout=request.duration_s + SLACK_S)
            if spy.returncode or not out.is_file():
                raise _NoSpyError(_reason(said))
            with out.open(encoding="utf-8", errors="replace") as file:
                return folded(file.read(RAW_MAX_BYTES), request.rate, request.idle)
        except subprocess.TimeoutExpired:
            raise _NoSpyError(f"py-spy did not finish within {request.duration_s + SLACK_S:g} s") from None
        finally:
            spy.kill()
            spy.wait()
            self.spies.discard(spy)
            out.unlink(missing_ok=True)

    def close(self) -> None:
        """End py-spy if it is running. Idempotent."""
        for spy in list(self.spies):
            spy.kill()


def py_spy() -> str | None:
    """The path of py-spy, if it is installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def _reason(said: str) -> str:
    """py-spy's error as one sentence."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if "ermission" in said or "ptrace" in said:
        return "py-spy is not permitted to attach; run the topology as root or set kernel.yama.ptrace_scope to 0"
    found = next((line for line in lines if "rror" in line or "denied" in line), lines[-1] if lines else "no reason")
    return f"py-spy could not sample: {found[:REASON_MAX]}"


def _own_stacks() -> str:
    with open(os.memfd_create("stacks"), "w+", encoding="utf-8", errors="replace") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


def _listens(pid: int) -> bool:
    """Whether the process handles SIGUSR2, which would otherwise kill it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGUSR2 - 1) & 1)


def _rss(pid: int) -> int:
    """Resident memory in bytes; 0 for a process that has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
