"""SeededSource over changing numbers of tasks: the same input, whatever moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heronpy.api.state.state import HashMapState
from heronpy.common.errors import TopologyError
from heronpy.verify import InputSpec, SeededSource
from tests.api.source_fakes import Context, Delegate, Kept

SPEC = InputSpec(partitions=8, count=30, keys=5)


def source(out: Path, context: Context, mode: str) -> SeededSource:
    made = SeededSource(Delegate())
    made.initialize({**SPEC.config(str(out)), "topology.reliability.mode": mode}, context)
    return made


def emitted(made: SeededSource) -> list[tuple[int, int]]:
    return [(values[0], values[1]) for values in made.delegate.emitted]


EXPECTED = [(partition, seq) for partition in range(SPEC.partitions) for seq in range(SPEC.count)]


def test_positions_move_with_their_partitions(tmp_path: Path) -> None:
    kept: Kept = {}
    seen: list[Any] = []
    for tasks, calls in ((3, 20), (7, 9), (2, 200)):
        merged: Kept = {}
        for index in range(tasks):
            context = Context(index, tasks, kept=kept)
            made = source(tmp_path, context, "EFFECTIVELY_ONCE")
            for _ in range(calls):
                made.next_tuple()
            made.pre_save("1")
            for name, entries in context.kept().items():
                merged.setdefault(name, {}).update(entries)
            seen += emitted(made)
            made.next_tuple()
            made.close()
        kept = merged
    assert sorted(seen) == EXPECTED


def test_running_tasks_give_and_take_partitions(tmp_path: Path) -> None:
    """At least once: what was acked is not emitted again by the new owner, and nothing is lost."""
    contexts = [Context(index, 2) for index in range(3)]
    made = [source(tmp_path, context, "ATLEAST_ONCE") for context in contexts[:2]]
    for one in made:
        for _ in range(40):
            one.next_tuple()
        for tup_id in one.delegate.ids[:20]:
            one.ack(tup_id)
        one.fail(one.delegate.ids[20])
    for context in contexts:
        context.tasks = 3
    made.append(source(tmp_path, contexts[2], "ATLEAST_ONCE"))
    for one in made:
        one.next_look = 0.0
        for _ in range(300):
            one.next_tuple()
            for tup_id in one.delegate.ids[40:]:
                one.ack(tup_id)
            del one.delegate.ids[40:]
    assert {part for one in made for part in emitted(one)} == set(EXPECTED)
    assert set(made[0].readers) | set(made[1].readers) | set(made[2].readers) == set(range(SPEC.partitions))
    assert sum(len(one.readers) for one in made) == SPEC.partitions
    assert min(seq for _, seq in emitted(made[2])) > 0


def test_its_backlog_is_what_is_due(tmp_path: Path) -> None:
    made = source(tmp_path, Context(0, 2), "ATLEAST_ONCE")
    assert made.backlog() == len(made.readers) * SPEC.count
    made.next_tuple()
    assert made.backlog() == len(made.readers) * SPEC.count - 1
    made.rate = 1e-9
    assert made.backlog() == 0


def test_the_state_of_an_older_release_is_refused() -> None:
    with pytest.raises(TopologyError, match="this source was checkpointed by a release of heronpy"):
        SeededSource(Delegate()).init_state(HashMapState(positions={0: 5}))
