"""The emitter with a fake `send`: routing, order, bounds, sizes, marks and roots of frames."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.common.errors import LocalWireError, TopologyError
from heronpy.common.hashing import stable_hash
from heronpy.plan.emit_rules import Columns
from heronpy.plan.grouping import All, Custom, Direct, Fields, LocalOrShuffle, Lowest, Shuffle
from heronpy.task.emitter import marks_of
from heronpy.task.user_code import emit_columns
from heronpy.wire import codec
from heronpy.wire.frames import DATA, REGISTER, derived_edges, edges_of, roots_of, unpack16, values_of
from tests.instance.emitting import TASK, Harness, frame_of

# ---- routing ----------------------------------------------------------------------------------


def test_fields_grouping_sends_equal_keys_to_the_task_of_their_hash() -> None:
    h = Harness({"default": (["word"], [Fields([0], [3, 4, 5])])})
    words = [f"w{n % 50}" for n in range(1000)] + [1, 1.0, True, "", "x" * 5000, b"b", None, (1, 2)]
    for word in words:
        h.emit([word])
    got = h.values()
    assert sum(map(len, got.values())) == len(words)
    for task, rows in got.items():
        for (word,) in rows:
            assert task == [3, 4, 5][stable_hash(word) % 3]


def test_shuffle_spreads_evenly_however_small_the_flushes() -> None:
    for total in (1, 2, 3, 7, 1000):
        h = Harness({"default": (["n"], [Shuffle([3, 4, 5, 6])])})
        for number in range(100):
            for _ in range(total):
                h.emit([number])
            h.emitter.flush()
        counts = Counter({task: len(rows) for task, rows in h.values().items()})
        assert sum(counts.values()) == 100 * total
        assert max(counts.values()) - min(counts.values()) <= 1


def test_shuffles_of_different_senders_begin_at_different_tasks() -> None:
    h = Harness({"default": (["n"], [Shuffle([3, 4, 5])])})
    h.emit([1])
    assert list(h.values()) == [[3, 4, 5][TASK % 3]]


def test_local_all_lowest_custom_and_several_consumers() -> None:
    class Both:
        def choose_tasks(self, values: Any) -> list[int]:
            return [20, 21] if values[0] else []

    h = Harness({
        "default": (["n"], [All([3, 4]), Lowest([9, 8]), LocalOrShuffle([10, 11], [11]), Custom(Both(), [20, 21])]),
    })  # fmt: skip
    h.emit([1])
    h.emit([0])
    got = h.values()
    assert got == {3: [[1], [0]], 4: [[1], [0]], 8: [[1], [0]], 11: [[1], [0]], 20: [[1]], 21: [[1]]}
    assert h.emitter.emitted() == 2 * 4 + 2


def test_direct_needs_a_task_that_listens() -> None:
    h = Harness({"default": (["n"], [Direct([3, 4])])}, direct=("default",))
    assert h.emit([1], direct_task=4, need_task_ids=True) == [4]
    with pytest.raises(TopologyError, match="without a task"):
        h.emit([1])
    with pytest.raises(TopologyError, match="has no consumer with direct grouping"):
        h.emit([1], direct_task=5)
    assert h.values() == {4: [[1]]}


def test_a_stream_without_consumers_counts_as_emitted() -> None:
    h = Harness({"default": (["n"], [])})
    h.emit([1])
    assert h.data() == []
    assert h.emitter.emitted() == 1


def test_streams_without_fields_carry_empty_tuples() -> None:
    h = Harness({"default": ([], [Shuffle([3])])})
    for _ in range(3):
        h.emit([])
    assert h.values() == {3: [[], [], []]}


# ---- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("chooser", [Fields([0], [3, 4]), Shuffle([3, 4]), All([3, 4])])
@pytest.mark.parametrize("fields", [["a"], ["a", "b"]])
def test_what_is_not_a_list_of_the_right_length_is_refused(chooser: Any, fields: list[str]) -> None:
    h = Harness({"default": (fields, [chooser]), "other": (fields, [Shuffle([9])])})
    width = len(fields)
    for text in ("a" * width, "é" * width, "日" * width):
        h.emit(list(text))
        with pytest.raises(TopologyError, match=r"emitted a str .* emit a list of values"):
            h.emit(text)
        with pytest.raises(TopologyError, match="emitted a str"):
            h.emit(text, stream="other")
    with pytest.raises(TopologyError, match="emitted a str"):
        h.emit("longer")
    for wrong in ([1] * (width + 1), []):
        with pytest.raises(TopologyError, match=f"which declares {width}"):
            h.emit(wrong)
    items = dict.fromkeys(range(width), "a")
    for odd, name in ((5, "int"), (b"a" * width, "bytes"), (bytearray(width), "bytearray"), (items, "dict")):
        with pytest.raises(TopologyError, match=f"emitted a {name} .* emit a list of values"):
            h.emit(odd)
    with pytest.raises(TopologyError, match="emitted a dict"):
        h.emit({n: n for n in "ab"[:width]}, stream="other")
    h.emit(tuple("b" * width))
    assert h.emitter.emitted() == (3 + 1) * (2 if isinstance(chooser, All) else 1)


def test_values_are_frozen_at_emit() -> None:
    h = Harness({"default": (["n", "value"], [Shuffle([3])])})
    value = [1]
    h.emit([1, value])
    value.append(2)
    row = [2, "x"]
    h.emit(row)
    row[1] = "changed"
    assert h.values() == {3: [[1, [1]], [2, "x"]]}


def test_pickle_may_be_forbidden() -> None:
    h = Harness({"default": (["n"], [Fields([0], [3, 4])])}, allow_pickle=False)
    for value in (1, "a", 2**80, "\ud800", None, b"x", 1.5):
        h.emit([value])
    with pytest.raises(LocalWireError, match="this topology forbids it"):
        h.emit([(1, 2)])
    strict = codec.decoder(allow_pickle=False)
    found = [value for frame in h.data() for value in strict(frame.payload, frame.codec)]
    assert sorted(map(repr, found)) == sorted(map(repr, (1, "a", 2**80, "\ud800", None, b"x", 1.5)))


def test_the_topologys_own_serializer_sees_every_value() -> None:
    h = Harness({"default": (["n"], [Shuffle([3])])}, serialize=lambda value: repr(value).encode())
    h.emit([1])
    h.emit([{"a": 1}])
    [frame] = h.data()
    assert frame.codec == codec.USER
    assert codec.decoder(deserialize=lambda data: data)(frame.payload, frame.codec) == [b"1", b"{'a': 1}"]


# ---- sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 100, 1024, 1025, 65_535, 65_537, 1 << 20, 32 << 20, (32 << 20) + 1, 64 << 20])
@pytest.mark.parametrize("chooser", [Fields([0], [3, 4]), Shuffle([3, 4]), All([3, 4])])
def test_tuples_of_every_size_pass_or_are_refused_at_emit(chooser: Any, size: int) -> None:
    h = Harness({"default": (["key", "value"], [chooser])})
    h.emit([1, "before"])
    if size + 20 > 32 << 20:
        with pytest.raises(TopologyError, match=r"emitted a tuple of \d+ bytes .* the limit is 33554432"):
            h.emit([1, "x" * size])
    else:
        h.emit([1, "x" * size])
    h.emit([1, "after"])
    frames = h.data()
    assert max(frame.ByteSize() for frame in frames) < 33 << 20
    lengths = {len(row[1]) for rows in h.values().values() for row in rows}
    assert lengths == {6, 5} | ({size} if size + 20 <= 32 << 20 else set())


def test_the_limit_of_a_tuple_stays_below_that_of_a_frame() -> None:
    h = Harness({"default": (["value"], [Shuffle([3])])}, frame_max=1 << 20, tuple_max_bytes=64 << 20)
    h.emit([b"x" * ((1 << 20) - (70 << 10))])
    with pytest.raises(TopologyError, match="frame_max_bytes"):
        h.emit([b"x" * (1 << 20)])
    assert max(frame.ByteSize() for frame in h.data()) < 1 << 20


@pytest.mark.parametrize("tracked", [None, "spout"])
def test_a_batch_of_many_small_texts_never_fills_a_frame(tracked: str | None) -> None:
    """Texts of up to 1,024 characters are counted, not measured: they may be 4 KB each."""
    h = Harness({"default": (["a", "b"], [Fields([0], [3, 4])])}, tracked=tracked, frame_max=3 << 20)
    for number in range(3000):
        row = ["k", "\U0001f600" * 1024]
        h.track(row, number) if tracked else h.emit(row)
    frames = h.data()
    assert max(frame.ByteSize() for frame in frames) <= 1 << 20
    assert sum(frame.count for frame in frames) == 3000
    if tracked:
        roots = [int(root) for frame in frames for root in roots_of(frame)]
        assert roots == list(range(roots[0], roots[0] + 3000))


def test_batches_adapt_to_the_weight_of_tuples() -> None:
    h = Harness({"default": (["a"], [Shuffle([3])])})
    for _ in range(20_000):
        h.emit(["x" * 500])
    sizes = [frame.ByteSize() for frame in h.data()]
    assert max(sizes[2:]) < 100_000


@pytest.mark.parametrize("batch", [1, 4, 50])
def test_no_batch_is_larger_than_the_setting(batch: int) -> None:
    h = Harness({"default": (["a"], [Shuffle([3])])}, batch_tuples=batch)
    for _ in range(1000):
        h.emit(["x"])
    assert max(frame.count for frame in h.data()) == batch


def test_room_is_asked_for_after_the_buffers_are_in_order() -> None:
    h = Harness({"default": (["n"], [Shuffle([3, 4])])})

    def room() -> None:
        # A new plan comes while the emit waits: it flushes and routes again.
        assert not h.emitter.dirty()
        h.emitter.route({"default": [Shuffle([3, 4, 5])]})

    h.room = room  # type: ignore[method-assign]
    for number in range(9000):
        h.emit([number])
    assert sorted(row[0] for rows in h.values().values() for row in rows) == list(range(9000))
    assert h.values().keys() == {3, 4, 5}


# ---- order ------------------------------------------------------------------------------------

CHOOSERS = st.sampled_from(["shuffle", "fields", "all", "lowest"])


def chooser_of(kind: str, tasks: list[int]) -> Any:
    return {"shuffle": Shuffle, "all": All, "lowest": Lowest}.get(kind, lambda t: Fields([0], t))(tasks)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(CHOOSERS, st.sampled_from([[3, 4], [3, 4, 5], [8], [8, 9]])), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=80),
    st.sampled_from([None, "spout", "bolt"]),
    st.integers(1, 9),
)
def test_tuples_to_one_task_keep_the_order_of_their_emits(
    consumers: list[tuple[str, list[int]]], emits: list[tuple[int, int, bool]], tracked: str | None, batch: int
) -> None:
    names = ["default", "a", "b"][: len(consumers)]
    h = Harness(
        {name: (["key", "n"], [chooser_of(*consumers[i]), *([All([3])] if i else [])]) for i, name in enumerate(names)},
        tracked=tracked,
        batch_tuples=batch,
    )
    expected: Counter[int] = Counter()
    anchors = iter(frame_of(len(emits) + 1))
    for number, (which, key, special) in enumerate(emits):
        name = names[which % len(names)]
        stream = h.emitter.streams[name]
        mark = None if tracked is None or key == 3 else number if tracked == "spout" else next(anchors)
        row = [key if key else "long" * 400, number]
        if special:
            h.emitter.emit_to(stream, row, mark, None)
        else:
            h.emitter.push(stream, row, mark)
        expected[number] = sum(len(c.tasks) if isinstance(c, All) else 1 for c in stream.choosers)
    seen: Counter[int] = Counter()
    for rows in h.values().values():
        numbers = [row[1] for row in rows]
        assert numbers == sorted(numbers)
        seen.update(numbers)
    assert seen == expected
    assert h.emitter.emitted() == sum(expected.values())
    assert not h.emitter.buffered()


def test_alternating_streams_to_one_consumer_share_frames() -> None:
    h = Harness({"a": (["x"], [Fields([0], [3])]), "b": (["x", "y"], [Fields([1], [3])]), "c": ([], [All([3])])})
    for number in range(20):
        h.special([number], stream="a")
        h.special([number, "k"], stream="b")
        h.special([], stream="c")
    assert h.got()[3] == [one for n in range(20) for one in (("a", [n]), ("b", [n, "k"]), ("c", []))]
    assert len(h.data()) == 1


@pytest.mark.parametrize("tracked", [None, "spout"])
def test_mixed_streams_are_cut_between_tuples(tracked: str | None) -> None:
    """A slow task gets frames of a few tuples; those of two streams have different widths."""
    h = Harness({"a": (["x"], [Fields([0], [3])]), "b": (["x", "y"], [Fields([1], [3])])}, tracked=tracked)
    h.emitter.heed(3, False, 7)
    for number in range(20):
        if tracked:
            h.track([number], 2 * number, stream="a")
            h.track([number, "k"], 2 * number + 1, stream="b")
        else:
            h.special([number], stream="a")
            h.special([number, "k"], stream="b")
    assert h.got()[3] == [one for n in range(20) for one in (("a", [n]), ("b", [n, "k"]))]
    assert max(frame.count for frame in h.data()) == 7


# ---- tracking -----------------------------------------------------------------------------------


def test_tracked_and_untracked_tuples_go_in_frames_of_their_own() -> None:
    h = Harness({"default": (["n"], [Shuffle([3])])}, tracked="spout")
    h.track([0], 1)
    h.emitter.flush()
    assert not h.emitter.batches.untracked
    for number, tup_id in enumerate([None, None, 2, 3, None], 1):
        h.track([number], tup_id)
    frames = h.data()
    assert h.emitter.batches.untracked
    assert [(frame.count, frame.tracked) for frame in frames] == [(1, True), (2, False), (2, True), (1, False)]
    assert h.values() == {3: [[n] for n in range(6)]}
    assert h.pending.total == 3
    assert frames[0].root_base + 1 == frames[2].root_base


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_copies_of_a_tracked_tuple_come_after_the_register_of_their_xor(batch: int) -> None:
    h = Harness({"default": (["n"], [All([3, 4]), Shuffle([8, 9])])}, tracked="spout", batch_tuples=batch)
    for number in range(50):
        h.track([number], None if number % 10 == 9 else f"id{number}")
    h.emitter.flush()
    xor: dict[int, int] = {}
    for frame in h.frames:
        if frame.kind == REGISTER:
            roots = range(frame.root_base, frame.root_base + frame.count)
            for root, value in zip(roots, values_of(frame).tolist(), strict=True):
                assert root not in xor
                xor[root] = value
        elif frame.tracked:
            assert frame.registered and frame.root_task == TASK
            for root, edge in zip(roots_of(frame).tolist(), edges_of(frame).tolist(), strict=True):
                xor[root] ^= edge
    assert len(xor) == 45 == h.pending.total
    assert not any(xor.values())
    assert all(row == [[n] for n in range(50)] for dest, row in h.values().items() if dest in (3, 4))


def test_a_tracked_tuple_that_nobody_takes_is_complete_at_once() -> None:
    h = Harness({"default": (["n"], [])}, tracked="spout")
    h.track([1], "id")
    assert h.emitter.unrouted == ["id"] and not h.pending.total


def test_anchors_hand_their_roots_on_and_take_the_edges() -> None:
    h = Harness({"default": (["n"], [Fields([0], [3, 4])])}, tracked="bolt")
    tuples = frame_of(10)
    for tup in tuples:
        h.emit([tup.values[0]], anchors=[tup])
    h.emitter.settle()
    frames = h.data()
    value = {100 + i: 5 for i in range(10)}
    for frame in frames:
        for root, edge in zip(roots_of(frame).tolist(), edges_of(frame).tolist(), strict=True):
            value[root] ^= edge
    inner = tuples[0].frame
    assert inner.values_ is not None
    assert inner.values_.tolist() == [value[100 + i] for i in range(10)]
    assert all(frame.root_task == 1 for frame in frames)


def test_anchors_that_share_a_root_count_it_once() -> None:
    h = Harness({"default": (["n"], [Shuffle([3])])}, tracked="bolt")
    first, second = frame_of(2), frame_of(2)
    h.emit([1], anchors=[first[0], second[0], first[0]])
    h.emit([2], anchors=[first[1], second[0]])
    [frame] = h.data()
    assert [*frame.root_counts] == [1, 0, 0, 0, 2, 0, 0, 0]
    edges = derived_edges(frame.edge, 2).tolist()
    total = {100: 0, 101: 0}
    for inner in (first[0].frame, second[0].frame):
        inner.unpack()
        for root, value in zip(inner.roots.tolist(), inner.values_.tolist(), strict=True):
            total[root] ^= value ^ 5
    assert total == {100: edges[0] ^ edges[1], 101: edges[1]}


def test_a_number_of_millions_of_digits_is_refused() -> None:
    h = Harness({"default": (["n"], [Shuffle([3])])}, frame_max=1 << 20)
    h.emit([1 << (8 << 20)])
    with pytest.raises(TopologyError, match="the limit is"):
        h.emitter.flush()


def test_a_tuple_with_too_many_roots_is_refused() -> None:
    h = Harness({"default": (["n"], [Shuffle([3])])}, tracked="bolt", frame_max=300_000)
    h.emit([1], anchors=frame_of(20_000))
    with pytest.raises(TopologyError, match="anchor it to fewer"):
        h.emitter.flush()


# ---- several consumers ------------------------------------------------------------------------

VALUE = st.one_of(st.integers(-3, 3), st.sampled_from(["a", "b", "x" * 2000]), st.none(), st.booleans(),
                  st.floats(allow_nan=False), st.tuples(st.integers(0, 2)))  # fmt: skip


@given(rows=st.lists(st.tuples(VALUE, VALUE, VALUE), max_size=60), tracked=st.sampled_from([None, "bolt"]),
       mixed=st.booleans(), memo=st.sampled_from([1, 1000]), batch=st.integers(1, 20))  # fmt: skip
def test_each_of_several_consumers_gets_what_the_general_path_gives_it(
    rows: list[tuple[Any, ...]], tracked: str | None, mixed: bool, memo: int, batch: int
) -> None:
    """Compiled, by `push` and tuple by tuple the long way: the same tuples in the same order, with the same roots."""
    fields = ["a", "b", "c"]
    found = []
    for way in ("emit", "push", "general"):
        streams = {"default": (fields, [Fields([0], [3, 4]), Fields([2], [5, 6, 8])])}
        if mixed:
            streams["other"] = (fields, [Fields([1], [3, 4])])
        h = Harness(streams, tracked, route_memo_keys=memo, batch_tuples=batch)
        anchors = frame_of(max(1, len(rows)))
        for row, anchor in zip(rows, anchors):
            for name in streams:
                stream = h.emitter.streams[name]
                mark = anchor if tracked else None
                if way == "emit":
                    h.emit(list(row), name, [anchor])
                elif way == "push":
                    h.emitter.push(stream, list(row), mark)
                else:
                    h.emitter.emit_to(stream, list(row), mark, None)
        assert h.emitter.emitted() == len(rows) * (3 if mixed else 2)
        got = h.got()
        roots: dict[int, list[Any]] = {}
        for frame in h.data():
            if frame.tracked:
                counts = unpack16(frame.root_counts) if frame.root_counts else None
                roots.setdefault(frame.dest_task, []).append((frame.count, counts is None or list(counts)))
        found.append((got, sum(count for frames in roots.values() for count, _ in frames)))
    assert found[0] == found[1] == found[2]


def test_a_wrong_width_reaches_no_consumer() -> None:
    h = Harness({"default": (["a", "b", "c"], [Fields([0], [3]), Fields([1], [4])])})
    with pytest.raises(TopologyError, match="2 values"):
        h.emit(["x", "y"])
    with pytest.raises(LocalWireError):
        h.emit(["x", "y", threading.Lock()])
    assert not h.emitter.dirty()


# ---- many tuples at once ----------------------------------------------------------------------


@pytest.mark.parametrize("tracked", [None, "bolt"])
@pytest.mark.parametrize("memo", [3, 1000])
def test_tuples_that_are_emitted_together_go_where_single_ones_do(tracked: str | None, memo: int) -> None:
    """Any grouping by fields, more keys than are remembered, more tasks than a byte counts, values that need a look."""
    tasks = list(range(2, 700, 2))
    rows = [[n % 400, odd, float(n)] for n in range(900) for odd in ("s", None, "x" * 2000, (1, n))[: 1 + n % 97 // 93]]
    anchors = frame_of(len(rows))
    found = []
    for together in (False, True):
        streams = {
            "few": (["a", "b", "c"], [Fields([0], [3, 4, 5])]),
            "pairs": (["a", "b", "c"], [Fields([1, 0], tasks)]),
            "many": (["a", "b", "c"], [Fields([2], tasks)]),
            "spread": (["a", "b", "c"], [Shuffle([900, 901], start=0)]),
        }
        h = Harness(streams, tracked, route_memo_keys=memo, batch_tuples=50)
        for name in streams:
            stream = h.emitter.streams[name]
            marks = marks_of(anchors, len(rows)) if tracked else None
            if together:
                h.emitter.push_columns(stream, Columns([list(c) for c in zip(*rows)], len(rows)), marks)
            else:
                for place, row in enumerate(rows):
                    h.emitter.push(stream, row, marks[place] if marks else None)
        got = h.values()
        # A shuffle cuts what it has into shares, and so depends on when it is flushed.
        got[0] = sorted([*got.pop(900), *got.pop(901)], key=repr)
        found.append(got)
        assert h.emitter.emitted() == 4 * len(rows)
        assert max(frame.count for frame in h.frames if frame.kind == DATA) <= 50 * 8
    assert found[0] == found[1]


def test_a_task_that_moves_changes_where_keys_that_are_emitted_together_go() -> None:
    h = Harness({"default": (["word"], [Fields([0], [3, 4])])})
    stream, words = h.emitter.streams["default"], [f"w{n}" for n in range(50)]
    h.emitter.push_columns(stream, Columns([words], 50), None)
    h.emitter.route({"default": [Fields([0], [5, 6, 7])]})
    h.emitter.push_columns(stream, Columns([words], 50), None)
    got = h.values()
    for task in (5, 6, 7):
        assert all(task == [5, 6, 7][stable_hash(word) % 3] for [word] in got[task])
    assert sum(len(got[task]) for task in (5, 6, 7)) == 50


def test_hooks_see_each_tuple_that_is_emitted_together() -> None:
    h = Harness({"default": (["word"], [Fields([0], [3, 4])])})
    seen: list[Any] = []

    class Hooks:
        has_hooks = True

        def invoke_hook_emit(self, values: Any, stream: str, tasks: list[int]) -> None:
            seen.append((values, stream, len(tasks)))

    emit_columns(h.emitter, Hooks(), h.emitter.streams["default"], Columns([["a", "b"]], 2), None, None)  # type: ignore[arg-type]
    assert seen == [(["a"], "default", 1), (["b"], "default", 1)]
