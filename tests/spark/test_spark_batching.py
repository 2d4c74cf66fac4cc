"""When micro-batches end: at their size and age, and later while Spark is behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from heronpy.connectors.spark.filling import AHEAD, GROWTH_MAX, Filling, Limits, Step, next_step, room_rows
from heronpy.connectors.spark.records import AgreedSchema, SinkFolder
from heronpy.connectors.spark.rows import RowShape
from heronpy.storage.objects.folder import FolderObjects
from tests.connectors.two_phase import Tup

limits_of = st.builds(
    Limits,
    rows=st.integers(1, 1000),
    bytes=st.integers(1, 100_000),
    age_s=st.sampled_from([0.5, 1.0, float("inf")]),
    bytes_max=st.integers(1, 1_000_000),
    uncommitted_max=st.integers(1, 8),
)
PLAIN = Limits(rows=100, bytes=10_000, age_s=1.0, bytes_max=50_000, uncommitted_max=4)


@given(limits_of, st.integers(0, 20_000), st.integers(0, 2_000_000), st.floats(0, 10), st.integers(0, 8))
def test_a_batch_is_handed_over_when_due_unless_spark_is_behind(
    limits: Limits, rows: int, size: int, age: float, uncommitted: int
) -> None:
    step = next_step(rows, size, age, uncommitted, limits)
    is_due = rows > 0 and (rows >= limits.rows or size >= limits.bytes or age >= limits.age_s)
    if not is_due:
        assert step is Step.FILL
    elif uncommitted < min(AHEAD, limits.uncommitted_max):
        assert step is Step.HAND_OVER
    elif step is Step.FILL:
        assert limits.bytes_max > limits.bytes
        assert rows < GROWTH_MAX * limits.rows and size < limits.bytes_max
    elif step is Step.HAND_OVER:
        assert uncommitted < limits.uncommitted_max
    else:
        assert uncommitted >= limits.uncommitted_max


@given(limits_of, st.integers(1, 5000), st.integers(0, 8), st.integers(1, 3000))
def test_rows_of_one_size_never_pass_a_limit_unseen(limits: Limits, row: int, uncommitted: int, takes: int) -> None:
    rows = 0
    for _ in range(min(takes, 200)):
        room = room_rows(rows, rows * row, row, limits)
        assert room >= 1
        after = rows + room
        if rows < limits.rows:
            assert after <= limits.rows
        if room > 1 and rows * row < limits.bytes:
            assert after * row <= limits.bytes
        elif room > 1:
            assert after * row <= limits.bytes_max
        rows = after
        if next_step(rows, rows * row, 0.0, uncommitted, limits) is not Step.FILL:
            return
    assert rows <= max(GROWTH_MAX, 1) * limits.rows + 1


@given(st.integers(1, 4000), st.integers(1, 50), st.integers(5, 60))
def test_a_backlog_is_caught_up_in_a_few_jobs(rows_s: int, row: int, start_s: int) -> None:
    """Spark begins `start_s` late and then needs a second per job: it never has more than some jobs to do."""
    limits = Limits(rows=100, bytes=10_000, age_s=1.0, bytes_max=10**9, uncommitted_max=4)
    waiting: list[int] = []
    filling, opened, working, jobs, committed, backlog = 0, 0.0, 0.0, 0, 0, 0
    for tick in range(10 * start_s + 100):
        now = tick / 10
        if now >= start_s and waiting and now >= working + 1:
            committed += waiting.pop(0)
            working, jobs = now, jobs + 1
            # What came before Spark was up.
            backlog = backlog or committed + sum(waiting) + filling
            if jobs == limits.uncommitted_max + 1:
                assert committed >= backlog
        opened = now if filling == 0 else opened
        step = next_step(filling, filling * row, now - opened, len(waiting), limits)
        if step is Step.HAND_OVER:
            waiting.append(filling)
            filling, opened = 0, now
        elif step is Step.FILL:
            filling += rows_s // 10
        # At WAIT it takes nothing, which is backpressure.
        assert len(waiting) <= limits.uncommitted_max
        assert filling <= limits.rows_max + rows_s // 10
    assert rows_s < 10 or jobs > limits.uncommitted_max


def test_without_room_to_grow_a_batch_ends_at_its_size_and_age() -> None:
    never = Limits(rows=100, bytes=10_000, age_s=1.0, bytes_max=10_000, uncommitted_max=4)
    assert next_step(100, 0, 0.0, 2, never) is Step.HAND_OVER
    assert next_step(1, 0, 1.0, 3, never) is Step.HAND_OVER
    assert next_step(1, 0, 1.0, 4, never) is Step.WAIT
    assert next_step(100, 0, 0.0, 2, PLAIN) is Step.FILL
    assert next_step(1, 0, 1.0, 2, PLAIN) is Step.FILL
    assert next_step(1600, 0, 0.0, 2, PLAIN) is Step.HAND_OVER
    assert next_step(1600, 0, 0.0, 4, PLAIN) is Step.WAIT


# -- the batch that fills ---------------------------------------------------------------------

SCHEMA = pa.schema([("word", pa.string()), ("n", pa.int32())])
values_of = st.one_of(
    st.tuples(st.one_of(st.none(), st.text(max_size=5), st.integers(0, 9)), st.one_of(st.integers(-5, 2**33), st.none())),
    st.tuples(st.text(max_size=3)),
)  # fmt: skip


@given(st.lists(st.lists(values_of, min_size=1, max_size=5), max_size=8), st.booleans())
def test_columns_hold_the_rows_that_fit_and_name_the_others(chunks: list[list[tuple]], inferred: bool) -> None:
    """Taken in any portions, a batch has the same rows as if each were tried alone."""
    with tempfile.TemporaryDirectory() as folder:
        shared = AgreedSchema(SinkFolder(FolderObjects(Path(folder), fsync=False), "T-run", "store"))
        batch = Filling(RowShape(["word", "n"], None if inferred else SCHEMA, shared))
        if inferred:
            # Another task of the sink has decided the schema, which this one learns when its batch ends.
            RowShape(["word", "n"], None, shared).table([("a", 1)])
        tuples = [Tup(number, values) for number, values in enumerate(v for chunk in chunks for v in chunk)]
        left, refused = list(tuples), []
        for chunk in chunks:
            refused += batch.take(left[: len(chunk)])
            left = left[len(chunk) :]
        table, late = batch.close() if len(batch) else (pa.table({}), [])
        refused += late
        fits = RowShape(
            ["word", "n"], pa.schema([("word", pa.string()), ("n", pa.int64())]) if inferred else SCHEMA, shared
        )
        good = [t for t in tuples if len(t.values) == 2 and not fits.table([t.values])[1]]
        assert batch.tuples == good
        assert [tuple(row.values()) for row in table.to_pylist()] == [t.values for t in good]
        assert {one.tuple.id for one in refused} == {t.id for t in tuples} - {t.id for t in good}
        for one in refused:
            assert "columns" in one.reason if len(one.tuple.values) == 1 else "column '" in one.reason


def test_a_batch_is_one_chunk_and_knows_its_size() -> None:
    batch = Filling(RowShape(["word", "n"], SCHEMA))
    for start in range(0, 1000, 100):
        assert batch.take([Tup(n, ("x" * 50, n)) for n in range(start, start + 100)]) == []
    assert 50 < batch.row_bytes < 70 and 50_000 < batch.size_bytes < 70_000
    table, refused = batch.close()
    assert refused == [] and table.num_rows == 1000 and table.column("n").num_chunks == 1
