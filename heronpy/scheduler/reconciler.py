"""The scheduler for containers on an engine's hosts: the shell of `placement`.

It lists containers, receives requests at its endpoint, decides, and carries out the decisions. The permit in the state
manager ensures that only one scheduler per topology acts. The engine, the state manager and the package are accessed in
threads, so the endpoint always answers. When a scheduler ends, its containers keep running, and its successor adopts
them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Awaitable, Sequence
from contextlib import ExitStack

from google.protobuf.message import Message

from heronpy.common import exit_codes
from heronpy.common.clock import boot_s
from heronpy.common.errors import FencedError, HeronError, RpcError
from heronpy.common.setting_types import LoggingSettings, TmasterSettings
from heronpy.common.settings import settings_for
from heronpy.engines.contract import traits_of
from heronpy.net import curve
from heronpy.net.access import forget_endpoint
from heronpy.net.private import make_private
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.net.state import open_state_of
from heronpy.plan.component_config import reliability_mode
from heronpy.plan.launch import LaunchSpec
from heronpy.procs.child_log import OwnLog
from heronpy.procs.plan_watch import PlanWatch
from heronpy.proto import control_pb2, plan_pb2
from heronpy.scheduler.admission import Admission
from heronpy.scheduler.containers import container_specs, record_of
from heronpy.scheduler.control_endpoint import ControlEndpoint, forget_port
from heronpy.scheduler.engine_client import EngineClient
from heronpy.scheduler.guardian import START_OVER, Pulse, refused
from heronpy.scheduler.leases import Permit
from heronpy.scheduler.ledger import LedgerStore
from heronpy.scheduler.moving import Moves, who
from heronpy.scheduler.outbox import Outbox
from heronpy.scheduler.placement import TICK_S, Placement
from heronpy.scheduler.placement_events import (
    AllGone,
    Effect,
    Event,
    HostLifted,
    KillAsked,
    Phase,
    PlanChanged,
    Tick,
)
from heronpy.scheduler.reconciler_setup import (
    Setup,
    masters_of,
    open_endpoint,
    read_topology,
    relay_of,
    set_up,
    sizes_of,
    state_endpoint_of,
    tell_clients,
)
from heronpy.scheduler.state_rules import ContainerRules, PoolRules
from heronpy.scheduler.teardown import remove_sockets, remove_state
from heronpy.statemgr import paths

log = logging.getLogger("heronpy.scheduler")

#: If a request sets no time limit, a restart or a drain may take this time in addition to the time to leave.
RESTART_MAX_S = 30.0
#: Time to send the reply before the socket is closed.
REPLY_LINGER_S = 0.03
#: A relayed reply gets more time, because a port-forward may lose data sent just before a connection ends.
RELAYED_LINGER_S = 1.0
#: The sender of a relayed request. Any other request has the name of its connection as its sender.
RELAYED = b"relay"
LAST_ANSWERS_MS = 500
LOG_CHECK_S = 30.0
PROVE_S = 5.0
#: Deadline of a call to the engine. It exceeds the engine's own deadline for a command, because one call may need
#: several commands.
ENGINE_DEADLINE_S = 30.0
STATE_TICK_S = 0.5


class EngineScheduler:
    """The scheduler of one topology on an engine; `await run()` returns the exit code."""

    def __init__(self, launch: LaunchSpec, pulse: Pulse) -> None:
        self._launch = launch
        self._pulse = pulse
        logging_settings = settings_for(launch, LoggingSettings)
        self._own_log = OwnLog(
            str(launch.log_dir / "scheduler.log"), logging_settings.file_max_bytes, logging_settings.files_max
        )
        self._exit_code: int = exit_codes.OK
        #: Open resources, closed in reverse order.
        self._opened = ExitStack()
        self._placement: Placement | None = None
        self._permit: Permit | None = None
        self._acts_since: dict[int, tuple[int, float]] = {}
        self._looks = False
        #: Removes the topology, after all containers are gone or a user confirms that they are.
        self._removal: asyncio.Task[None] | None = None
        #: Whether the topology's state is being removed, including this scheduler's permit.
        self._removing = False
        #: Version of the packing plan that the containers follow.
        self._plan_version = 0

    # ---- life -------------------------------------------------------------------------------
    async def run(self) -> int:
        """Keep the topology's containers running until they are killed or this process is asked to end."""
        loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._changed = asyncio.Event()
        #: Set when the topology was killed and none of its containers is left.
        self._gone = asyncio.Event()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self.end)
        try:
            await self._open()
        except HeronError as error:
            self._opened.close()
            return refused(self._launch.topology, error)
        tasks = [
            asyncio.create_task(self._watched(work))
            for work in (
                self._outbox.run(),
                self._client.run(),
                self._tick(),
                self._prove(),
                self._check_log(),
                *self._works(),
            )
        ]
        await self._end.wait()
        self._pulse.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._opened.close()
        return self._exit_code

    def _works(self) -> Sequence[Awaitable[None]]:
        """Additional tasks that run while this scheduler acts."""
        return ()

    async def _watched(self, work: Awaitable[None]) -> None:
        """Run a permanent task; if a bug ends the task, this process also ends, and the guardian restarts it."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("the scheduler failed because of a bug and is being restarted; its containers keep running")
            self._exit_code = START_OVER
            self._end.set()

    async def _open(self) -> None:
        launch = self._launch
        make_private(launch.sockets_dir)
        self._state = open_state_of(launch)
        self._opened.callback(self._state.close)
        self._topology = read_topology(self._state, launch.topology)
        self._setup = set_up(launch, reliability_mode(self._topology))
        await self._open_with(self._setup)

    def _rules(self) -> ContainerRules | PoolRules:
        """The access rights of containers to the state."""
        return ContainerRules(self._launch.topology)

    async def _open_with(self, setup: Setup) -> None:
        launch = self._launch
        self._now = boot_s
        if self._state.exists(paths.scheduler(launch.topology)):
            # Before the endpoint is bound at the port on which the other scheduler listens.
            raise FencedError(
                f"another scheduler is running topology {launch.topology!r}; kill the topology before starting it again"
            )
        #: The admitted containers; made when `run` begins.
        self.admission = Admission(setup.terms, self._handle, self._now)
        self.admission.start()
        self._state_rules = self._rules()
        self._state_endpoint = state_endpoint_of(launch, self._state, self._state_rules)
        if self._state_endpoint is not None:
            self._opened.callback(self._state_endpoint.close)
        #: The endpoint for containers; made when `run` begins.
        self.endpoint: ControlEndpoint = await open_endpoint(launch, setup, self.admission, self._state_endpoint)
        self._opened.callback(self.endpoint.close, LAST_ANSWERS_MS)
        endpoint = f"ipc://{launch.sockets_dir}/scheduler"
        location = plan_pb2.SchedulerLocation(
            topology=launch.topology,
            endpoint=endpoint,
            pid=os.getpid(),
            host=socket.gethostname(),
            permit=secrets.token_hex(16),
            control_endpoints=setup.told_at(self.endpoint.listens_at),
            endpoint_key=setup.terms.endpoint_keys.keys.server.public,
        )
        self._store = LedgerStore(self._state, location, self._now)
        asked_at = self._now()
        ledger, alone, killing, hosts = self._store.take()
        self._permit = Permit(setup.terms.times, asked_at, alone)
        self._placement = Placement(
            launch.topology_id,
            setup.limits,
            setup.terms.times,
            setup.terms.fencing,
            self._now(),
            ledger,
            alone,
            hosts,
        )
        placement = self._placement
        self._moves = Moves(
            self._handle,
            placement.views,
            self._changed,
            setup.limits.leave_s + RESTART_MAX_S,
            lambda: placement.away_why,
        )
        self._moves.resume(placement.draining, lambda: placement.has_listed)
        self.admission.known = self._placement.submissions_of
        self.admission.entry_of = self._placement.entry_of
        self.admission.stopped = self._placement.has_stopped
        self._client = EngineClient(
            setup.engine,
            setup.settings.poll_s,
            setup.token_for(self.endpoint.listens_at),
            self._now,
            self._handle,
            self._prove_once,
            ENGINE_DEADLINE_S,
        )
        self._opened.callback(self._client.close)
        self._outbox = Outbox(
            self._store, self._client, self.admission.answer, self._on_all_gone, self._prove_once, self._on_lost
        )
        if killing:
            log.info("the topology was killed; its remaining containers are being stopped")
            self._handle(KillAsked(setup.terms.times.stop_grace_s))
        self._plan_watch = PlanWatch(self._state, paths.packing_plan(launch.topology), self._on_plan)
        self._opened.callback(self._plan_watch.close)
        self._plan_watch.start()
        self.admission.permit = self._permit
        self._opened.callback(ControlServer([endpoint], self._on_request).close, LAST_ANSWERS_MS)
        self.endpoint.relay = relay_of(setup, self._state, lambda envelope: self._on_request(RELAYED, envelope))
        self._opened.callback(self.endpoint.relay.close)
        tell_clients(setup, self.endpoint.listens_at)
        log.info(
            "the scheduler of %s is process %d; its control endpoint is at %s",
            launch.topology, os.getpid(), ", ".join(self.endpoint.listens_at),
        )  # fmt: skip

    def end(self) -> None:
        """End the scheduler in the same way as a signal does."""
        stays = self._placement is None or traits_of(self._setup.engine).outlives_scheduler
        fate = "keep running" if stays else "end with it"
        log.info("the scheduler was asked to end; the topology's containers %s", fate)
        self._end.set()

    def _on_lost(self, error: FencedError) -> None:
        if self._removing:
            return
        log.error("%s; this scheduler ends, and its containers keep running", error)
        self._exit_code = exit_codes.FENCED
        self._end.set()

    # ---- loops ---------------------------------------------------------------------------------
    async def _tick(self) -> None:
        ticked_at = 0.0
        while True:
            self._pulse.beat()
            now = self._now()
            if self._state_endpoint is not None:
                self._state_endpoint.tick(now)
            if now - ticked_at >= TICK_S:
                ticked_at = now
                self._handle(Tick())
            await asyncio.sleep(min(STATE_TICK_S, TICK_S))

    async def _prove(self) -> None:
        while True:
            try:
                await self._prove_once()
                if self._permit is not None and self._permit.is_alone(self._now()):
                    await asyncio.to_thread(self._store.become_alone)
            except FencedError as error:
                self._on_lost(error)
            except (HeronError, OSError) as error:
                log.debug("the scheduler's permit cannot be verified: %s", error)
            await asyncio.sleep(PROVE_S)

    async def _prove_once(self) -> None:
        asked_at = self._now()
        await asyncio.to_thread(self._store.prove)
        if self._permit is not None:
            self._permit.proved(asked_at)

    async def _check_log(self) -> None:
        while True:
            await asyncio.sleep(LOG_CHECK_S)
            self._own_log.rotate_if_large()
            await self.admission.tell_lost()

    # ---- events -----------------------------------------------------------------------------
    def _handle(self, event: Event) -> list[Effect]:
        if self._placement is None:
            return []
        effects = self._placement.handle(event, self._now())
        self._outbox.put(effects)
        self._changed.set()
        if not self._looks:
            # All requests of one turn of the event loop share one check, because each container sends renewals.
            self._looks = True
            asyncio.get_running_loop().call_soon(self._look)
        return effects

    def _look(self) -> None:
        self._looks = False
        assert self._placement is not None
        for view in self._placement.views():
            if view.phase is Phase.RUNNING and self._acts_since.get(view.container, (0, 0.0))[0] != view.epoch:
                self._acts_since[view.container] = view.epoch, time.time()

    def _on_plan(self, plan: plan_pb2.PackingPlan) -> None:
        # Without a plan nothing is placed, and no running container is ended.
        self._plan_version = plan.version
        self._state_rules.masters = masters_of(self._launch, plan)
        requests = sizes_of(self._launch, plan, self._topology)
        standbys = settings_for(self._launch, TmasterSettings).standbys
        self._handle(PlanChanged(container_specs(requests, standbys)))

    def _on_all_gone(self, _: AllGone) -> None:
        log.info("no container of the topology is left")
        self._gone.set()

    # ---- commands ---------------------------------------------------------------------------
    def _on_request(self, who: bytes, envelope: control_pb2.Envelope) -> Message | Awaitable[Message]:
        field, body = body_of(envelope)
        if field == "get_containers":
            return self._containers_reply()
        if field == "kill_topology":
            return self._answer_kill(body, RELAYED_LINGER_S if who == RELAYED else REPLY_LINGER_S)
        if field in ("restart_container", "drain_host") and self._acting().is_killed:
            raise RpcError(f"topology {self._launch.topology!r} was killed, and its containers are still ending")
        if field == "restart_container":
            if body.standing_by:
                return self._answer_renew(body.container, body.plan_version, body.wait_s, body.by)
            return self._answer_restart(body.container, body.force, body.wait_s, body.by)
        if field == "drain_host" and body.lift:
            return self._answer_lift(body.host, body.by)
        if field == "drain_host":
            return self._answer_drain(body.host, body.wait_s, body.by)
        raise RpcError(f"the scheduler does not support the request {field!r}")

    def _containers_reply(self) -> control_pb2.ContainersReply:
        placement = self._acting()
        away = ""
        if placement.away_since is not None:
            away = f"for {self._now() - placement.away_since:.0f} s: {placement.away_why}"
        records = [
            record_of(
                view,
                self._client.explained,
                self.admission.start_of(view.container, view.submission),
                self._acts_since.get(view.container, (0, 0.0))[1] if view.phase is Phase.RUNNING else 0.0,
                self.admission.final_message_of(view.container),
            )
            for view in placement.views()
        ]
        return control_pb2.ContainersReply(
            containers=records, engine_away=away, killing=placement.is_killed, refused=self._refusals(),
            avoided=[
                control_pb2.AvoidedHost(
                    host=one.host, why=one.why, left_s=max(0.0, one.until - self._now()), draining=one.draining
                )
                for one in placement.avoided(self._now())
            ],
        )  # fmt: skip

    def _refusals(self) -> control_pb2.EndpointRefusals:
        endpoint, admission = self.endpoint, self.admission
        relay = endpoint.relay
        return control_pb2.EndpointRefusals(
            strangers=endpoint.strangers,
            garbage=endpoint.garbage,
            unknown=endpoint.unknown,
            impostors=admission.impostors,
            replaced=endpoint.replaced,
            releases=admission.releases,
            oversized=endpoint.oversized + (relay.oversized if relay is not None else 0),
            busy=endpoint.busy + admission.busy + (relay.busy if relay is not None else 0),
            not_theirs=endpoint.not_theirs + (relay.forbidden if relay is not None else 0),
        )

    def _acting(self) -> Placement:
        assert self._placement is not None, "requests are accepted once there is a placement"
        return self._placement

    async def _answer_kill(self, asked: control_pb2.KillTopology, linger_s: float) -> Message:
        """End all containers and remove the topology. If containers remain after `wait_s`, report them and continue.

        The name stays taken until a request finds no remaining containers, because only the sender of this request is
        told that the name is free.
        """
        placement = self._acting()
        if not placement.is_killed:
            log.info("the topology is being killed")
            self._handle(KillAsked(asked.grace_s or self._setup.terms.times.stop_grace_s))
        if not asked.force and self._removal is None:
            try:
                async with asyncio.timeout(asked.wait_s or None):
                    await self._gone.wait()
            except TimeoutError:
                return control_pb2.KillUnderWay(left=placement.left(), engine_away=placement.away_why)
        if self._removal is None or (self._removal.done() and self._removal.exception() is not None):
            for one in placement.left():
                log.warning("the end of %s is not confirmed; a user is removing the topology anyway", one)
            self._removal = asyncio.create_task(self._remove())
        await asyncio.shield(self._removal)
        asyncio.get_running_loop().call_later(linger_s, self._end.set)
        return control_pb2.Ok(text=f"killed topology {self._launch.topology}")

    async def _remove(self) -> None:
        """Remove the state, keys and files of a topology that has no containers left."""
        launch = self._launch
        self._removing = True
        self._plan_watch.close()
        if self._state_endpoint is not None:
            self._state_endpoint.close()
        # The keys are removed before the name is free, because the next topology of this name has its keys there.
        curve.remove(launch.working_dir)
        await asyncio.to_thread(self.admission.remove)
        forget_port(launch.working_dir)
        forget_endpoint(launch.submitted.cluster, launch.topology, launch.topology_id)
        await self.admission.tell_lost(all_left=True)
        await asyncio.to_thread(remove_state, self._state, launch.topology)
        remove_sockets(launch.sockets_dir)

    async def _answer_restart(self, container: int, force: bool, wait_s: float, by: str) -> control_pb2.Ok:
        known = [view.container for view in self._acting().views()]
        if container >= 0 and container not in known:
            raise RpcError(
                f"topology {self._launch.topology!r} has no container {container};"
                f" its containers are {', '.join(map(str, known))}"
            )
        names = await self._moves.restart(known if container < 0 else [container], force, wait_s, by)
        return control_pb2.Ok(text=f"restarted {', '.join(names)}")

    async def _answer_renew(self, container: int, plan_version: int, wait_s: float, by: str) -> control_pb2.Ok:
        self._acting()
        await self._moves.renew(container, lambda: self._plan_version >= plan_version, wait_s, by)
        return control_pb2.Ok(text=f"container {container} now has the size that packing plan {plan_version} specifies")

    def _answer_lift(self, host: str, by: str) -> control_pb2.Ok:
        placement = self._acting()
        if host in placement.draining:
            raise RpcError(f"host {host} is being drained; allow containers on it again after the drain")
        if not self._handle(HostLifted(host, who(by))):
            return control_pb2.Ok(text=f"host {host} was not avoided")
        return control_pb2.Ok(text=f"host {host} may get containers again")

    async def _answer_drain(self, host: str, wait_s: float, by: str) -> control_pb2.Ok:
        if not host:
            raise RpcError("name the host to drain, as heron status shows it")
        if not traits_of(self._setup.engine).avoids_hosts:
            raise RpcError(
                f"the engine {self._launch.submitted.engine} cannot keep containers away from a host; to have them"
                " replaced elsewhere, remove the host from its cluster"
            )
        moved = await self._moves.drain(host, wait_s, by)
        what = (
            f"moved {', '.join(f'container {number}' for number in moved)}" if moved else "the host had no containers"
        )
        return control_pb2.Ok(text=f"host {host} gets no containers for {self._setup.settings.avoid_s:g} s; {what}")
