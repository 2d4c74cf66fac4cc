"""Writes a task's snapshot while the task continues, and handles children that user code forks.

Small state is encoded and sent immediately. Larger state that the task could change during the write is written
by a forked copy of the process, which sees the state at the time of the fork; any other state is written by a helper
thread. The outcome is announced with `report`, which may be called in any thread.

The forked child only encodes, writes, and reports through a pipe: it never touches a socket, a log or a
lock of its parent, closes nothing, and leaves by _exit. It dies with its parent, or at the deadline.

Invariants: one snapshot is written at a time; each is either reported once or cancelled.

A child that user code forks is not a task, so it leaves the runtime at the fork. The child has copies of the task's
sockets, wake pipes and signal handlers, but not the task's threads. Its writes would mix with the task's output, and
SIGTERM would stop a loop that does not run. So the child drops these copies, and everything through which the loop
communicates. When user code returns into the loop, or raises, the child ends. Until then the child may do anything.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

from msgspec import Struct, field

from heronpy.api.user_code import user_traceback
from heronpy.common.errors import HeronError
from heronpy.procs.linux import die_with_parent
from heronpy.proto.checkpoint_pb2 import TaskSnapshot

log = logging.getLogger("heron.instance")

#: The task's external connections; `inbox` belongs to its control thread.
_PARTS = ("link", "control", "checkpoints", "acks", "poison", "pending")

_HELD_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)

_task: Any = None
_ours = False
#: The signals that were blocked before the current fork; the interpreter's lock serializes forks.
_held: set[signal.Signals] | set[int] = set()


def watch_forks(task: Any) -> None:
    """Make children of this process leave the runtime from now on. Call it once per process."""
    global _task
    _task = task
    os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_leave_runtime)


@contextmanager
def by_the_runtime() -> Iterator[None]:
    """Mark a child that is forked in this block as the runtime's own child, which must not end itself."""
    global _ours
    _ours = True
    try:
        yield
    finally:
        _ours = False


class _Left:
    """Replaces the runtime in the child: code that touches it has returned from user code."""

    def __getattr__(self, name: str) -> NoReturn:
        _end()

    def __bool__(self) -> NoReturn:
        _end()


def _hold_signals() -> None:
    """Block signals for a child until its handlers are set: the task's handlers would lose them."""
    global _held
    _held = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_SIGNALS)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held)


def _leave_runtime() -> None:
    try:
        if not _ours:
            _let_go()
    finally:
        _release_signals()


def _let_go() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.unregister(signal.SIGUSR1)
    control, link = getattr(_task, "control", None), getattr(_task, "link", None)
    if control is not None:
        # The loop checks the interrupt after each call to user code.
        control.interrupt()
    _let_go_of_files(control)
    if link is not None:
        link.sock = _Left()
    for name in _PARTS:
        if getattr(_task, name, None) is not None:
            setattr(_task, name, _Left())


def _let_go_of_files(control: Any) -> None:
    """Close the child's copies of the task's sockets and pipes; their numbers then refer to /dev/null."""
    mine = {control.wake_fd, control._wake_out, control._own_in, control._own_out} if control is not None else set()
    mine |= _sockets_below(_task.launch.sockets_dir)
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in mine:
        os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


def _sockets_below(folder: str) -> set[int]:
    found = set()
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            opened = socket.socket(fileno=number)
            try:
                address = opened.getpeername() if opened.family == socket.AF_UNIX else ""
            finally:
                opened.detach()
            if isinstance(address, str) and address.startswith(f"{folder}/"):
                found.add(number)
    return found


def _end() -> NoReturn:
    """End a child that user code forked and did not end itself."""
    code = 0
    try:
        error = sys.exc_info()[1]
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            code = 1
            log.error("a child process forked by user code ends: %s", user_traceback(error))
        else:
            log.warning(
                "user code forked a child process that returned from user code; the child is stopped; it should"
                " end with os._exit()"
            )
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


#: First byte from a child: the snapshot follows, or the error.
_DONE, _FAILED = b"+", b"!"
#: Interval in seconds at which files that a child has written so far are uploaded.
UPLOAD_LOOK_S = 0.05
#: Signals with default handling in the child, because its handlers are the parent's.
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: report(checkpoint, snapshot, error): the snapshot, or the error
Report = Callable[[int, TaskSnapshot | None, str], None]


class Uploads(Protocol):
    """A store on another host: files for it wait here until they are uploaded."""

    def upload(self, checkpoint: int) -> None:
        """Upload the waiting files. Raises StoreError if that fails."""

    def drop(self, checkpoint: int) -> None:
        """Remove the waiting files."""


class Channel(Struct):
    """The frames that an unaligned checkpoint recorded for a task."""

    frames: list[bytes]
    tuples: int


class Job(Struct):
    """A snapshot that is being written."""

    checkpoint: int
    capture: Any
    #: The facts about the cut that the task adds to the snapshot.
    cut: TaskSnapshot
    deadline: float
    #: True if the snapshot also needs the data in flight (unaligned).
    records: bool = False
    channel: Channel | None = None
    ready: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False
    pid: int = 0
    pipe: int = -1


class SnapshotFailed(HeronError):
    """The snapshot could not be written; the text is the reason."""


class SnapshotWriter:
    """Writes the snapshots of one task. All methods are for the task's thread."""

    def __init__(
        self,
        state: Any,
        fork_above_bytes: int,
        inline_max_bytes: int,
        report: Report,
        uploads: Uploads | None = None,
    ) -> None:
        self._state = state
        self._uploads = uploads
        self._fork_above = fork_above_bytes
        self._inline_max = inline_max_bytes
        self._report = report
        self._lock = threading.Lock()
        self._job: Job | None = None

    def prepare(self, job: Job) -> None:
        """Capture the current state; abandon an unfinished snapshot."""
        self.cancel(job.checkpoint)
        if job.capture.estimate_bytes > self._fork_above:
            self._fork(job)
        elif job.capture.needs_fork:
            job.capture.settle()
        self._job = job

    def start(self, job: Job) -> None:
        """Write the snapshot in the background, or synchronously if it is small and the store is on this host."""
        small = job.capture.estimate_bytes <= self._inline_max and self._uploads is None
        if small and not job.pid and not job.records:
            self._finish(job)
            return
        try:
            threading.Thread(target=self._finish, args=(job,), name="snapshot", daemon=True).start()
        except RuntimeError as error:
            self.cancel(job.checkpoint)
            if job.pid:
                os.close(job.pipe)
                _reap(job.pid)
            raise SnapshotFailed(
                f"no thread could be started to write the state ({error}); allow more threads"
            ) from None

    def recorded(self, checkpoint: int, channel: Channel) -> None:
        """Add the data in flight at an unaligned cut, which is now complete."""
        job = self._job
        if job is not None and job.checkpoint == checkpoint:
            job.channel = channel
            job.ready.set()

    def cancel(self, checkpoint: int) -> None:
        """Abandon the snapshot that is being written for this or an older checkpoint."""
        job = self._job
        if job is None or job.checkpoint > checkpoint:
            return
        self._job = None
        with self._lock:
            job.cancelled = True
            if job.pid:
                _kill(job.pid)
        job.ready.set()
        if self._uploads is not None:
            self._uploads.drop(job.checkpoint)

    # ---- the child ----------------------------------------------------------------------------

    def _fork(self, job: Job) -> None:
        read, write = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        try:
            with by_the_runtime():
                pid = os.fork()
        except OSError as error:
            os.close(read)
            os.close(write)
            raise SnapshotFailed(
                f"no process could be started to write the state ({error.strerror}); allow more processes"
            ) from None
        if not pid:
            _child(job.capture, write, parent)
        os.close(write)
        job.pid, job.pipe = pid, read
        job.capture.forked()

    def _from_child(self, job: Job) -> TaskSnapshot:
        """Wait for the child's report, and always reap the child."""
        data = bytearray()
        try:
            poller = select.poll()
            poller.register(job.pipe, select.POLLIN)
            while True:
                left = job.deadline - time.monotonic()
                if self._uploads is not None and left > 0 and not poller.poll(UPLOAD_LOOK_S * 1000):
                    self._uploads.upload(job.checkpoint)
                    continue
                if left <= 0 or not poller.poll(left * 1000):
                    raise SnapshotFailed("the state was not written within the timeout of the checkpoint")
                part = os.read(job.pipe, 1 << 16)
                if not part:
                    break
                data += part
        finally:
            os.close(job.pipe)
            with self._lock:
                # The result is no longer needed; a process that was reaped must not be signalled.
                _kill(job.pid)
                status = _reap(job.pid)
                job.pid = 0
        if data[:1] == _DONE:
            return TaskSnapshot.FromString(bytes(data[1:]))
        if data[:1] == _FAILED:
            raise SnapshotFailed(data[1:].decode(errors="replace"))
        raise SnapshotFailed(f"the process that wrote the state died ({_describe(status)})")

    # ---- the end ------------------------------------------------------------------------------

    def _finish(self, job: Job) -> None:
        """Write the remaining parts and report, in a helper thread unless the state is small."""
        start = time.monotonic()
        snapshot: TaskSnapshot | None = None
        problem = ""
        try:
            snapshot = self._from_child(job) if job.pid else job.capture.persist()
            if job.records:
                self._add_channel(job, snapshot)
            if self._uploads is not None:
                self._uploads.upload(job.checkpoint)
            snapshot.MergeFrom(job.cut)
            snapshot.async_s = time.monotonic() - start
        except HeronError as error:
            snapshot, problem = None, str(error)
        except Exception as error:
            snapshot, problem = None, f"{type(error).__name__}: {error}"
        if self._uploads is not None:
            self._uploads.drop(job.checkpoint)
        with self._lock:
            if not job.cancelled:
                self._report(job.checkpoint, snapshot, problem)

    def _add_channel(self, job: Job, snapshot: TaskSnapshot) -> None:
        if not job.ready.wait(max(0.0, job.deadline - time.monotonic())):
            raise SnapshotFailed("the data in flight did not arrive within the timeout of the checkpoint")
        if job.channel is not None and job.channel.frames:
            self._state.write_channel(job.checkpoint, snapshot, job.channel.frames, job.channel.tuples)


def _child(capture: Any, pipe: int, parent: int) -> None:
    """Run in the forked copy; never return."""
    try:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if not die_with_parent(signal.SIGKILL, parent):
            os._exit(1)
        # A collection would touch, and so copy, all memory that is shared with the parent.
        gc.disable()
        try:
            report = _DONE + capture.persist().SerializeToString()
        except HeronError as error:
            report = _FAILED + str(error).encode()
        except BaseException as error:
            report = _FAILED + f"{type(error).__name__}: {error}".encode(errors="replace")
        view = memoryview(report)
        while view:
            view = view[os.write(pipe, view) :]
    finally:
        os._exit(0)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _reap(pid: int) -> int:
    """Return the exit status; 0 if user code has already reaped the child."""
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        return 0


def _describe(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit code {os.WEXITSTATUS(status)}"
