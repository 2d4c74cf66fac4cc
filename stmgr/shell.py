"""Sockets, timers and messages of one stream manager process.

Data and control have sockets of their own (decision D4): a ROUTER for tasks and peers and a DEALER to
each peer for data, a control server for tasks and peers, a control client to each peer and to the
topology master. Losing the topology master changes nothing on the data path.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import zmq

from heronpy.common import exit_codes
from heronpy.common.errors import FencedRpcError, HeronError, InvalidRpcError, RetryableError
from heronpy.common.settings import settings_for
from heronpy.net.follower import MasterFollower
from heronpy.net.rpc import body_of, seal, wrap
from heronpy.net.transport import connect
from heronpy.net.zsock import configure
from heronpy.plan.logical import LogicalPlan
from heronpy.proto import control_pb2 as control
from heronpy.proto import plan_pb2
from heronpy.statemgr import open_state_of

from . import metrics
from .admission import Admission
from .doors import Doors
from .peers import PeerConnection
from .relay import Relay
from .sessions import Session, Sessions
from .switch import NEVER, Switch

log = logging.getLogger("heron.stmgr")

#: A state change of a task is told to the topology master after this moment, with others of the same moment.
DEBOUNCE_S = 0.003
#: A task that goes on showing an older plan is sent the new one again after this.
RESEND_PLAN_S = 2.0
#: Reports that follow one about a change, and the time between them.
FOLLOW_UPS = 4
FOLLOW_UP_S = 0.1
FOLLOW_UP_PER_TASK_S = 0.002
#: Backpressure is logged at most this often; the metrics have every episode.
PRESSURE_LOG_S = 30.0
#: Credit below a quarter window is returned after this.
CREDIT_DELAY_S = 0.02
#: Link epochs of one incarnation fill the bits below.
LINK_EPOCH_SHIFT = 24


class Stmgr:
    """One stream manager."""

    def __init__(self, launch: Any, container: int, epoch: int) -> None:
        self.launch = launch
        self.container = container
        self.epoch = epoch
        self.name = f"stmgr-{container}"
        self.settings = settings_for(launch, "stmgr")
        self._metrics_s = settings_for(launch, "metrics").export_interval_s
        self.switch = Switch(self.settings, self._send_data, time.monotonic)
        self.switch.on_pressure = self._pressure
        self.switch.on_credit_owed = self._settle_credit_later
        self.switch.on_removed = self._on_removed
        self.admission = Admission(launch.topology, container)
        self.sessions = Sessions(self.settings.instance_lost_s)
        self.plan: plan_pb2.PhysicalPlan | None = None
        self._connections: dict[str, PeerConnection] = {}
        self._links = 0
        self.master = MasterFollower(
            launch.topology,
            f"{self.name}:{epoch}".encode(),
            self._registration,
            self._on_tmaster,
            self._on_registered,
        )
        self.relay = Relay(self.name, self.master.call)
        self.switch.attempts.on_lost = self.relay.lost
        self._stop = asyncio.Event()
        self._planned = asyncio.Event()
        self._pressure_timer: asyncio.TimerHandle | None = None
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._credit_timer: asyncio.TimerHandle | None = None
        self.exit_code = int(exit_codes.OK)
        self.discarded_reports = 0
        self._follow_ups = 0
        self._next_pressure_log = 0.0
        self._unlogged_episodes = 0

    def next_link_epoch(self) -> int:
        """Counters, not clocks, for ids: unique over all incarnations of this stream manager."""
        self._links += 1
        return (self.epoch << LINK_EPOCH_SHIFT) + self._links

    # ---- life ---------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until SIGTERM."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._open_sockets()
        self._state = open_state_of(self.launch)
        jobs = [
            loop.create_task(self._guard(job), name=job.__name__)
            for job in (self._follow_tmaster, self._housekeeping, self._export)
        ]
        try:
            await self._stop.wait()
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            self._close()
        return self.exit_code

    async def _guard(self, job: Callable[[], Any]) -> None:
        """A job that ends is a bug of ours, unless this process is fenced: then the executor does not restart it."""
        code = exit_codes.FAILURE
        try:
            await job()
        except FencedRpcError as error:
            log.error("%s", error)
            code = exit_codes.FENCED
        except Exception:
            log.exception("%s failed", job.__name__)
        self.exit_code = int(code)
        self._stop.set()

    def _open_sockets(self) -> None:
        if self.settings.socks_proxy:
            # The default of every socket of this process; it concerns outgoing TCP connections only.
            zmq.Context.instance().setsockopt(zmq.SOCKS_PROXY, self.settings.socks_proxy.encode())
        self._doors = Doors(
            self.launch, self.settings, self.name, self.epoch, self.switch.receive, self._on_control
        )
        self._data, self._control = self._doors.data, self._doors.control
        push = configure(zmq.Context.instance().socket(zmq.PUSH), heartbeat=False)
        connect(push, f"ipc://{self.launch.sockets_dir}/executor-{self.container}.metrics")
        self._push = push

    def _close(self) -> None:
        # The loop still turns a few times, and what they send through is closed.
        for timer in (self._heartbeat_timer, self._pressure_timer, self._credit_timer):
            if timer is not None:
                timer.cancel()
        for connection in self._connections.values():
            connection.close()
        self.relay.close()
        self.master.close()
        self._doors.close()
        self._push.close(linger=0)
        self._state.close()

    def _send_data(self, identity: bytes, header: bytes, data: bytes) -> bool:
        return self._data.send([identity, header, data])

    # ---- control: tasks and peers -------------------------------------------------------------

    def _on_control(self, identity: bytes, envelope: control.Envelope) -> Any:
        field, body = body_of(envelope)
        if field == "instance_status":
            return self._on_status(identity, body.status)
        if field == "register_instance":
            return self._on_register(identity, body)
        if field == "backpressure":
            if not self.switch.is_peer(identity):
                return None  # of somebody whom the plan does not have yet; it is said again
            self.switch.backpressure.heard(body, time.monotonic())
            self._pressure(False)
            return None
        if field in ("task_checkpoint", "restore_failed"):
            self.relay.report(field, body.task_id, body)
            return None
        raise InvalidRpcError(f"{self.name} does not take {field}")

    def _on_register(self, identity: bytes, message: control.RegisterInstance) -> Any:
        if self.admission.by_plan(message, self.plan):
            return self._admit(identity, message)
        return self._admit_if_packed(identity, message, self.admission.by_packing(message, self._state))

    def _admit(self, identity: bytes, message: control.RegisterInstance) -> Any:
        session = self.sessions.register(identity, message, time.monotonic())
        self._heartbeat_soon()
        if self.plan is None:
            return self._attach_later(session, message)
        return self._attach(session, message)

    async def _admit_if_packed(
        self, identity: bytes, message: control.RegisterInstance, packed: Awaitable[bool]
    ) -> Any:
        reply = self._admit(identity, message) if await packed else None
        return await reply if asyncio.iscoroutine(reply) else reply

    async def _attach_later(
        self, session: Session, message: control.RegisterInstance
    ) -> control.RegisterInstanceReply | None:
        """A task gets no link before there is a plan: its tuples and acks would have nowhere to go."""
        await self._planned.wait()
        if self.sessions.by_task.get(message.task_id) is not session:
            # It registered again in the meantime, or another incarnation did.
            return None
        return self._attach(session, message)

    def _attach(self, session: Session, message: control.RegisterInstance) -> control.RegisterInstanceReply:
        assert self.plan is not None
        spouts = {spout.comp.name for spout in self.plan.topology.spouts}
        task = self.switch.add_task(message.task_id, message.component, message.component in spouts)
        link_epoch = self.next_link_epoch()
        self.switch.attach(task, session.identity, message.epoch, link_epoch)
        log.info("%s registered, pid %d, epoch %d", message.instance_id, message.pid, message.epoch)
        return control.RegisterInstanceReply(stmgr_epoch=self.epoch, link_epoch=link_epoch, plan=self.plan)

    def _on_removed(self, task_id: int) -> None:
        """A task that is not in the plan has left."""
        self.sessions.by_task.pop(task_id, None)
        self._heartbeat_soon()

    def _on_status(self, identity: bytes, status: control.TaskStatus) -> None:
        known, changed = self.sessions.heard(identity, status, time.monotonic())
        if not known:
            # Ask it to register: this process is younger than the task's registration.
            self._control.send(identity, control.RegisterAgain())
        elif changed:
            self._heartbeat_soon()
        elif self.sessions.by_task[status.task_id].moved:
            self._heartbeat_soon(self._follow_up_s())
        if known and self.plan is not None and status.plan_version < self.plan.version:
            self._send_plan(self.sessions.by_task[status.task_id], RESEND_PLAN_S)

    # ---- control: topology master -------------------------------------------------------------

    async def _follow_tmaster(self) -> None:
        await self.master.follow(self._state, self._doors.keys)

    def _registration(self) -> control.RegisterStmgr:
        record = plan_pb2.StmgrRecord(
            id=self.name,
            container=self.container,
            epoch=self.epoch,
            data_endpoint=self._doors.data_endpoint,
            control_endpoint=self._doors.control_endpoint,
            pid=os.getpid(),
            host=settings_for(self.launch, "security").bind_host,
        )
        statuses = [session.status for session in self.sessions.by_task.values()]
        return control.RegisterStmgr(stmgr=record, tasks=statuses)

    def _on_registered(self, reply: control.RegisterStmgrReply | None) -> None:
        if reply is not None and reply.HasField("plan"):
            self.apply_plan(reply.plan)
        self._heartbeat_soon()

    def _on_tmaster(self, envelope: control.Envelope) -> None:
        field, body = body_of(envelope)
        if field == "new_plan":
            self.apply_plan(body.plan)
        elif field in ("checkpoint_complete", "checkpoint_aborted"):
            self.relay.forget(body.checkpoint)
            for session in self.sessions.by_task.values():
                self._control.send(session.identity, body)
        elif field in ("finish_tasks", "hold_ticks", "trigger_checkpoint"):
            order = control.HoldTicks() if field == "hold_ticks" else body
            for task in body.task_ids:
                if field == "finish_tasks":
                    order = control.FinishTask(task_id=task)
                if task in self.sessions.by_task:
                    self._control.send(self.sessions.by_task[task].identity, order)

    # ---- plan ---------------------------------------------------------------------------------

    def apply_plan(self, plan: plan_pb2.PhysicalPlan) -> None:
        """Take a new physical plan; stale ones are ignored. Routes first, then the tasks are told."""
        if self.plan is not None and plan.version <= self.plan.version:
            return
        self.plan = plan
        log.info("physical plan %d: %d tasks in %d containers", plan.version, len(plan.instances), len(plan.stmgrs))
        self.switch.rewind(plan)
        self._take_tasks(plan)
        self._take_peers(plan)
        self._planned.set()
        for session in self.sessions.by_task.values():
            self._send_plan(session)
        self._heartbeat_soon()

    def _send_plan(self, session: Session, pause_s: float = 0.0) -> None:
        """Tell a task the plan, unless it was told a moment ago."""
        now = time.monotonic()
        if self.plan is not None and now >= session.told_at + pause_s:
            session.told_at = now
            self._control.send(session.identity, control.NewPlan(plan=self.plan))

    def _take_tasks(self, plan: plan_pb2.PhysicalPlan) -> None:
        switch = self.switch
        spouts = {spout.comp.name for spout in plan.topology.spouts}
        mine = {i.task_id: i.component for i in plan.instances if i.container == self.container}
        elsewhere = {i.task_id: f"stmgr-{i.container}" for i in plan.instances if i.task_id not in mine}
        switch.take_places(mine, spouts, elsewhere)
        for task_id in switch.absent(self.sessions.by_task, bool(plan.regions)):
            switch.remove_task(task_id)
        high = self.settings.backpressure_high_bytes
        switch.hold_above = NEVER if LogicalPlan.from_topology(plan.topology).cycle() else high

    def _take_peers(self, plan: plan_pb2.PhysicalPlan) -> None:
        records = {record.id: record for record in plan.stmgrs if record.id != self.name}
        for name in [name for name in self._connections if name not in records]:
            self._connections.pop(name).close()
            self.switch.remove_peer(name)
        for name, record in records.items():
            known = self._connections.get(name)
            if known is not None and (known.record.epoch, known.record.data_endpoint) == (
                record.epoch,
                record.data_endpoint,
            ):
                continue
            if known is not None:
                known.close()
                self.switch.backpressure.lost(name)
            self.switch.close_peer(name)
            identity = f"s:{self.name}:{self.epoch}".encode()
            connection = PeerConnection(
                record, identity, self.switch, self.settings, self.next_link_epoch, self._doors.keys
            )
            self._connections[name] = connection
            self.switch.add_peer(name, record.epoch, connection.transmit)
        self._pressure(False)

    # ---- backpressure -------------------------------------------------------------------------

    def _pressure(self, changed: bool) -> None:
        """Announce, clamp and re-arm the timer, as the state of backpressure asks for."""
        pressure, now = self.switch.backpressure, time.monotonic()
        pressure.expire(now)
        if pressure.clamp_changed(now):
            self.switch.clamp_spouts(pressure.clamped)
            self._heartbeat_soon()
        on = pressure.announcement_due(now, changed)
        if on is not None:
            message = control.Backpressure(
                stmgr_id=self.name,
                epoch=self.epoch,
                episode=pressure.episodes_started,
                on=on,
                lease_s=self.settings.backpressure_lease_s,
                culprits=self.culprits(now) if on else (),
            )
            for connection in self._connections.values():
                connection.control.send(message)
            if changed and on:
                self._log_pressure(message, now)
        if self._pressure_timer is not None:
            self._pressure_timer.cancel()
            self._pressure_timer = None
        deadline = pressure.next_deadline()
        if deadline is not None:
            loop = asyncio.get_running_loop()
            self._pressure_timer = loop.call_later(max(0.001, deadline - now), self._pressure, False)

    def _log_pressure(self, message: control.Backpressure, now: float) -> None:
        """Name the culprits, at most every few seconds: a task at its limit starts many short episodes."""
        self._unlogged_episodes += 1
        if now < self._next_pressure_log:
            return
        self._next_pressure_log = now + PRESSURE_LOG_S
        names = ", ".join(c.instance_id or c.peer for c in message.culprits)
        log.info(
            "backpressure: %s had more than %d bytes waiting (%d episodes since the last such line)",
            names,
            self.switch.backpressure.high,
            self._unlogged_episodes,
        )
        self._unlogged_episodes = 0

    def culprits(self, now: float) -> list[control.Culprit]:
        """Who causes the backpressure that this stream manager announces."""
        ids = self._instance_ids()
        components = {i.task_id: i.component for i in self.plan.instances} if self.plan else {}
        return [
            control.Culprit(
                task_id=episode.task,
                component=components.get(episode.task, ""),
                instance_id=ids.get(episode.task, ""),
                stmgr_id=self.name,
                peer=episode.link if episode.link.startswith("stmgr-") else "",
                queued_bytes=episode.queued_bytes,
                since_s=now - episode.since,
            )
            for episode in self.switch.backpressure.local.values()
        ]

    def _instance_ids(self) -> dict[int, str]:
        return {i.task_id: i.instance_id for i in self.plan.instances} if self.plan else {}

    def _settle_credit_later(self) -> None:
        self._credit_timer = asyncio.get_running_loop().call_later(CREDIT_DELAY_S, self.switch.settle_credit)

    # ---- heartbeats and metrics ---------------------------------------------------------------

    def _heartbeat_soon(self, delay_s: float = DEBOUNCE_S, follow_ups: int = FOLLOW_UPS) -> None:
        """Report out of turn, and a few times more: so the end of work is seen in a moment, not in seconds."""
        loop = asyncio.get_running_loop()
        self._follow_ups = max(self._follow_ups, follow_ups)
        if self._heartbeat_timer is not None:
            if self._heartbeat_timer.when() <= loop.time() + delay_s:
                return
            self._heartbeat_timer.cancel()
        self._heartbeat_timer = loop.call_later(delay_s, self._heartbeat)

    def _follow_up_s(self) -> float:
        """Reports of many tasks are large, so they are rarer."""
        return max(FOLLOW_UP_S, FOLLOW_UP_PER_TASK_S * len(self.sessions.by_task))

    def _heartbeat(self) -> None:
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
            self._heartbeat_timer = None
        if self._follow_ups:
            self._follow_ups -= 1
            delay_s = self._follow_up_s()
            self._heartbeat_timer = asyncio.get_running_loop().call_later(delay_s, self._heartbeat)
        if not self.master.registered:
            return
        now, switch = time.monotonic(), self.switch
        queued_bytes, queued_tuples = switch.queued()
        self.master.send(
            control.StmgrHeartbeat(
                stmgr_id=self.name,
                epoch=self.epoch,
                plan_version=self.plan.version if self.plan else 0,
                tasks=[*self.sessions.take_ended(), *map(self._status_of, self.sessions.by_task.values())],
                queued_bytes=queued_bytes,
                queued_tuples=queued_tuples,
                in_flight_tuples=switch.in_flight(),
                culprits=self.culprits(now),
                discarded_tuples=sum(switch.discarded.values()),
                lost_tuples=switch.lost_tuples,
                mesh_ready=all(peer.link.granted_bytes for peer in switch.peers.values()),
                clamped=switch.backpressure.clamped,
                unacked_roots=sum(acker.live_roots for acker in switch.ackers.values()),
            )
        )

    def _status_of(self, session: Session) -> control.TaskStatus:
        """What a task said last; what waits here for it is part of its queue."""
        task = self.switch.tasks.get(session.status.task_id)
        waiting = task.link.queued_bytes if task is not None else 0
        if waiting <= session.status.in_queue_bytes:
            return session.status
        status = control.TaskStatus()
        status.CopyFrom(session.status)
        status.in_queue_bytes = waiting
        return status

    async def _housekeeping(self) -> None:
        while True:
            await asyncio.sleep(self.settings.heartbeat_interval_s)
            for task in self.sessions.expire(time.monotonic()):
                known = self.switch.tasks.get(task)
                if known is not None and not known.in_plan:
                    self.switch.remove_task(task)
                else:
                    log.warning("task %d is silent; its tuples wait for it or its successor", task)
            for name in self.switch.probe_peers():
                log.warning("%s does not reply; the link is opened anew", name)
                self._connections[name].renew()
            self._heartbeat()

    async def _export(self) -> None:
        while True:
            await asyncio.sleep(self._metrics_s)
            message = metrics.report(
                self.switch, self.sessions, self.name, self.container, self.epoch, self._instance_ids()
            )
            refused = {
                "__stmgr_refused_connections": self._doors.refused,
                "__stmgr_refused_tasks": self.admission.refused,
                "__stmgr_refused_links": self.switch.early.refused,
            }
            for name, value in refused.items():
                message.samples.add(name=name, type=control.Sample.COUNTER, value=value)
            try:
                self._push.send(seal(wrap(message)), zmq.DONTWAIT)
            except zmq.Again:
                self.discarded_reports += 1


def run(launch: Any, container: int, epoch: int) -> int:
    """Run one stream manager on uvloop; returns the exit code."""
    import uvloop

    async def main() -> int:
        return await Stmgr(launch, container, epoch).run()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except HeronError as error:
        log.error("%s", error)
        return exit_codes.UNAVAILABLE if isinstance(error, RetryableError) else exit_codes.FAILURE
