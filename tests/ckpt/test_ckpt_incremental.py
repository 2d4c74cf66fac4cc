"""What a checkpoint uploads: what changed since the last complete one, in bytes that are written."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.ckpt.chain import FAN, Chain, Plan
from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto.checkpoint_pb2 import SAVEPOINT, Segment
from heronpy.storage.checkpoints import CheckpointStore, files_of
from tests.support.states import NAME, Tasks, fill

KEYS = 20_000
ONE_PERCENT = KEYS // 100
VALUE = "x" * 100
CONFIG = CheckpointSettings(fsync=False)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "wordy1", fsync=False)


def full(store: CheckpointStore, parallelism: int = 1) -> Tasks:
    """Tasks with a complete checkpoint of `KEYS` keys; it has number 1."""
    tasks = Tasks(store, CONFIG, parallelism)
    fill(tasks, range(KEYS), VALUE)
    tasks.checkpoint(1)
    return tasks


def size_on_disk(store: CheckpointStore) -> int:
    return sum(path.stat().st_size for path in store.folder.rglob("*") if path.is_file())


def test_one_percent_of_change_uploads_at_most_three_percent(store: CheckpointStore) -> None:
    """Counted three ways: by the tasks, by the store, and on disk."""
    tasks = full(store)
    whole, on_disk = store.bytes_written, size_on_disk(store)
    assert whole > KEYS * len(VALUE)
    for number in range(2, 6):
        fill(tasks, random.Random(number).sample(range(KEYS), ONE_PERCENT), f"{number:100}")
        before = store.bytes_written
        taken = tasks.checkpoint(number)
        assert 0.009 * whole < taken.uploaded <= 0.03 * whole
        # Small segments lie in the metadata, so both together are all that is written.
        assert store.bytes_written - before <= 0.03 * whole
        assert taken.total >= whole
    assert size_on_disk(store) - on_disk <= 4 * 0.03 * on_disk


def test_nothing_changed_uploads_nothing(store: CheckpointStore) -> None:
    tasks = full(store)
    taken = tasks.checkpoint(2)
    assert taken.uploaded == 0 and taken.total > KEYS * len(VALUE)


def test_equal_content_is_not_written_again(store: CheckpointStore) -> None:
    """A plain State is encoded whole each time; so are keys that got the values that they had."""
    tasks = full(store)
    tasks.tasks[0].plain["rows"] = VALUE * KEYS
    large = tasks.checkpoint(2).uploaded
    assert large > KEYS * len(VALUE)
    fill(tasks, range(KEYS), VALUE)
    taken = tasks.checkpoint(3)
    assert taken.uploaded == 0 and taken.total > 2 * KEYS * len(VALUE)
    store.discard([store.load_metadata(number) for number in (1, 2)], [taken.metadata])
    restored = Tasks(store, CONFIG, 1, taken.location, 2)
    assert restored.content() == tasks.content() and restored.tasks[0].plain["rows"] == VALUE * KEYS
    # Also not by the tasks that were restored; what has changed is written by whoever changed it.
    assert restored.checkpoint(4).uploaded == 0
    restored.tasks[0].plain["rows"] = VALUE
    assert 0 < restored.checkpoint(5).uploaded < large


def test_an_aborted_checkpoint_is_no_reason_to_leave_something_out(store: CheckpointStore) -> None:
    tasks = full(store)
    tasks.tasks[0].plain["rows"] = VALUE * KEYS
    taken = tasks.begin(2)
    taken.persist()
    taken.abort()
    store.sweep([store.load_metadata(1)], before=3)
    assert tasks.checkpoint(3).uploaded > KEYS * len(VALUE) and store.problems(store.load_metadata(3)) == []


def test_reading_uploads_nothing_when_values_cannot_change(store: CheckpointStore) -> None:
    tasks = full(store)
    assert all(tasks.state(key)[key] == VALUE for key in range(KEYS))
    assert tasks.checkpoint(2).uploaded == 0


def test_a_savepoint_does_not_break_the_chain(store: CheckpointStore) -> None:
    """Checkpoint, savepoint, checkpoint: each within 10 % of the trend."""
    tasks = full(store)
    uploads = []
    for number in range(2, 8):
        fill(tasks, range(number * ONE_PERCENT, (number + 1) * ONE_PERCENT), f"{number:100}")
        uploads.append(tasks.checkpoint(number, SAVEPOINT if number in (3, 6) else 0).uploaded)
    assert max(uploads) <= 1.1 * min(uploads)


def test_what_an_aborted_checkpoint_took_is_written_by_the_next(store: CheckpointStore) -> None:
    """The base is the last *successful* checkpoint, however many came to nothing since."""
    tasks = full(store)
    for number in range(2, 22):
        fill(tasks, [number], "changed")
        taken = tasks.begin(number)
        if number % 2:
            taken.persist()
        taken.abort()
    fill(tasks, [22], "changed")
    taken = tasks.checkpoint(22)
    assert sum(segment.entries for segment in taken.metadata.tasks[0].keyed[0].segments) == KEYS + 21
    for number in range(1, 22):
        store.delete(number)
    store.sweep([taken.metadata])
    changed = {key for key, value in Tasks(store, CONFIG, 1, taken.location).content().items() if value == "changed"}
    assert changed == set(range(2, 23))


def test_another_instance_writes_everything_anew_and_stands_alone(tmp_path: Path, store: CheckpointStore) -> None:
    """After job 2's first checkpoint job 1's folder may go."""
    taken = full(store).checkpoint(2)
    other = CheckpointStore(tmp_path / "wordy2", fsync=False)
    second = Tasks(other, CONFIG, 1, taken.location, 2)
    fill(second, [1], "job 2")
    first_own = second.checkpoint(3)
    assert first_own.uploaded >= first_own.total > KEYS * len(VALUE)
    shutil.rmtree(store.folder)
    restored = Tasks(other, CONFIG, 1, first_own.location, 3)
    assert restored.content() == dict.fromkeys(range(KEYS), VALUE) | {1: "job 2"}
    fill(restored, [2], "job 2")
    assert restored.checkpoint(4).uploaded < 0.01 * first_own.total


def test_a_changed_parallelism_writes_everything_anew(store: CheckpointStore) -> None:
    """The old segments overlap tasks that no longer are; what follows names none of them."""
    taken = full(store, 2).checkpoint(2)
    three = Tasks(store, CONFIG, 3, taken.location, 2)
    anew = three.checkpoint(3)
    assert not {ref.path for ref in files_of(anew.metadata)} & {ref.path for ref in files_of(taken.metadata)}
    fill(three, range(ONE_PERCENT), "y" * 100)
    assert three.checkpoint(4).uploaded <= 0.03 * anew.total


def test_segments_stay_few_and_uploads_small_over_many_checkpoints(store: CheckpointStore) -> None:
    """Compaction: 300 checkpoints of 1 % random changes, and what is uploaded on average stays near it."""
    keys, changes = 5000, 50
    tasks = Tasks(store, CONFIG, 1)
    fill(tasks, range(keys), VALUE)
    whole = tasks.checkpoint(1).uploaded
    chooser, uploads, kept = random.Random(7), [], []
    for number in range(2, 302):
        fill(tasks, chooser.sample(range(keys), changes), f"{number:100}")
        taken = tasks.checkpoint(number)
        assert taken.segments <= 2 * FAN + 10
        uploads.append(taken.uploaded)
        kept.append(taken.metadata)
        store.discard(kept[:-2], kept[-2:])
        del kept[:-2]
    assert sorted(uploads)[len(uploads) // 2] <= 0.03 * whole
    assert sum(uploads) / len(uploads) <= 0.06 * whole
    # What the changes outweigh goes with the next base, so the store does not grow with time.
    assert size_on_disk(store) <= 3 * whole
    restored = Tasks(store, CONFIG, 1, f"{store.folder}/chk-301")
    assert restored.content() == {key: tasks.state(key)[key] for key in range(keys)}


def test_the_same_hot_keys_never_make_a_new_base(store: CheckpointStore) -> None:
    tasks = full(store)
    for number in range(2, 120):
        fill(tasks, range(ONE_PERCENT), f"{number:100}")
        taken = tasks.checkpoint(number)
        assert taken.uploaded <= 0.03 * taken.total
    assert taken.total < 2 * KEYS * (len(VALUE) + 20)


@given(
    changes=st.lists(st.sets(st.integers(0, 400), max_size=30), min_size=1, max_size=120),
    ratio=st.sampled_from([0.5, 50.0]),
    fates=st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_chains_name_every_change_and_stay_short(changes: list[set[int]], ratio: float, fates: random.Random) -> None:
    """The pure part: applied in order, a checkpoint's segments give each key its last change."""
    chain, held = Chain(), 400
    truth: dict[int, int] = dict.fromkeys(range(held), 0)
    written: dict[bytes, dict[int, int]] = {}
    for number, keys in enumerate(changes, 1):
        truth.update(dict.fromkeys(keys, number))
        plan: Plan = chain.plan(number, set(keys), held, ratio, False)
        segments = plan.segments
        if plan.keys is None:
            segments.append(Segment(inline=b"%d" % number, entries=len(truth)))
            written[b"%d" % number] = dict(truth)
        elif plan.keys:
            named = set().union(*plan.keys)
            segments.append(Segment(inline=b"%d" % number, entries=len(named)))
            written[b"%d" % number] = {key: truth[key] for key in named}
        seen: dict[int, int] = {}
        for segment in segments:
            seen.update(written[segment.inline])
        assert seen == truth
        assert len(segments) <= 4 * FAN
        if fates.random() < 0.2:
            chain.aborted(number)
            continue
        chain.persisted(number, segments)
        if fates.random() < 0.9:
            chain.completed(number)


def test_large_state_comes_in_segments_of_bounded_size(store: CheckpointStore) -> None:
    tasks = Tasks(store, CONFIG, 1)
    fill(tasks, range(200), "v" * 100_000)
    record = tasks.checkpoint(1).metadata.tasks[0].keyed[0]
    assert record.name == NAME and record.keys == 200
    assert len(record.segments) >= 4 and max(segment.file.bytes for segment in record.segments) < 6 << 20
    groups = [(segment.first_group, segment.last_group) for segment in record.segments]
    assert groups == sorted(groups) and all(a[1] < b[0] for a, b in itertools.pairwise(groups))


@pytest.mark.parametrize("cut", [True, False])
def test_after_a_file_went_bad_the_next_checkpoint_is_a_full_one(store: CheckpointStore, cut: bool) -> None:
    """F23: files that every later checkpoint would take over are written again, from memory."""
    tasks = full(store)
    [*files] = (store.folder / "shared").iterdir()
    for path in files:
        if cut:
            path.write_bytes(path.read_bytes()[:-1])
        else:
            path.unlink()
    fill(tasks, [1], "changed")
    taken = tasks.checkpoint(2)
    assert files and taken.uploaded > KEYS * len(VALUE)
    restored = Tasks(store, CONFIG, location=taken.location).content()
    assert len(restored) == KEYS and restored[1] == "changed"
