"""The terminal of `heron top`: reads keys, writes lines, and runs the thread that requests figures.

The terminal is always restored at the end.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from google.protobuf.message import Message

from heronpy.cli.look import pipelines
from heronpy.cli.look.full_screen.screen import Size, changes, draw, painted
from heronpy.cli.look.full_screen.view import Figures, View, Wish, keys_of, press, rows_of, wish_of
from heronpy.cli.output import clean_block
from heronpy.clusters.live_evidence import find_process, take
from heronpy.clusters.log_ends import log_tail
from heronpy.clusters.session import Session
from heronpy.common.errors import DeadlineError, HeronError, InvalidRpcError, RpcError
from heronpy.common.losses import losses_text
from heronpy.common.units import format_duration
from heronpy.health.texts import advice, sentence
from heronpy.ingest.keys import has_units
from heronpy.net.answers import read
from heronpy.net.rpc import RpcClient
from heronpy.procs.interrupts import interruptible
from heronpy.proto import control_pb2
from heronpy.statemgr import paths
from heronpy.views.findings import CALM
from heronpy.views.load import TASK_METRICS, Load, LoadAnswer, tasks_of
from heronpy.views.past import Timeline
from heronpy.views.units import pipelines_of

#: Switch to the alternate screen without cursor, and back. Lines never wrap, so that a resize does not break them.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_CLEAR = "\x1b[2J"
_READ = 4096
ASK_S = 1.0
#: Rates of tasks are measured over this period.
TASK_WINDOW_S = 10.0
#: Time span of the trends, and how often they are requested; each point covers a minute.
TREND_S, TREND_EVERY_S = 3600.0, 20.0
_NO_PLAN = (1 << 64) - 1
#: Maximum length of the stacks in characters; further text is left out.
STACKS_MAX = 64 * 1024


@dataclass(slots=True)
class _Asked:
    """The latest answers; only the thread of `Asking` changes this object."""

    figures: Figures
    topology_id: str = ""
    has_units: bool = False
    job: bool = False
    heard_at: float = field(default_factory=time.monotonic)
    trends_at: float = float("-inf")
    stacks: tuple[str, int] | None = None


class Asking:
    """Requests figures in a thread, so that keys never wait for answers.

    A byte is written to the descriptor `wake` after each round of requests.
    """

    def __init__(
        self, session: Session, topology: str, interval_s: float, look_for_end: Callable[[bool], None], wake: int
    ) -> None:
        """After each request, `look_for_end` gets whether it was answered, and raises if no answer will come."""
        self._session, self._name, self._interval_s = session, topology, interval_s
        self._look_for_end, self._wake = look_for_end, wake
        self._lock = threading.Condition()
        self._wish = Wish()
        self._newest = Figures(session.target.cluster, topology)
        self._error: Exception | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="asking", daemon=True)

    def start(self) -> None:
        """Start the thread; may be called once."""
        self._thread.start()

    def want(self, wish: Wish) -> None:
        """Request this data from now on; a changed wish is sent immediately."""
        with self._lock:
            if wish != self._wish:
                self._wish = wish
                self._lock.notify()

    def figures(self) -> Figures:
        """Return the newest figures; raises the error that ended the thread."""
        with self._lock:
            if self._error is not None:
                raise self._error
            return self._newest

    def stop(self) -> None:
        """End the thread, as soon as no request is open."""
        with self._lock:
            self._stopped = True
            self._lock.notify()
        self._thread.join(2 * ASK_S + 0.5)

    def _run(self) -> None:
        asked, links = _Asked(self._newest), ExitStack()
        client: RpcClient | None = None
        try:
            while not self._stopped:
                with self._lock:
                    wish = self._wish
                began = time.monotonic()
                try:
                    if client is None:
                        client = links.enter_context(self._session.tmaster(self._name))
                    found = self._look(client, asked, wish)
                    asked.heard_at = time.monotonic()
                    self._look_for_end(True)
                except HeronError as error:
                    links.close()
                    client = None
                    self._look_for_end(False)
                    silent = format_duration(round(time.monotonic() - asked.heard_at))
                    found = replace(asked.figures, trouble=f"no answer for {silent}: {error}")
                asked.figures = found
                self._post(found)
                with self._lock:
                    if wish == self._wish and not self._stopped:
                        self._lock.wait(max(0.0, began + self._interval_s - time.monotonic()))
        except Exception as error:
            with self._lock:
                self._error = error
            self._post(asked.figures)
        finally:
            links.close()

    def _post(self, figures: Figures) -> None:
        with self._lock:
            self._newest = figures
        try:
            os.write(self._wake, b".")
        except BlockingIOError:
            pass  # the pipe is full, so the reader is woken anyway
        except OSError:
            self._stopped = True

    def _look(self, client: RpcClient, asked: _Asked, wish: Wish) -> Figures:
        load = read(client.call(control_pb2.GetLoad(plan_version=_NO_PLAN), ASK_S), LoadAnswer)
        before, now = asked.figures, time.monotonic()
        if load.topology_id != asked.topology_id:
            asked.topology_id, asked.trends_at = load.topology_id, float("-inf")
            asked.has_units = has_units(self._session.topology(self._name))
            asked.job = self._session.state.exists(paths.job(self._name))
            before = replace(before, trends={}, tasks=None, units=())
        finding = next(iter(load.findings), None)
        cluster = self._session.target.cluster
        found = replace(
            before,
            load=load.load,
            uptime_s=load.uptime_s,
            verdict=finding.verdict.value if finding is not None else "",
            sentence=sentence(finding, self._name) if finding is not None else "",
            advice=advice(finding, cluster, self._name, asked.job) if finding is not None else "",
            calm=finding is None or finding.verdict in CALM,
            losses=losses_text(load.totals),
            trouble="",
        )
        if now - asked.trends_at >= TREND_EVERY_S:
            found = replace(found, trends=_trends(client, load.load))
            asked.trends_at = now
        if asked.has_units:
            reply: control_pb2.MetricsReply = client.call(pipelines.REQUEST, ASK_S)
            found = replace(found, units=tuple(pipelines.lines(pipelines_of(reply).pipelines)))
        if wish.component is None:
            return replace(found, tasks=None)
        return self._tasks(client, found, wish, asked)

    def _tasks(self, client: RpcClient, found: Figures, wish: Wish, asked: _Asked) -> Figures:
        status: control_pb2.StatusReply = client.call(control_pb2.GetStatus(), ASK_S)
        request = control_pb2.GetMetrics(
            component=wish.component or "", names=TASK_METRICS, interval_s=TASK_WINDOW_S
        )  # fmt: skip
        try:
            metrics: control_pb2.MetricsReply = client.call(request, ASK_S)
        except InvalidRpcError:  # an update has removed the component
            metrics = control_pb2.MetricsReply()
        tasks = tasks_of(
            status, metrics, found.load.plan_version if found.load else 0, time.time(), wish.component or None
        )
        found = replace(found, tasks=tasks)
        if wish.log:
            found = replace(found, log=(wish.log, self._log(status, wish.log)))
        if wish.stacks is not None and wish.stacks != asked.stacks:
            asked.stacks = wish.stacks
            found = replace(found, stacks=(wish.stacks[0], self._stacks(status, wish.stacks[0])))
        return found

    def _log(self, status: control_pb2.StatusReply, instance: str) -> tuple[str, ...]:
        """Return the tail of the instance's log, or the reason why it cannot be read."""
        try:
            return tuple(log_tail(self._session, self._name, status, instance, ASK_S))
        except HeronError as error:
            return (str(error),)

    def _stacks(self, status: control_pb2.StatusReply, instance: str) -> str:
        """Return the stacks of the instance's threads, or the reason why they are unavailable."""
        try:
            process = find_process(self._name, status, instance)
            reply: Message = take(
                self._session, self._name, process, control_pb2.DumpStacks(name=process.name), 0.0
            )  # fmt: skip
        except HeronError as error:
            return str(error)
        assert isinstance(reply, control_pb2.DumpStacksReply)
        return clean_block(reply.text[:STACKS_MAX].rstrip())


def _trends(client: RpcClient, load: Load) -> dict[str, tuple[float | None, ...]]:
    """Return the tuples per second of each component, one value per minute; the last value is the current rate."""
    request = control_pb2.GetTimeline(names=["emitted", "executed"], since=load.at - TREND_S)
    try:
        kept = read(client.call(request, ASK_S), Timeline)
    except (DeadlineError, RpcError):
        return {}
    found: dict[str, tuple[float | None, ...]] = {}
    series = {(one.component, one.metric): one.values for one in kept.series}
    for one in load.components:
        metric = "emitted_per_s" if one.kind == "spout" else "executed_per_s"
        found[one.name] = (*series.get((one.name, metric), ()), getattr(one, metric))
    return found


def fits_terminal() -> bool:
    """Whether stdin and stdout are a terminal that can send single keys and move the cursor."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def show(session: Session, topology: str, interval_s: float, look_for_end: Callable[[bool], None]) -> None:
    """Show the topology until q or Ctrl-C; passes on the errors of `look_for_end`."""
    with interruptible(), _pipe() as (readable, wake):
        asking = Asking(session, topology, interval_s, look_for_end, wake)
        terminal = _Terminal()
        try:
            with terminal.taken(), _woken(signal.SIGWINCH, wake):
                asking.start()
                _loop(asking, terminal, readable)
        finally:
            asking.stop()


def _loop(asking: Asking, terminal: _Terminal, readable: int) -> None:
    view, figures = View(), asking.figures()
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(readable, select.POLLIN)
    while not view.ended:
        terminal.show(view, figures)
        ready = dict(poll.poll())
        if readable in ready:
            os.read(readable, _READ)
            newest = asking.figures()
            figures = figures if view.frozen else newest
        if 0 in ready:
            data = os.read(0, _READ)
            if not data:  # the terminal is gone
                return
            for key in keys_of(data):
                if key == "suspend":
                    terminal.suspend()
                elif key == "redraw":
                    terminal.forget()
                else:
                    view = press(view, key, rows_of(view, figures))
            asking.want(wish_of(view))


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    try:
        yield readable, writable
    finally:
        os.close(readable)
        os.close(writable)


@contextmanager
def _woken(signum: signal.Signals, wake: int) -> Iterator[None]:
    """Make this signal write to the pipe during the block, so that no signal is missed."""
    held, before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False), signal.signal(signum, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signum, before)
        signal.set_wakeup_fd(held)


class _Terminal:
    """The content of the screen, and the original state of the terminal."""

    def __init__(self) -> None:
        self._before: list[str] = []
        self._size: os.terminal_size | None = None
        self._found = termios.tcgetattr(0)
        self._colour = not os.environ.get("NO_COLOR")
        encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
        self._ascii = encoding not in ("utf8", "utf16", "utf32")

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Use single-key input and the alternate screen during the block."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def _enter(self) -> None:
        mode = termios.tcgetattr(0)
        mode[3] &= ~(termios.ICANON | termios.ECHO)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        # Ctrl-Z arrives as a key, so that the screen can be restored first.
        mode[6][termios.VSUSP] = os.fpathconf(0, "PC_VDISABLE").to_bytes(1, "little")
        termios.tcsetattr(0, termios.TCSADRAIN, mode)
        self._write(_ENTER)
        self.forget()

    def _leave(self) -> None:
        self._write(_LEAVE)
        termios.tcsetattr(0, termios.TCSADRAIN, self._found)

    def suspend(self) -> None:
        """Restore the terminal and stop the process, as for Ctrl-Z; take the terminal again on SIGCONT."""
        self._leave()
        os.kill(os.getpid(), signal.SIGTSTP)
        self._enter()

    def forget(self) -> None:
        """Make the next `show` write every line."""
        self._size = None

    def show(self, view: View, figures: Figures) -> None:
        """Update the screen; writes nothing when nothing has changed."""
        size = os.get_terminal_size(1)
        text = ""
        if size != self._size:
            self._size, self._before, text = size, [], _CLEAR
        lines = draw(view, figures, Size(size.columns, size.lines), self._ascii)
        after = [painted(line, self._colour) for line in lines]
        text += changes(self._before, after)
        self._before = after
        if text:
            self._write(text)

    def _write(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding or "ascii", "replace")
        blocking = os.get_blocking(1)
        if not blocking:
            os.set_blocking(1, True)
        while data:
            data = data[os.write(1, data) :]
        if not blocking:
            os.set_blocking(1, False)
