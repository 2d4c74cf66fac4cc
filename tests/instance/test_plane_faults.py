"""The data plane under SIGKILL, in one process: at least once loses nothing, acks off it counts what it loses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from heronpy.proto import topology_pb2
from tests.plan.builders import TopologyMessage
from tests.support.plane import Plane, UserObject

TIMEOUT_S = 30.0
SEEDS = range(30)
PLANES: list[Plane] = []


@pytest.fixture(autouse=True)
def close_planes() -> Iterator[None]:
    yield
    while PLANES:
        PLANES.pop().close()


class Source:
    """An input outside of the processes: what was not acked is there again for the next incarnation."""

    def __init__(self, ids: list[int]) -> None:
        self.todo = list(ids)
        self.pending: set[int] = set()
        self.acked: Counter[int] = Counter()
        self.fails = 0

    def reopen(self) -> None:
        self.todo += sorted(self.pending)
        self.pending.clear()


class ReplaySpout(UserObject):
    def __init__(self, delegate: Any, sources: dict[int, Source]) -> None:
        super().__init__(delegate)
        self.source = sources[self.task_id]
        self.source.reopen()

    def next_tuple(self) -> None:
        source = self.source
        if source.todo:
            one = source.todo.pop()
            source.pending.add(one)
            self.emit([one], tup_id=one)
        elif not source.pending:
            self.delegate.end_of_input()

    def ack(self, tup_id: int) -> None:
        self.source.pending.discard(tup_id)
        self.source.acked[tup_id] += 1

    def fail(self, tup_id: int) -> None:
        self.source.fails += 1
        if tup_id in self.source.pending:
            self.source.pending.discard(tup_id)
            self.source.todo.append(tup_id)


class PassBolt(UserObject):
    """Passes a tuple on, anchored, and acks it."""

    def __init__(self, delegate: Any, seen: Counter[int], emits: int = 1) -> None:
        super().__init__(delegate)
        self.seen, self.emits = seen, emits

    def process(self, tup: Any) -> None:
        self.seen[tup.values[0]] += 1
        for _ in range(self.emits):
            self.emit([tup.values[0]], anchors=[tup])
        self.ack(tup)


def chain(containers: int) -> tuple[topology_pb2.Topology, dict[int, tuple[str, int]]]:
    message = TopologyMessage()
    message.spout("spout", outputs={"default": ["n"]})
    message.bolt("split", [("spout", "default", topology_pb2.SHUFFLE, [])], outputs={"default": ["n"]})
    message.bolt("count", [("split", "default", topology_pb2.FIELDS, ["n"])], outputs={})
    message.bolt("sink", [("split", "default", topology_pb2.ALL, [])], outputs={})
    names = ["spout", "spout", "split", "split", "count", "count", "sink", "sink"]
    return message.message, {i + 1: (name, 1 + i % containers) for i, name in enumerate(names)}


def make(
    monkeypatch: pytest.MonkeyPatch, seed: int, total: int, **options: Any
) -> tuple[Plane, dict[int, Source], Counter[int]]:
    topology, tasks = chain(options.pop("containers", 2))
    sources = {1: Source(list(range(total))), 2: Source(list(range(total, 2 * total)))}
    seen: Counter[int] = Counter()
    plane = Plane(
        monkeypatch,
        topology,
        tasks,
        {
            "spout": lambda d: ReplaySpout(d, sources),
            "split": lambda d: PassBolt(d, Counter()),
            "count": lambda d: PassBolt(d, seen, 0),
            "sink": lambda d: PassBolt(d, Counter(), 0),
        },
        seed=seed,
        config={"topology.max.spout.pending": 40, "topology.message.timeout.secs": TIMEOUT_S},
        **options,
    )
    PLANES.append(plane)
    return plane, sources, seen


def all_acked(sources: dict[int, Source]) -> bool:
    return all(not s.todo and not s.pending for s in sources.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_processes_lose_nothing_at_least_once(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    plane, sources, seen = make(monkeypatch, seed, 150, reliability="ATLEAST_ONCE", containers=1 + seed % 2)
    for _ in range(15):
        plane.steps(plane.rng.randint(1, 120))
        victim = plane.rng.choice([*plane.places, 0])
        if not victim:
            plane.restart_stmgr(plane.rng.choice(list(plane.containers)))
        elif plane.rng.random() < 0.5:
            plane.kill(victim)
            plane.steps(plane.rng.randint(0, 30))
            plane.start(victim)
        else:
            plane.restart(victim)
    for _ in range(20):
        plane.settle()
        if all_acked(sources):
            break
        plane.clock.now += TIMEOUT_S + 1
    for source in sources.values():
        assert not source.todo and not source.pending
    assert set(seen) == set(range(300))
    plane.check_drained()


@pytest.mark.parametrize("component", ["count", "sink"])
def test_what_was_on_its_way_to_a_dead_task_fails_at_once(monkeypatch: pytest.MonkeyPatch, component: str) -> None:
    plane, sources, seen = make(monkeypatch, 7, 200, reliability="ATLEAST_ONCE", containers=1)
    victim = next(t for t, (name, _) in plane.places.items() if name == component)
    link = plane.containers[1].switch.tasks[victim].link
    plane.steps(100)
    while not link.in_flight():
        plane.step()
    plane.kill(victim)
    plane.steps(100)
    plane.start(victim)
    plane.settle()
    assert all_acked(sources), "something waits for its timeout"
    assert sum(s.fails for s in sources.values()) > 0
    assert set(seen) == set(range(400))


def test_a_new_stream_manager_fails_the_pending_tuples_of_its_spouts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plane, sources, _ = make(monkeypatch, 3, 200, reliability="ATLEAST_ONCE", containers=1)
    plane.steps(150)
    plane.restart_stmgr(1)
    plane.settle()
    assert all_acked(sources), "something waits for its timeout"


@pytest.mark.parametrize("seed", SEEDS)
def test_without_acking_losses_are_counted(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """emitted = delivered + discarded, when all has come to rest after kills of bolts."""
    plane, _, _ = make(monkeypatch, seed, 200, containers=1 + seed % 2)
    victims = [t for t, (name, _) in plane.places.items() if name in ("count", "sink")]
    for _ in range(8):
        plane.steps(plane.rng.randint(1, 80))
        victim = plane.rng.choice(victims)
        plane.kill(victim)
        plane.steps(plane.rng.randint(0, 60))
        plane.start(victim)
    plane.settle()
    plane.check_drained()
    emitted = sum(task.emitter.emitted() for task in plane.tasks.values())
    switches = [c.switch for c in plane.containers.values()]
    delivered = sum(t.link.total_consumed for s in switches for t in s.tasks.values())
    discarded = sum(sum(s.discarded.values()) for s in switches)
    assert emitted == delivered + discarded
    # 400 from the spouts; each once to a counter and once to each of two sinks.
    assert emitted == 400 * 4


def test_held_ticks_come_back_with_the_next_tuple(monkeypatch: pytest.MonkeyPatch) -> None:
    plane, _, _ = make(monkeypatch, 1, 20, containers=1)
    ticks: Counter[int] = Counter()
    for task_id in (3, 4):
        monkeypatch.setattr(plane.tasks[task_id].user.object, "process_tick", lambda tup, t=task_id: ticks.update([t]))
    plane.tick()
    assert ticks == {3: 1, 4: 1}
    for task_id in (3, 4):
        plane.tasks[task_id].control.deliver("hold_ticks", None)
    plane.settle()
    plane.clock.now += 1e10
    plane.settle()
    assert ticks == {3: 1, 4: 1}
    plane.tasks[1].emitter.push(plane.tasks[1].emitter.streams["default"], [1], None)
    plane.tasks[1].emitter.flush()
    plane.settle()
    plane.clock.now += 1e10
    plane.settle()
    assert sorted(ticks.values()) == [1, 2], "only the one that got the tuple"


def test_a_zombie_is_refused_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    plane, _, seen = make(monkeypatch, 1, 100, containers=1)
    plane.steps(60)
    zombie = plane.tasks[3]
    fiber = plane.fibers.pop(3)
    del plane.tasks[3]
    plane.steps(60)
    plane.start(3)
    switch = plane.containers[1].switch
    before = switch.counts["stale_frames"]
    # It wakes up and emits as if nothing had happened.
    zombie.emitter.push(zombie.emitter.streams["default"], [10_000], None)
    zombie.emitter.flush()
    zombie.link.send_all()
    plane.settle()
    fiber.kill()
    assert switch.counts["stale_frames"] > before
    assert switch.discarded["stale link"] >= 1
    assert 10_000 not in seen


def test_a_zombie_stream_manager_is_refused_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    plane, _, _ = make(monkeypatch, 1, 100, containers=2)
    plane.steps(100)
    old = plane.containers[1]
    plane.restart_stmgr(1)
    plane.steps(50)
    target = plane.containers[2]
    target.switch.peer_epochs["stmgr-1"] = plane.containers[1].epoch
    before = target.switch.counts["fenced_links"]
    old.connect(target)
    plane.settle()
    assert target.switch.counts["fenced_links"] > before


@pytest.mark.parametrize("seed", range(10))
def test_rescale_under_load_keeps_order_and_loses_nothing(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    message = TopologyMessage()
    message.spout("spout", outputs={"default": ["src", "seq"]})
    message.bolt("sink", [("spout", "default", topology_pb2.SHUFFLE, [])], outputs={})
    last: dict[tuple[int, int], int] = {}
    seen: Counter[tuple[int, int]] = Counter()

    class Numbers(UserObject):
        def __init__(self, delegate: Any) -> None:
            super().__init__(delegate)
            self.seq = 0

        def next_tuple(self) -> None:
            self.seq += 1
            if self.seq > 400:
                self.delegate.end_of_input()
            else:
                self.emit([self.task_id, self.seq])

    class Sink(UserObject):
        def process(self, tup: Any) -> None:
            source, seq = tup.values
            assert seq > last.get((source, self.task_id), 0)
            last[source, self.task_id] = seq
            seen[source, seq] += 1

    tasks = {1: ("spout", 1), 2: ("spout", 2), 3: ("sink", 1), 4: ("sink", 2)}
    plane = Plane(monkeypatch, message.message, tasks, {"spout": Numbers, "sink": Sink}, seed=seed)
    PLANES.append(plane)
    plane.steps(60)
    for number in range(5, 9):
        plane.places[number] = ("sink", 1 + number % 2)
        plane.start(number)
        plane.publish()
        plane.steps(plane.rng.randint(0, 60))
    for number in (4, 6, 3):
        plane.removed.add(number)
        plane.publish()
        plane.steps(plane.rng.randint(0, 100))
    plane.settle()
    for number in plane.removed:
        plane.stop(number)
    plane.settle()
    assert not any(number in c.switch.tasks for c in plane.containers.values() for number in plane.removed)
    assert not any(c.switch.discarded for c in plane.containers.values())
    assert seen == Counter({(s, n): 1 for s in (1, 2) for n in range(1, 401)})
    plane.check_drained()
