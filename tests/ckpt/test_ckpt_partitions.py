"""Partitioned state through checkpoints of real tasks: over any chain of parallelisms nothing is lost or doubled."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heronpy.common.errors import TopologyError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.storage.checkpoints import CheckpointStore
from tests.support.states import Tasks, fill

LOGS, COUNT, NAME = ("a", "b", 7), 64, "positions"
SMALL, FILES = (CheckpointSettings(key_groups=16, inline_max_bytes=size, fsync=False) for size in (1 << 16, 0))


def content(tasks: Tasks) -> dict[Any, Any]:
    """What all tasks hold; each partition is held by its owner alone."""
    found: dict[Any, Any] = {}
    for task in tasks.tasks:
        state = task.keyed.partitioned(NAME)
        mine = dict(state.items())
        assert all(map(state.owns, mine)) and not mine.keys() & found.keys()
        found |= mine
    return found


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from((SMALL, FILES)),
    st.lists(
        st.tuples(
            st.integers(1, 9), st.lists(st.tuples(st.sampled_from(LOGS), st.integers(0, COUNT - 1)), max_size=30)
        ),
        min_size=2,
        max_size=6,
    ),
)
@example(FILES, [(3, [("a", number) for number in range(COUNT)]), (7, [("a", 5)]), (2, []), (2, [("b", 1)])])
def test_partitions_come_to_their_owners(chosen: CheckpointSettings, phases: list[Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="heron-partitions-") as folder:
        store = CheckpointStore(Path(folder) / "wordy1", fsync=False)
        model: dict[Any, Any] = {}
        location = ""
        for number, (parallelism, written) in enumerate(phases, 1):
            tasks = Tasks(store, chosen, parallelism, location, number)
            assert content(tasks) == model
            for key in written:
                [owner] = [task for task in tasks.tasks if task.keyed.partitioned(NAME).owns(key)]
                owner.keyed.partitioned(NAME)[key] = model[key] = (number, "x")
            fill(tasks, range(5), number)  # beside keyed state
            taken = tasks.checkpoint(number)
            assert not any(part.stateful for part in taken.metadata.tasks)
            location = taken.location
            assert tasks.content() == dict.fromkeys(range(5), number)


def test_a_name_keeps_its_kind(tmp_path: Path) -> None:
    tasks = Tasks(CheckpointStore(tmp_path / "wordy1", fsync=False), FILES)
    tasks.tasks[0].keyed.partitioned(NAME)["a", 1] = 5
    location = tasks.checkpoint(1).location
    for parallelism in (1, 2):
        for task in Tasks(tasks.store, FILES, parallelism, location).tasks:
            with pytest.raises(TopologyError, match="state 'positions' is already a partitioned state"):
                task.keyed(NAME)
