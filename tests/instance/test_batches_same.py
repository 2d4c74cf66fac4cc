"""Batches against single tuples: random small programs give the same results in both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api.batch import Batch
from tests.simulator import random_programs
from tests.simulator.random_programs import FITTING, OUTPUTS, ROWS, Chain, chains

FIELDS = {stream.stream_id: stream.fields for stream in OUTPUTS}


class Values:
    """Emits rows and columns of Python values."""

    outputs = OUTPUTS

    def row_of(self, stream: str, values: list[Any], number: int) -> list[Any]:
        return [*values, number, number][: len(FIELDS[stream])]

    def emit_rows(self: Any, form: str, stream: str, rows: ROWS, **more: Any) -> None:
        fields = FIELDS[stream]
        columns = [[row[place] for row in rows] for place in range(len(fields))]
        if form == "rows" or not fields:
            self.emit_batch(rows=rows, stream=stream, **more)
        elif form == "dict":
            self.emit_batch(dict(reversed(list(zip(fields, columns)))), stream=stream, **more)
        elif form == "numpy":
            arrays = []
            for column in columns:
                array = np.empty(len(column), dtype=object)
                array[:] = column
                arrays.append(array)
            self.emit_batch(arrays, stream=stream, **more)
        else:
            self.emit_batch(columns, stream=stream, **more)


class Source(Values, random_programs.Source): ...


class Singly(Values, random_programs.Singly): ...


class Together(Values, random_programs.Together):
    def check(self, batch: Batch) -> None:
        assert batch.rows() == [tuple(tup.values) for tup in batch]
        assert list(batch.columns) == FIELDS[batch.stream]
        assert list(zip(*batch.columns.values())) == (batch.rows() if batch.columns else [])


class Program(Chain):
    kinds = (Source, Singly, Together)


values = st.sampled_from([0, 1, 1.0, True, None, "x", "", "key", "é", b"ab", 2**70, (1, 2), "y" * 1500, float("nan")])
plain = st.sampled_from([0, 1, 2, None, "x", "key", b"ab", 0.5])
row = st.one_of(*(st.lists(kind, min_size=2, max_size=2) for kind in (values, plain, plain)))


@settings(max_examples=10, deadline=None)
@given(chains(Program, FITTING, row, ["rows", "dict", "numpy", "list"]))
def test_batches_and_single_tuples_give_the_same(program: Program) -> None:
    program.check()
