"""Verbs that users send to the topology master while faults come: scale, save, rewind, pause.

Requests enter where those of a command do, as an envelope of an unknown peer. Whoever asks may hear nothing,
as the topology master may die in the middle; a refusal is an answer like any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from heronpy.api.api_constants import TOPOLOGY_COMPONENT_PARALLELISM, TOPOLOGY_STMGRS
from heronpy.ckpt import catalogue
from heronpy.common.errors import HeronError
from heronpy.common.setting_types import CheckpointSettings, PackingSettings
from heronpy.common.settings import settings_for
from heronpy.packing import repack
from heronpy.plan.component_config import set_key
from heronpy.proto import checkpoint_pb2, components_of, control_pb2, plan_pb2, topology_pb2
from heronpy.statemgr import paths
from tests.sim.auditor import Auditor
from tests.sim.cluster import TOPOLOGY, Cluster
from tests.sim.kernel import START_S, Process
from tests.sim.workload import EFFECTIVELY

#: How long a pause of the topology lasts at most, and how often the end of it is asked for.
PAUSE_S, AGAIN_S = 5.0, 1.0


class Verbs:
    """The requests of one run."""

    def __init__(self, cluster: Cluster, auditor: Auditor, rng: random.Random) -> None:
        self.cluster = cluster
        self.auditor = auditor
        self.rng = rng
        #: How often the topology was paused, and up to which pause its end was heard of.
        self._pauses = self._ended = 0

    def plan(self, until: float) -> None:
        """Draw verbs and their times; in most runs there are none."""
        rng = self.rng
        if rng.random() > 0.4:
            return
        kinds = [self.update, self.update, self._pause]
        if self.cluster.shape.mode == EFFECTIVELY:
            kinds += [self._save, self._rewind]
        for _ in range(rng.choice((1, 2, 4, 8))):
            self.cluster.world.at(rng.uniform(START_S + 0.3, until), None, rng.choice(kinds))

    # ---- requests -----------------------------------------------------------------------------

    def update(self, drain_timeout_s: float = 0.0) -> None:
        """Another number of tasks of a component, of containers, or both; 0: a drain time that is drawn."""
        rng = self.rng
        component, count = rng.choice(("relay", "count", "count", "sink")), rng.randint(1, 3)
        self.scale(component, count, rng.choice((None, None, 1, 2, 3)), drain_timeout_s)

    def scale(self, component: str, count: int, containers: int | None = None, drain_timeout_s: float = 0.0) -> None:
        """Ask for that number of tasks of a component, and of containers."""
        store, rng = self.cluster.state.store, self.rng
        topology = topology_pb2.Topology.FromString(store.nodes[paths.topology(TOPOLOGY)].data)
        old = plan_pb2.PackingPlan.FromString(store.nodes[paths.packing_plan(TOPOLOGY)].data)
        set_key(components_of(topology)[component].comp.config, TOPOLOGY_COMPONENT_PARALLELISM, str(count))
        if containers is not None:
            set_key(topology.topology_config, TOPOLOGY_STMGRS, str(containers))
        try:
            new = repack(old, topology, settings_for(self.cluster.launch, PackingSettings), containers)
        except HeronError as error:
            self.cluster.world.trace.note("verb", f"{component} {count} in {containers}: {error}")
            return
        self._ask(
            control_pb2.UpdateTopology(
                topology=topology,
                packing_plan=new,
                expected_version=old.version,
                drain_timeout_s=drain_timeout_s or rng.choice((0.2, 3.0)),
            ),
            f"{component} {count} in {containers}",
        )

    def _save(self) -> None:
        self._ask(control_pb2.TakeCheckpoint(savepoint=self.rng.random() < 0.7), "")

    def _rewind(self) -> None:
        """Restore the newest checkpoint or an earlier one: output that was published since is taken back."""
        known = sorted(self.cluster.outside.complete)[-3:]
        number = self.rng.choice([0, *known])
        if number and not self._fits(number):
            return
        if number:
            self.cluster.outside.rewound.add(number)
        self._ask(control_pb2.RestoreCheckpoint(checkpoint=number), str(number))

    def _fits(self, number: int) -> bool:
        """What `heron checkpoints restore` looks at first."""
        nodes = self.cluster.state.store.nodes
        packing = plan_pb2.PackingPlan.FromString(nodes[paths.packing_plan(TOPOLOGY)].data)
        groups = settings_for(self.cluster.launch, CheckpointSettings).key_groups
        log = checkpoint_pb2.CheckpointLog.FromString(nodes[paths.checkpoints(TOPOLOGY)].data)
        records = [record for record in log.complete if record.checkpoint == number]
        return not any(catalogue.misfits(record.location, packing, groups) for record in records)

    def _pause(self) -> None:
        self._pauses += 1
        self._ask(control_pb2.SetState(active=False), "inactive")
        self.cluster.world.later(self.rng.uniform(0.1, PAUSE_S), self._resume, self._pauses)

    def _resume(self, pause: int) -> None:
        """Ask until it was heard; a pause that began meanwhile has an end of its own."""

        def heard(answer: Message) -> None:
            self._ended = max(self._ended, pause)

        if self._ended < pause:
            self._ask(control_pb2.SetState(active=True), "active", heard)
            self.cluster.world.later(AGAIN_S, self._resume, pause)

    # ---- asking -------------------------------------------------------------------------------

    def _ask(self, body: Message, text: str, then: Callable[[Message], None] = lambda answer: None) -> None:
        field = next(f.name for f in control_pb2.Envelope.DESCRIPTOR.fields if f.message_type is body.DESCRIPTOR)
        world = self.cluster.world
        masters = [p for p in self.cluster.masters() if getattr(p.program, "machine", None) is not None]
        self.auditor.stats[f"verb_{field}"] += 1
        if not masters:
            world.trace.note("verb", f"{field} {text}: nobody to ask")
            return
        master = max(masters, key=lambda process: process.program.epoch)
        envelope = control_pb2.Envelope(**{field: body})
        world.trace.note("verb", f"{field} {text}: {master}")
        with world.acting(master):
            master.loop.call_soon(self._deliver, master, field, envelope, then)

    def _deliver(
        self, master: Process, field: str, envelope: control_pb2.Envelope, then: Callable[[Message], None]
    ) -> None:
        try:
            answer: Any = master.program._on_request(b"somebody", envelope)
        except HeronError as error:
            self._refused(field, error)
            return
        if isinstance(answer, Message):
            self._answered(field, answer, then)
            return

        def done(future: Any) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is not None:
                self._refused(field, error)
            elif future.result() is not None:
                self._answered(field, future.result(), then)

        answer.add_done_callback(done)

    def _refused(self, field: str, error: BaseException) -> None:
        self.auditor.stats[f"refused_{field}"] += 1
        self.cluster.world.trace.note("refused", f"{field}: {error}")

    def _answered(self, field: str, answer: Message, then: Callable[[Message], None]) -> None:
        self.auditor.stats[f"done_{field}"] += 1
        self.cluster.world.trace.note("done", field)
        then(answer)
