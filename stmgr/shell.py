"""Sockets, messages and one timer of a stream manager process, around its two pure halves.

Data and control have separate sockets (decision D4): a ROUTER for tasks and peers and a DEALER to each peer for
data, a control server for tasks and peers, a control client to each peer and to the topology master. Frames go to the
switch, everything else to the control machine, whose effects are performed here. Losing the topology master changes
nothing on the data path.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable
from functools import partial
from typing import Any

import zmq

from heronpy.common import exit_codes
from heronpy.common.errors import FencedRpcError, HeronError, InvalidRpcError, RetryableError
from heronpy.common.setting_types import MetricsSettings, SecuritySettings, StmgrSettings, TmasterSettings
from heronpy.common.settings import settings_for
from heronpy.net.follower import MasterFollower
from heronpy.net.rpc import body_of, seal, wrap
from heronpy.net.state import open_state_of
from heronpy.net.transport import connect
from heronpy.net.zsock import configure
from heronpy.plan.launch import LaunchSpec
from heronpy.procs.jobs import Jobs
from heronpy.proto import control_pb2, plan_pb2
from heronpy.wire.frames import message_of

from . import events, reports
from .admission import Admission
from .control import Control
from .events import Duty, Signal
from .reports import CheckpointReports
from .sockets import Endpoints, PeerConnection
from .switch import Switch

log = logging.getLogger("heron.stmgr")

#: Shortest timer in seconds: the event loop may fire early, and a shorter timer would then fire again immediately.
TIMER_MIN_S = 0.001
#: Seconds for which the process waits at its end for the last statuses of tasks: if some have arrived, and if none has.
TASKS_END_S, LAST_LOOK_S = 0.2, 0.02
#: Longest interval in seconds between reports of metrics, unless heartbeats are rarer.
QUIET_EXPORT_S = 5.0
#: Longest silence while nothing moves, as a share of the time after which the process counts as lost.
SILENCE = 1 / 3
#: Messages of the topology master for tasks.
ORDERS = (
    "finish_tasks", "hold_ticks", "trigger_checkpoint", "checkpoint_complete", "checkpoint_aborted", "trace_rate",
)  # fmt: skip
Registration = asyncio.Future[control_pb2.RegisterInstanceReply | None]


class Stmgr:
    def __init__(self, launch: LaunchSpec, container: int, epoch: int) -> None:
        self.launch = launch
        self.container = container
        self.settings = settings_for(launch, StmgrSettings)
        self.switch = Switch(self.settings, self._send_data, time.monotonic)
        export_s = settings_for(launch, MetricsSettings).export_interval_s
        lost_s = min(self.settings.instance_lost_s, settings_for(launch, TmasterSettings).stmgr_lost_s)
        pressure = self.switch.backpressure
        self.machine = Control(self.settings, container, epoch, pressure, export_s, lost_s * SILENCE)
        self.switch.hints.on_pressure = partial(self.feed, Signal.PRESSURE_CHANGED)
        self.switch.on_credit_owed = partial(self.feed, Signal.CREDIT_OWED)
        self.switch.on_removed = lambda task: self.feed(events.TaskRemoved(task))
        self.admission = Admission(launch.topology, container)
        self._connections: dict[str, PeerConnection] = {}
        self._identity = f"{self.machine.name}:{epoch}".encode()
        self.master = MasterFollower(
            launch.topology, self._identity, self._registration, self._on_tmaster, self._on_registered
        )
        self.checkpoint_reports = CheckpointReports(self.machine.name, self.master.call)
        self.switch.attempts.on_lost = self.checkpoint_reports.lost
        self._requests = itertools.count(1)
        self._replies: dict[int, Registration] = {}
        self._effects: deque[events.Effect] = deque()
        self._performing = False
        #: The switch's counts at the last report of metrics, and the time of that report.
        self._moved, self._exported_at = -1, 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        self._jobs = Jobs(partial(self.stop, int(exit_codes.FAILURE)))
        self._stop = asyncio.Event()
        self.exit_code = int(exit_codes.OK)

    # ---- life ---------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until SIGTERM."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        self._open_sockets()
        self._state = open_state_of(self.launch, owns=False)
        self._jobs.start(self._follow_tmaster())
        self.machine.begin(time.monotonic())
        self._arm()
        try:
            await self._stop.wait()
        finally:
            await self._jobs.close()
            await self._say_last()
            self._close()
        return self.exit_code

    def stop(self, exit_code: int = int(exit_codes.OK)) -> None:
        """End `run`; the first reason counts."""
        if not self._stop.is_set():
            self.exit_code = exit_code
            self._stop.set()

    def _open_sockets(self) -> None:
        if self.settings.socks_proxy:
            # The default of every socket of this process; it affects outgoing TCP connections only.
            zmq.Context.instance().setsockopt(zmq.SOCKS_PROXY, self.settings.socks_proxy.encode())
        self._endpoints = Endpoints(
            self.launch, self.settings, self.machine.name, self.machine.epoch, self.switch.receive, self._on_control
        )
        self._data, self._control = self._endpoints.data, self._endpoints.control
        self._push = configure(zmq.Context.instance().socket(zmq.PUSH), heartbeat=False)
        connect(self._push, f"ipc://{self.launch.sockets_dir}/executor-{self.container}.metrics")

    async def _say_last(self) -> None:
        """Pass on the last reports and frames from tasks that have just ended, so that the totals include them."""
        begun = time.monotonic()
        while True:
            last, tasks = self.machine.sessions.said_last()
            # Tasks that continue to run send no last status.
            over = (last == tasks and self.switch.settled) or (
                time.monotonic() - begun >= (TASKS_END_S if last else LAST_LOOK_S)
            )
            if over:
                break
            await asyncio.sleep(LAST_LOOK_S)
        left_in_order = self.switch.tasks_left
        self.switch.end()
        last_word = reports.heartbeat(self.machine, self.switch, time.monotonic())
        last_word.ends = left_in_order
        await self.master.last_word(self._state, last_word)

    def _close(self) -> None:
        # The loop still makes a few turns, in which the sockets are closed.
        self.feed(Signal.STOPPED)
        for connection in self._connections.values():
            connection.close()
        self.checkpoint_reports.close()
        self.master.close()
        self._endpoints.close()
        self._push.close(linger=0)
        self._state.close()

    def _send_data(self, identity: bytes, header: bytes, data: bytes) -> bool:
        return self._data.send([identity, *message_of(header, data)])

    # ---- the machine --------------------------------------------------------------------------

    def feed(self, event: events.Event) -> None:
        """Pass an event to the machine, perform its effects in order, then set the timer."""
        self._effects.extend(self.machine.handle(event, time.monotonic()))
        if self._performing:
            return  # an effect on the switch has caused the event
        self._performing = True
        try:
            while self._effects:
                self._perform(self._effects.popleft())
        finally:
            self._performing = False
            self._arm()

    def _arm(self) -> None:
        due = self.machine.next_deadline()
        if due == self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due, self._timer = due, None
        if due is not None:
            delay_s = max(TIMER_MIN_S, due - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._jobs.call, self._tick)

    def _tick(self) -> None:
        self._due = self._timer = None
        self.feed(Signal.TICK)

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.Reply(request, body, error):
                waiter = self._replies.pop(request)
                if not waiter.done() and error is not None:
                    waiter.set_exception(error)
                elif not waiter.done():
                    waiter.set_result(body)
            case events.Tell(identity, body):
                self._control.send(identity, body)
            case events.ConnectPeer(record):
                self._connect_peer(record)
            case events.DropPeer(name):
                self._connections.pop(name).close()
                self.switch.remove_peer(name)
            case Duty.PROBE_PEERS:
                for name in self.switch.probe_peers():
                    log.warning("%s does not reply; reopening the link", name)
                    self._connections[name].renew()
            case events.Announce(message):
                for connection in self._connections.values():
                    connection.announce(message)
            case Duty.SEND_HEARTBEAT:
                if self.master.registered:
                    self.master.send(reports.heartbeat(self.machine, self.switch, time.monotonic()))
            case Duty.EXPORT_METRICS:
                self._export()
            case events.Note(text, warning):
                log.log(logging.WARNING if warning else logging.INFO, "%s", text)
            case events.SwitchPlan():
                apply(self.switch, effect)
                self.feed(Signal.PLAN_IN_FORCE)
            case _:
                apply(self.switch, effect)

    def _connect_peer(self, record: plan_pb2.StmgrRecord) -> None:
        name = record.id
        if name in self._connections:
            self._connections.pop(name).close()
        self.switch.close_peer(name)
        connection = self._connections[name] = PeerConnection(
            record,
            b"s:" + self._identity,
            self.switch,
            self.settings,
            self.machine.next_link_epoch,
            self._endpoints.keys,
        )
        self.switch.add_peer(name, record.epoch, connection.transmit, connection.open)

    def _export(self) -> None:
        # While nothing moves or waits, reports are rarer, because each report costs work in three processes.
        moved, now = sum(self.switch.counts.values()), time.monotonic()
        waits = self.switch.queued()[1] or self.switch.in_flight()
        quiet = moved == self._moved and not waits
        if quiet and now - self._exported_at < QUIET_EXPORT_S:
            return
        self._moved, self._exported_at = moved, now
        refused = {
            "__stmgr_refused_connections": self._endpoints.refused,
            "__stmgr_refused_tasks": self.admission.refused,
        }
        message = reports.metrics(self.machine, self.switch, self.container, refused, now)
        message.pause_s = self.machine.export_pause_s if quiet else 0.0
        with contextlib.suppress(zmq.Again):  # the next report contains everything
            self._push.send(seal(wrap(message)), zmq.DONTWAIT)

    # ---- tasks and peers ----------------------------------------------------------------------

    def _on_control(self, identity: bytes, envelope: control_pb2.Envelope) -> Any:
        field, body = body_of(envelope)
        if field == "instance_status":
            self.feed(events.TaskReported(identity, body.status))
        elif field == "register_instance":
            return self._on_register(identity, body)
        elif field == "backpressure":
            # A sender that is not in the plan yet will send its announcement again.
            if self.switch.is_peer(identity):
                self.feed(events.PressureHeard(body))
        elif field in ("task_checkpoint", "restore_failed"):
            self.checkpoint_reports.report(field, body.task_id, body)
        else:
            raise InvalidRpcError(f"{self.machine.name} does not accept {field}")

    def _on_register(self, identity: bytes, message: control_pb2.RegisterInstance) -> Any:
        if self.admission.by_plan(message, self.machine.plan) or self.machine.awaits_plan(message):
            return self._admit(identity, message)
        return self._admit_if_packed(identity, message, self.admission.by_packing(message, self._state))

    def _admit(self, identity: bytes, message: control_pb2.RegisterInstance) -> Any:
        request = next(self._requests)
        reply: Registration = asyncio.get_running_loop().create_future()
        self._replies[request] = reply
        self.feed(events.TaskRegistered(request, identity, message))
        return reply.result() if reply.done() else reply

    async def _admit_if_packed(
        self, identity: bytes, message: control_pb2.RegisterInstance, packed: Awaitable[bool]
    ) -> Any:
        reply = self._admit(identity, message) if await packed else None
        return await reply if asyncio.isfuture(reply) else reply

    # ---- the topology master ------------------------------------------------------------------

    def _registration(self) -> control_pb2.RegisterStmgr:
        record = plan_pb2.StmgrRecord(
            id=self.machine.name,
            container=self.container,
            epoch=self.machine.epoch,
            data_endpoint=self._endpoints.data_endpoint,
            control_endpoint=self._endpoints.control_endpoint,
            pid=os.getpid(),
            host=self.launch.address or settings_for(self.launch, SecuritySettings).bind_host,
        )
        statuses = reports.at_registration(self.machine.sessions, self.switch)
        return control_pb2.RegisterStmgr(stmgr=record, tasks=statuses)

    def _on_registered(self, reply: control_pb2.RegisterStmgrReply | None) -> None:
        if reply is not None and reply.HasField("plan"):
            self.feed(events.PlanReceived(reply.plan))
        self.feed(Signal.REGISTERED)

    async def _follow_tmaster(self) -> None:
        try:
            await self.master.follow(self._state, self._endpoints.keys)
        except FencedRpcError as error:
            log.error("%s", error)
            self.stop(int(exit_codes.FENCED))

    def _on_tmaster(self, envelope: control_pb2.Envelope) -> None:
        field, body = body_of(envelope)
        if field == "new_plan":
            self.feed(events.PlanReceived(body.plan))
        elif field in ORDERS:
            if isinstance(body, control_pb2.CheckpointComplete | control_pb2.CheckpointAborted):
                self.checkpoint_reports.forget(body.checkpoint)
            self.feed(events.TasksOrdered(body))


def apply(switch: Switch, effect: events.Effect) -> None:
    match effect:
        case events.SwitchPlan(plan, here, elsewhere, spouts, connected, holds, drops):
            switch.rewind(plan)
            switch.take_places(here, spouts, elsewhere)
            for task_id in switch.absent(connected, bool(plan.regions)):
                switch.remove_task(task_id)
            switch.may_hold, switch.asks = holds, holds or bool(drops)
            switch.hold_credit(True)
            if drops:
                from .dropping import Dropping

                Dropping(switch, drops, plan)
        case events.AttachTask(registration, is_spout, link_epoch):
            message = registration.message
            task = switch.add_task(message.task_id, message.component, is_spout)
            switch.attach(task, registration.identity, message.epoch, link_epoch)
        case events.RemoveTask(task_id):
            switch.remove_task(task_id)
        case events.Clamp(on):
            switch.clamp_spouts(on)
        case events.HoldCredit(on):
            switch.hold_credit(on)
        case Duty.SETTLE_CREDIT:
            switch.settle_credit()


def run(launch: LaunchSpec, container: int, epoch: int) -> int:
    """Run one stream manager on uvloop; return the exit code."""
    import uvloop

    async def main() -> int:
        return await Stmgr(launch, container, epoch).run()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except HeronError as error:
        log.error("%s", error)
        return exit_codes.UNAVAILABLE if isinstance(error, RetryableError) else exit_codes.FAILURE
