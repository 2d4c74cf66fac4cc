"""What must hold in every run, whatever fails: safety at each step, completeness at the end.

* Of two topology masters only the newer one writes; versions, attempts and numbers of checkpoints only grow.
* Every complete checkpoint is a consistent cut: what its keyed state has counted, and what was under way,
  are exactly the records that its sources had emitted (EFFECTIVELY_ONCE).
* Output is committed once, and only of checkpoints that are recorded (workload.Outside).
* At least once: what is acked was delivered. At most once: nothing is delivered more often than emitted.
* Queues keep their byte limits, and credit is conserved on every link.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from heronpy.ckpt.snapshot import TaskState
from heronpy.common.errors import HeronError
from heronpy.common.setting_types import CheckpointSettings, InstanceSettings, StmgrSettings
from heronpy.common.settings import settings_for
from heronpy.proto import checkpoint_pb2, plan_pb2
from heronpy.statemgr import paths
from heronpy.storage.locations import open_location
from heronpy.storage.stores import Stores
from heronpy.wire.codec import decoder
from heronpy.wire.frames import Frame
from tests.sim.cluster import TOPOLOGY, Cluster
from tests.sim.kernel import Process
from tests.sim.workload import AT_LEAST, EFFECTIVELY, FIELDS, Record, key_of, mark_of

#: Between two looks at all queues.
LOOK_S = 0.05
#: Most bytes that a tuple takes in a frame in addition to its padding, and a frame in addition to its tuples.
TUPLE_BYTES, ENVELOPE_BYTES = 80, 4096


class Auditor:
    """Looks at one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.shape = cluster.shape
        self.rng = cluster.world.chance("auditor")
        cluster.state.on_write.append(self._on_write)
        self._writer = 0
        #: How often tasks went back to a checkpoint.
        self.rewinds = 0
        self._plan = plan_pb2.PhysicalPlan()
        self._log = checkpoint_pb2.CheckpointLog()
        self._checkpoint = settings_for(cluster.launch, CheckpointSettings)
        self._instance = settings_for(cluster.launch, InstanceSettings)
        self._stmgr = settings_for(cluster.launch, StmgrSettings)
        tuples = min(self._instance.batch_tuples, 2 * self.shape.records)
        #: A frame is not divided, and may go over each limit once.
        self._frame = tuples * (self.shape.pad + TUPLE_BYTES) + ENVELOPE_BYTES
        self.stats: Counter[str] = Counter()
        self._decode = decoder()
        self.world.later(LOOK_S, self._look)

    # ---- writes to the state manager ----------------------------------------------------------

    def _on_write(self, process: Process, path: str) -> None:
        kind = path.partition("/")[0]
        if kind not in ("pplans", "checkpoints", "updates", "packingplans"):
            return
        epoch = process.program.epoch
        if epoch < self._writer:
            self.world.wrong(f"topology master {epoch} wrote {path} after {self._writer} had written")
        self._writer = max(self._writer, epoch)
        node = self.cluster.state.store.nodes.get(path)
        if node is None or not node.data:
            return
        if path == paths.physical_plan(TOPOLOGY):
            self._on_plan(plan_pb2.PhysicalPlan.FromString(node.data))
        elif path == paths.checkpoints(TOPOLOGY):
            self._on_log(checkpoint_pb2.CheckpointLog.FromString(node.data))

    def _on_plan(self, plan: plan_pb2.PhysicalPlan) -> None:
        before, self._plan = self._plan, plan
        if plan == before:
            return  # a successor gives every node a new version, so that its predecessor cannot write it
        if plan.version <= before.version:
            self.world.wrong(f"plan {plan.version} came after plan {before.version}")
        for region in plan.regions:
            for old in before.regions:
                if set(old.components) == set(region.components) and region.attempt < old.attempt:
                    self.world.wrong(f"attempt {region.attempt} came after attempt {old.attempt}")
        self.stats["plans"] += 1
        self.rewinds = max((region.attempt - 1 for region in plan.regions), default=0)

    def _on_log(self, log: checkpoint_pb2.CheckpointLog) -> None:
        before, self._log = self._log, log
        if log.next_checkpoint < before.next_checkpoint or log.next_attempt < before.next_attempt:
            self.world.wrong("the numbers of checkpoints or attempts fell")
        known = self.cluster.outside.complete
        for record in log.complete:
            if record.checkpoint in known:
                continue
            if known and record.checkpoint < max(known):
                self.world.wrong(f"checkpoint {record.checkpoint} completed after {max(known)}")
            known.add(record.checkpoint)
            self.stats["checkpoints"] += 1
            self.world.trace.note("complete", f"checkpoint {record.checkpoint}")
            if len(known) <= 3 or self.rng.random() < 0.4:
                self.audit(record)

    # ---- checkpoints --------------------------------------------------------------------------

    def audit(self, record: checkpoint_pb2.CheckpointRecord) -> dict[int, int]:
        """Whether a complete checkpoint is a consistent cut; returns the positions of its sources."""
        try:
            return self._audit(record)
        except HeronError as error:
            if not self.cluster.disk.damaged:
                self.world.wrong(f"complete checkpoint {record.checkpoint} cannot be read: {error}")
            return {}

    def _audit(self, record: checkpoint_pb2.CheckpointRecord) -> dict[int, int]:
        store, metadata = open_location(record.location)
        self.stats["audits"] += 1
        positions: dict[int, int] = {}
        counted: Counter[str] = Counter()
        marks: Counter[str] = Counter()
        channels: dict[str, list[tuple[str, Record]]] = {"relay": [], "count": [], "sink": []}
        seen = seen_marks = 0
        for task in metadata.tasks:
            state = TaskState(
                task.component,
                task.component_index,
                metadata.parallelism[task.component],
                self._checkpoint,
                Stores(store),
                task_id=task.task_id,
            )
            frames = state.restore(record.location, 1)
            for frame in frames:
                channels[task.component] += self._records_of(frame)
            if task.component == "source":
                positions[task.component_index] = state.plain.get("next", 0)
            elif task.component == "count":
                for key, (count, total) in state.keyed("totals").items():
                    counted[key] += count
                    marks[key] += total
            elif task.component == "sink":
                count, total = state.plain.get("seen", (0, 0))
                seen, seen_marks = seen + count, seen_marks + total
        self._compare(record.checkpoint, positions, counted, marks, channels, (seen, seen_marks))
        return positions

    def _compare(
        self,
        checkpoint: int,
        positions: dict[int, int],
        counted: Counter[str],
        marks: Counter[str],
        channels: dict[str, list[tuple[str, Record]]],
        seen: tuple[int, int],
    ) -> None:
        where = f"checkpoint {checkpoint} (sources at {positions})"
        passed = sum(counted.values()), sum(marks.values())
        under_way = [record for _, record in channels["sink"]]
        arrived = seen[0] + len(under_way), seen[1] + sum(map(mark_of, under_way))
        if passed != arrived:
            self.world.wrong(f"{where}: count has passed {passed} on, and {arrived} are at or before the sinks")
        for key, (source, seq, _) in channels["relay"]:
            # The relay will mark it as its own.
            counted[key] += 1
            marks[key] += mark_of((source, seq, 0))
        for key, record in channels["count"]:
            counted[key] += 1
            marks[key] += mark_of(record)
        expected: Counter[str] = Counter()
        expected_marks: Counter[str] = Counter()
        for source, seq, via in self.shape.expected(positions):
            key = key_of(source, seq, self.shape.keys)
            expected[key] += 1
            expected_marks[key] += mark_of((source, seq, via))
        if counted != expected or marks != expected_marks:
            wrong = sorted(k for k in expected | counted if counted[k] != expected[k] or marks[k] != expected_marks[k])
            shown = [(k, counted[k], expected[k]) for k in wrong[:4]]
            self.world.wrong(f"{where} is no consistent cut; (key, is, should be): {shown}")

    def _records_of(self, data: bytes) -> list[tuple[str, Record]]:
        frame = Frame.FromString(data)
        flat = self._decode(frame.payload, frame.codec)
        width = len(FIELDS)
        rows = [flat[i : i + width] for i in range(0, len(flat), width)][frame.skip :]
        return [(key, (source, seq, via)) for key, source, seq, via, _ in rows]

    # ---- looks --------------------------------------------------------------------------------

    def _look(self) -> None:
        self.world.later(LOOK_S, self._look)
        self.stats["looks"] += 1
        for process in self.cluster.processes():
            program = process.program
            if program is None:
                continue
            role = process.role  # type: ignore[attr-defined]
            try:
                if role == "stmgr":
                    self._look_at_switch(program.switch)
                elif role == "instance":
                    self._look_at_task(program)
                elif getattr(program, "machine", None) is not None:
                    program.machine.validate()
            except AssertionError as error:
                self.world.wrong(f"{process.name}: {error}")
        for container in self.cluster.containers:
            if container.supervisor is not None:
                container.supervisor.validate()
                for view in container.supervisor.views():
                    if view.state.value == "failed":
                        self.world.wrong(f"{view.spec.name} failed for good: {view.exit_reason} {view.exit_detail}")

    def _look_at_switch(self, switch: Any) -> None:
        links = [t.link for t in switch.tasks.values()] + [p.link for p in switch.peers.values()]
        senders = len(switch.sources) + 1
        window = max(self._stmgr.link_window_bytes, self._stmgr.instance_out_window_bytes) + self._frame
        for link in links:
            waiting = link.waiting()
            queued = sum(len(w.data) for w in waiting)
            assert link.queued_bytes == queued, f"{link.name} counts {link.queued_bytes} of {queued} bytes"
            assert link.queued_tuples == sum(w.tuples for w in waiting), f"{link.name} miscounts queued tuples"
            retained = sum(w.tuples for w in link.retained)
            assert link.in_flight() == retained, f"{link.name} has {link.in_flight()} of {retained} tuples in flight"
            over = link.sent_bytes - link.granted_bytes
            assert over <= self._frame or not link.open, f"{link.name} has sent {over} bytes beyond its credit"
            limit = self._stmgr.backpressure_high_bytes + 3 * senders * window
            assert queued <= limit, f"{link.name} holds {queued} bytes, above {limit}"
            self.stats["most_queued"] = max(self.stats["most_queued"], queued)
        for source in switch.sources.values():
            assert source.absorbed_bytes <= source.received_bytes, f"{source.name} absorbed more than came"
            assert source.granted <= source.absorbed_bytes + source.window_max, f"{source.name} grants too much"
        for acker in switch.ackers.values():
            assert acker.live_roots >= 0, "negative roots"

    def _look_at_task(self, task: Any) -> None:
        link = getattr(task, "link", None)
        if link is None:
            return
        assert link.outbox_bytes == sum(len(data) for data, _ in link.outbox), "the outbox is miscounted"
        limit = self._instance.out_queue_bytes_max * 9 + self._frame
        assert link.outbox_bytes <= limit, f"the outbox holds {link.outbox_bytes} bytes, above {limit}"
        assert link.sent_bytes <= link.granted_out + self._frame, "sent beyond the credit"
        assert link.consumed_bytes <= link.received_bytes, "consumed more than came"
        queue = getattr(task, "in_queue", None)
        if queue is None:
            return
        queue.validate()
        size = sum(entry.size for entry in queue.waiting)
        self.stats["most_waiting"] = max(self.stats["most_waiting"], size)
        if task.checkpoints is None:
            # Where checkpoints are taken, alignment may hold more, up to a limit of its own.
            room = self._instance.in_queue_bytes_max * 2 + 2 * self._frame
            assert size <= room, f"the queue holds {size} bytes, above {room}"

    def failed(self, cause: str) -> None:
        """The topology master has given up: only when nothing is left to go back to."""
        if self.cluster.disk.damaged:
            # What somebody has gone back behind is taken again only when somebody says so.
            for record in (one for one in self._log.complete if not one.abandoned):
                try:
                    self._audit(record)
                except HeronError:
                    continue
                self.world.wrong(f"the topology failed, and checkpoint {record.checkpoint} is sound: {cause}")
            self.stats["lost_to_damage"] += 1
            return
        self.world.wrong(f"the topology failed: {cause}")

    # ---- the end ------------------------------------------------------------------------------

    def at_end(self) -> None:
        """The topology has finished: everything must be there."""
        self._look_at_plans()
        outside, shape = self.cluster.outside, self.shape
        expected = shape.expected()
        if shape.mode == EFFECTIVELY:
            missing = sorted(expected - outside.committed.keys())
            extra = sorted(outside.committed.keys() - expected)
            if missing or extra:
                self.world.wrong(f"{len(missing)} records are not committed: {missing[:4]}; unknown: {extra[:4]}")
            if self._log.complete:
                positions = self.audit(self._log.complete[-1])
                if positions and any(position != shape.records for position in positions.values()):
                    self.world.wrong(f"the last checkpoint has the sources at {positions}")
            return
        if shape.mode == AT_LEAST:
            missing = sorted(expected - outside.delivered.keys())
            if missing:
                self.world.wrong(f"{len(missing)} records were never delivered: {missing[:4]}")
            return
        more = [r for r, n in outside.delivered.items() if n > outside.emitted[r]]
        if more:
            self.world.wrong(f"records were delivered more often than emitted: {more[:4]}")
        self._account_for_losses()

    def drained(self) -> None:
        """Nothing waits, is in flight or owes credit anywhere."""
        for process in self.cluster.processes("stmgr"):
            switch = process.program.switch
            left = {
                "queued": switch.queued()[1],
                "in flight": switch.in_flight(),
                "culprits": len(switch.backpressure.local),
                "live roots": sum(acker.live_roots for acker in switch.ackers.values()),
            }
            if any(left.values()):
                self.world.wrong(f"{process.name} has come to rest with {left}")
        for process in self.cluster.processes("instance"):
            progress = process.program.progress
            left = {"in": progress.in_bytes, "out": progress.out_bytes}
            if any(left.values()):
                self.world.wrong(f"{process.name} has come to rest with {left}")

    def _look_at_plans(self) -> None:
        """No update is half done: the stored plans are those of one and the same topology."""
        nodes = self.cluster.state.store.nodes
        intent = nodes.get(paths.update_intent(TOPOLOGY))
        if intent is not None and intent.data:
            self.world.wrong("the topology has finished, and an update is still under way")
            return
        packing = plan_pb2.PackingPlan.FromString(nodes[paths.packing_plan(TOPOLOGY)].data)
        placed = {(c.id, i.component, i.task_id) for c in packing.containers for i in c.instances}
        running = {(i.container, i.component, i.task_id) for i in self._plan.instances}
        if placed != running:
            self.world.wrong(f"packing and physical plan differ in {sorted(placed ^ running)}")

    def _account_for_losses(self) -> None:
        """Without deaths every tuple that is missing was counted by who gave it up."""
        emitted, delivered = sum(self.cluster.outside.emitted.values()), sum(self.cluster.outside.delivered.values())
        self.stats["lost"] = emitted - delivered
        if self.stats["deaths"] or self.stats["verb_update_topology"]:
            return
        discarded = 0
        for process in self.cluster.processes("stmgr"):
            discarded += sum(process.program.switch.discarded.values())
        for process in self.cluster.processes("instance"):
            discarded += process.program.link.lost_tuples
        # A tuple that is given up twice, by sender and receiver, is counted twice: never too few.
        if emitted - delivered > discarded:
            self.world.wrong(f"{emitted} emitted, {delivered} delivered, but only {discarded} counted as discarded")
