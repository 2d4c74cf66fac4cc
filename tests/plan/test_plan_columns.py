"""What may be given to emit_batch, and what is said about anything else."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from heronpy.common.errors import TopologyError
from heronpy.plan.emit_rules import ColumnRules

RULES = ColumnRules("work", "default", ["word", "count"])
WORDS, COUNTS = ["a", "b", "c"], [1, 2, 3]


@pytest.mark.parametrize(
    "columns",
    [
        {"word": WORDS, "count": COUNTS},
        {"count": COUNTS, "word": WORDS},
        {"word": np.array(WORDS), "count": np.array(COUNTS)},
        {"word": pd.Series(WORDS), "count": pa.array(COUNTS)},
        {"word": tuple(WORDS), "count": range(1, 4)},
        {"word": deque(WORDS), "count": pa.chunked_array([[1, 2], [3]])},
        [WORDS, COUNTS],
        (WORDS, np.array(COUNTS)),
        pd.DataFrame({"count": COUNTS, "word": WORDS}),
        pa.record_batch({"word": WORDS, "count": COUNTS}),
        pa.table({"count": COUNTS, "word": WORDS}),
    ],
)
def test_columns_of_every_library_become_python_values(columns: Any) -> None:
    given = RULES.columns(columns, None)
    assert (given.values, given.size) == ([WORDS, COUNTS], 3)
    assert {type(value) for column in given.values for value in column} == {str, int}
    assert given.rows() == [["a", 1], ["b", 2], ["c", 3]]


@pytest.mark.parametrize("rows", [[["a", 1], ("b", 2)], (("a", 1), ["b", 2]), deque([["a", 1], deque(["b", 2])])])
def test_rows(rows: Any) -> None:
    given = RULES.columns(None, rows)
    assert (given.values, given.size) == ([["a", "b"], [1, 2]], 2)
    assert given.part(1, 9).rows() == [["b", 2]] and given.part(1, 9).size == 1


@pytest.mark.parametrize(
    "rows", [np.array([[1, 2], [3, 4]]), [np.array([1, 2]), [3, 4]], (np.array([1, 2]), np.array([3, 4]))]
)
def test_rows_of_arrays_become_python_values(rows: Any) -> None:
    given = RULES.columns(None, rows)
    assert given.rows() == [[1, 2], [3, 4]]
    assert {type(value) for column in given.values for value in column} == {int}


def test_a_frame_as_a_column_is_refused() -> None:
    """`df[["word"]]` is a frame, `df["word"]` its column; a frame's items are the names of its columns."""
    frame = pd.DataFrame({"word": WORDS, "count": COUNTS})
    with pytest.raises(TopologyError, match="column 'word' of type DataFrame"):
        RULES.columns({"word": frame[["word"]], "count": COUNTS[:1]}, None)


def test_rows_of_a_stream_without_fields_are_counted() -> None:
    rules = ColumnRules("work", "signs", [])
    assert rules.columns(None, [[], [], []]).rows() == [[], [], []]
    with pytest.raises(TopologyError, match=r"declares no fields; give rows="):
        rules.columns({}, None)


def test_nothing_is_allowed() -> None:
    assert RULES.columns([[], []], None).size == RULES.columns(None, []).size == 0


def test_times_of_numpy_keep_their_type() -> None:
    moments = np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[ns]")
    [_, found] = RULES.columns([["a", "b"], moments], None).values
    assert [type(value) for value in found] == [np.datetime64] * 2 and found == list(moments)


@pytest.mark.parametrize(
    ("columns", "rows", "why"),
    [
        (None, None, "called emit_batch with neither columns nor rows; give exactly one"),
        ([WORDS, COUNTS], [["a", 1]], "called emit_batch with both columns and rows; give exactly one"),
        ([WORDS], None, "emitted 1 columns; the stream declares 2: word, count"),
        ({"word": WORDS}, None, "emitted the columns 'word'; the stream declares 2: word, count"),
        ({"word": WORDS, "count": COUNTS, "x": COUNTS}, None, "the columns 'word', 'count', 'x'; the stream declares 2"),
        ([WORDS, [1]], None, "columns of different lengths: word has 3, count has 1"),
        ([WORDS, "abc"], None, "column 'count' of type str; give a list or an array of values"),
        ([WORDS, 3], None, "column 'count' of type int; give a list or an array of values"),
        ([WORDS, np.zeros((3, 2))], None, "column 'count' with 2 dimensions; give one value for each tuple"),
        (np.zeros((2, 3)), None, "columns of type ndarray; give a dict from each field to its values, or rows="),
        ("ab", None, "columns of type str"),
        (5, None, "columns of type int"),
        (None, "ab", "rows='ab'; give a list with a list of values for each tuple"),
        (None, ["ab"], "the row 'ab'; give a list of values for each tuple"),
        (None, [["a", 1], 5], "the row 5; give a list of values for each tuple"),
        (None, [["a", 1], ["b"]], "a row of 1 values; the stream declares 2: word, count"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(columns: Any, rows: Any, why: str) -> None:
    with pytest.raises(TopologyError) as error:
        RULES.columns(columns, rows)
    assert why in str(error.value) and "component work" in str(error.value)


def test_there_is_one_anchor_for_each_tuple() -> None:
    RULES.check_count("anchors", 3, 3)
    with pytest.raises(TopologyError, match="emitted 3 tuples with 2 anchors; give one per tuple, in the same order"):
        RULES.check_count("anchors", 2, 3)
