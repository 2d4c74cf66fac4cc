"""The helper thread of a task: registration, heartbeats, metrics, exceptions.

The thread runs in parallel with user code so that a heartbeat can distinguish *hung* from *busy*: it reports the time
since the last turn of the task's loop. It decides nothing: it puts messages into `inbox` and wakes the loop through a
pipe. Control has its own sockets and never waits behind data (decision D4).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq
from msgspec import Struct

from heronpy.common import exit_codes
from heronpy.common.clock import shared_moment
from heronpy.net.rpc import body_of, parse, seal, wrap
from heronpy.net.transport import connect
from heronpy.net.zsock import configure, event_of
from heronpy.proto import control_pb2
from heronpy.proto.checkpoint_pb2 import TaskSnapshot

from .link import drain


class Refused(Struct, frozen=True):
    """The stream manager will never accept this task; `why` is only for display."""

    refusal: control_pb2.Refusal
    why: str

    @property
    def exit_code(self) -> exit_codes.ExitCode:
        """The exit code of the process.

        Only a newer incarnation fences the process. An invalid task is missing from every plan, or its name and
        numbers contradict each other: heronpy has a bug, or the executor is ahead of the plan. No other process does
        the task's work, so the executor restarts the process, within the budget for such errors.
        """
        return exit_codes.FENCED if self.refusal == control_pb2.REFUSAL_FENCED else exit_codes.FAILURE


class SnapshotWritten(Struct, frozen=True):
    """The writer of a checkpoint has ended; without a snapshot, it has failed."""

    checkpoint: int
    snapshot: TaskSnapshot | None


#: Refusals that a repeated registration does not change.
FINAL = frozenset((control_pb2.REFUSAL_FENCED, control_pb2.REFUSAL_INVALID))

CheckpointMessage = (
    control_pb2.TriggerCheckpoint | control_pb2.CheckpointComplete | control_pb2.CheckpointAborted | SnapshotWritten
)
Message = (
    control_pb2.RegisterInstanceReply
    | control_pb2.NewPlan
    | control_pb2.FinishTask
    | control_pb2.HoldTicks
    | control_pb2.StopTask
    | control_pb2.TraceRate
    | CheckpointMessage
    | Refused
)


log = logging.getLogger("heron.control")

#: Seconds after which a registration without an answer is repeated.
REGISTER_RETRY_S = 0.5
#: Maximum milliseconds between two attempts to reconnect to the stream manager.
RECONNECT_MAX_MS = 100
#: Seconds in user code after which a loop is interrupted at the next tuple boundary.
LATE_S = 0.1
#: Number of equal heartbeats after which heartbeats become rarer.
CALM_AFTER = 3
#: A resting task sends unchanged metrics once per this number of the rarer heartbeats.
QUIET_REPORTS = 3
#: Seconds by which an announced report may be late.
LATE_REPORT_S = 1.0
#: Number of idle tasks with adjacent numbers that send together; a larger group would disturb busy tasks.
TOGETHER = 10
#: Maximum number of messages that wait for the loop; the stream manager sends few.
INBOX_MAX = 1000
#: Maximum number of messages for the stream manager that wait for a registration.
OUTBOX_MAX = 1000


class ControlThread(threading.Thread):
    """Connects one task to the control sockets of the stream manager and of the executor."""

    def __init__(
        self,
        *,
        register: control_pb2.RegisterInstance,
        stmgr_endpoint: str,
        metrics_endpoint: str,
        status: Callable[[], control_pb2.TaskStatus],
        report: Callable[[], control_pb2.MetricsReport],
        heartbeat_s: float,
        metrics_s: float,
        silence_max_s: float,
        on_plan: Callable[[Any], None],
        look: Callable[[float], float] = lambda now: float("inf"),
        quiet: Callable[[], bool] = lambda: False,
        quiet_max_s: float = 0.0,
    ) -> None:
        """`look` is called in each turn of the thread, and returns the latest time for its next call.

        `quiet` returns whether the last two reports had the same figures. In this case the metrics reports of a resting
        task may be `quiet_max_s` seconds apart.
        """
        super().__init__(name="control", daemon=True)
        self._register = register
        self._stmgr_endpoint = stmgr_endpoint
        self._metrics_endpoint = metrics_endpoint
        self._status = status
        self._report = report
        #: Sees each plan before the loop does, even while the loop is busy.
        self._on_plan = on_plan
        self._look = look
        self._quiet = quiet
        self._quiet_max_s = quiet_max_s
        #: True if, at the last heartbeat, the task did nothing and nothing waited; the announced pause between metrics.
        self._rests = False
        self._pause_s = 0.0
        self._heartbeat_s = heartbeat_s
        self._metrics_s = metrics_s
        #: While nothing changes, the pause between heartbeats and metrics grows to this value, so that idle tasks cost
        #: little.
        self._silence_max_s = silence_max_s
        #: True if nothing had changed at the last heartbeats.
        self.calm = False
        #: The counters that the last status carried.
        self.sent: tuple[int, ...] = ()
        self.inbox: deque[Message] = deque(maxlen=INBOX_MAX)
        #: If not empty, the loop must stop at the next tuple boundary and serve its inbox, which may be empty.
        self.interrupted: deque[bool] = deque(maxlen=1)
        self.wake_fd, self._wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._own_in, self._own_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._to_executor: deque[Any] = deque()
        self._to_stmgr: deque[Any] = deque(maxlen=OUTBOX_MAX)
        self._stopping = self._metrics_asked = False
        self._registered = self._disconnected = False
        self._request = 0
        self._register_due = 0.0

    # ---- called by the task's thread ------------------------------------------------------------

    def wake_at_signals(self) -> None:
        """Make every signal wake the loop from now on; the main thread calls this.

        A signal that arrives between the loop's last check of its inbox and its sleep, or in another thread, does not
        interrupt the sleep: its handler, which Python runs later, would be delayed until the end of the sleep.
        """
        signal.set_wakeup_fd(self._wake_out, warn_on_full_buffer=False)

    def notify(self, metrics: bool = False) -> None:
        """Send a status now; with `metrics`, send a report of the metrics first."""
        self._metrics_asked = self._metrics_asked or metrics
        _poke(self._own_out)

    def publish(self, message: Any) -> None:
        """Send a message to the executor (an ExceptionReport or MetricsReport)."""
        self._to_executor.append(message)
        _poke(self._own_out)

    def tell(self, message: Any) -> None:
        """Send a message to the stream manager, once the task is registered, before later statuses. Any thread may call
        this."""
        self._to_stmgr.append(message)
        _poke(self._own_out)

    def stop(self, timeout_s: float) -> None:
        """Send a final status and final metrics, and end the thread."""
        self._stopping = True
        _poke(self._own_out)
        self.join(timeout_s)

    def interrupt(self) -> None:
        """Make the loop stop at the next tuple boundary; any thread may call this."""
        self.interrupted.append(True)

    def drain_wake(self) -> None:
        """Clear the interrupt and the wake-up; the loop calls this before it reads the inbox."""
        self.interrupted.clear()
        drain(self.wake_fd)

    # ---- the thread -----------------------------------------------------------------------------

    def run(self) -> None:
        context: zmq.Context[Any] = zmq.Context.instance()
        identity = f"t:{self._register.task_id}:{self._register.epoch}".encode()
        dealer = configure(context.socket(zmq.DEALER), identity=identity, heartbeat=False)
        dealer.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        monitor = dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        connect(dealer, self._stmgr_endpoint)
        push = configure(context.socket(zmq.PUSH), heartbeat=False)
        connect(push, self._metrics_endpoint)
        try:
            self._serve(dealer, monitor, push)
        except Exception:
            # Without heartbeats this task would look dead, so let its successor take over.
            log.exception("the control thread failed")
            self.deliver(control_pb2.StopTask(reason="its control thread failed"))
        dealer.disable_monitor()
        monitor.close(linger=0)
        push.close(linger=1000)
        dealer.close(linger=1000)

    def _serve(self, dealer: zmq.Socket[bytes], monitor: zmq.Socket[bytes], push: zmq.Socket[bytes]) -> None:
        poller = zmq.Poller()
        for source in (dealer, monitor, self._own_in):
            poller.register(source, zmq.POLLIN)
        next_heartbeat = next_metrics = time.monotonic()
        quiet = 0
        while True:
            now = time.monotonic()
            if not self._registered and now >= self._register_due:
                self._send_registration(dealer, now)
            # Created before the status is sent, so that ZeroMQ's thread is woken once for both.
            metrics = None
            if now >= next_metrics:
                metrics, next_metrics = self._make_report(now)
            if now >= next_heartbeat:
                quiet = quiet + 1 if self._send_status(dealer) else 0
                self.calm = quiet >= CALM_AFTER
                next_heartbeat = self._next(now, self._heartbeat_s)
                if self._pause_s and not (self.calm and self._rests):
                    # Work has begun during the announced pause, so the next metrics are sent as early as without it.
                    next_metrics = min(next_metrics, now + self._metrics_s)
            if metrics is not None:
                _try_send(push, metrics)
            while self._to_executor:
                _try_send(push, seal(wrap(self._to_executor.popleft())))
            if self._stopping:
                self._send_status(dealer, ends=True)
                report = self._report()
                report.ends = True
                _try_send(push, seal(wrap(report)))
                break
            deadline = min(next_heartbeat, next_metrics, self._look(now))
            if not self._registered:
                deadline = min(deadline, self._register_due)
            ready = dict(poller.poll(max(1, int((deadline - now) * 1000) + 1)))
            if monitor in ready:
                self._monitor(monitor)
            if dealer in ready:
                self._receive(dealer)
            if self._own_in in ready:
                drain(self._own_in)
                if self._metrics_asked:
                    self._metrics_asked = False
                    metrics, next_metrics = self._make_report(time.monotonic())
                    _try_send(push, metrics)
                self._send_status(dealer)
                quiet, self.calm = 0, False
                now = time.monotonic()
                next_heartbeat = min(next_heartbeat, now + self._heartbeat_s)
                # Sent immediately after a long pause, because the rates of new work are measured from this report.
                next_metrics = min(next_metrics, now if self._pause_s else now + self._metrics_s)

    def _send_registration(self, dealer: zmq.Socket[bytes], now: float) -> None:
        self._request += 1
        self._register_due = now + REGISTER_RETRY_S
        _try_send(dealer, seal(wrap(self._register, self._request)))

    def _make_report(self, now: float) -> tuple[bytes, float]:
        """Return a metrics report, and the time of the next report."""
        report = self._report()
        every = 1
        if self.calm and self._rests and self._quiet():
            every = max(1, min(QUIET_REPORTS, int(self._quiet_max_s / self._calm_pause_s(self._metrics_s))))
        due = self._next(now, self._metrics_s, every)
        self._pause_s = every * self._calm_pause_s(self._metrics_s) + LATE_REPORT_S if every > 1 else 0.0
        report.pause_s = self._pause_s
        return seal(wrap(report)), due

    def _calm_pause_s(self, interval_s: float) -> float:
        return max(1, int(self._silence_max_s / interval_s)) * interval_s

    def _next(self, now: float, interval_s: float, every: int = 1) -> float:
        """Return the time of the next send; idle tasks on a host send together, so that their reader wakes up once."""
        if not self.calm:
            return now + interval_s
        group = (self._register.task_id - 1) // TOGETHER
        return shared_moment(now, self._calm_pause_s(interval_s), group, every)

    def _send_status(self, dealer: zmq.Socket[bytes], ends: bool = False) -> bool:
        """Send a status; return whether it equals the previous status."""
        if not self._registered:
            return False
        while self._to_stmgr and _try_send(dealer, seal(wrap(self._to_stmgr[0]))):
            self._to_stmgr.popleft()
        status = self._status()
        status.ends = ends
        _try_send(dealer, seal(wrap(control_pb2.InstanceStatus(status=status))))
        if status.loop_age_s > LATE_S:
            self.interrupt()
        waits = status.in_queue_tuples or status.out_queue_tuples or status.pending
        self._rests = not waits and status.loop_age_s <= LATE_S
        before, self.sent = self.sent, activity_of(status)
        return self.sent == before

    def _monitor(self, monitor: zmq.Socket[bytes]) -> None:
        """Register again on a new connection, which means a new stream manager process."""
        while monitor.poll(0):
            event, _ = event_of(monitor.recv_multipart())
            if event == zmq.EVENT_DISCONNECTED:
                self._registered, self._disconnected = False, True
                self._register_due = time.monotonic() + REGISTER_RETRY_S
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED and self._disconnected:
                # The very first registration waits in the socket for the first connection.
                self._disconnected = False
                self._register_due = 0.0

    def _receive(self, dealer: zmq.Socket[bytes]) -> None:
        while True:
            try:
                parts = dealer.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            envelope = parse(parts[-1])
            if envelope is None:
                continue
            if envelope.refusal in FINAL:
                log.error("the stream manager refused this task: %s", envelope.error)
                self.deliver(Refused(envelope.refusal, envelope.error))
            elif envelope.refusal:
                log.warning("the stream manager cannot accept this task yet: %s", envelope.error)
            else:
                self._take(body_of(envelope)[1], envelope.request_id)

    def _take(self, body: Any, request: int) -> None:
        """Handle a message from the stream manager, or its answer to the registration with this number."""
        match body:
            case control_pb2.RegisterAgain():
                # The stream manager was restarted and has no record of this task.
                self._registered = False
                self._register_due = 0.0
            case control_pb2.RegisterInstanceReply():
                if request == self._request:
                    self._registered = True
                    if body.HasField("plan"):
                        self._on_plan(body.plan)
                    self.deliver(body)
            case control_pb2.NewPlan():
                self._on_plan(body.plan)
                self.deliver(body)
            case (
                control_pb2.FinishTask()
                | control_pb2.HoldTicks()
                | control_pb2.StopTask()
                | control_pb2.TraceRate()
                | control_pb2.TriggerCheckpoint()
                | control_pb2.CheckpointComplete()
                | control_pb2.CheckpointAborted()
            ):
                self.deliver(body)

    def deliver(self, message: Message) -> None:
        """Put a message into the inbox and wake the loop; also called by signal handlers."""
        self.inbox.append(message)
        self.interrupt()
        _poke(self._wake_out)


def activity_of(status: Any) -> tuple[int, ...]:
    """Return the counters of a TaskStatus that change when a task does something."""
    return (status.emitted, status.executed, status.acked, status.failed, status.state, status.pending)


def _try_send(sock: zmq.Socket[bytes], data: bytes) -> bool:
    try:
        sock.send(data, zmq.DONTWAIT)
    except zmq.Again:
        return False
    return True


def _poke(fd: int) -> None:
    try:
        os.write(fd, b"!")
    except BlockingIOError:
        pass
