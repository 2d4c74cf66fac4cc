"""Heron's query language: what each operator makes of minutes, and what is said of a query that makes no sense."""

from __future__ import annotations

import struct
from math import nan
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.proto import control_pb2
from heronpy.tracker.metrics_query import Points, QueryError, Span, Wanted, evaluated, parsed, series
from tests.cli.conftest import FakeTopology
from tests.tracker.conftest import Asking

A, B = "TS(a, *, m)", "TS(b, *, m)"
SPAN = Span(120, 300)
#: By component: the second misses minute 180, and has a 0 at 240.
MINUTES = {"a": {60: 1.0, 120: 2.0, 180: 4.0, 240: 8.0, 300: 16.0, 360: 32.0}, "b": {120: 10.0, 240: 0.0, 300: 4.0}}


def source(wanted: Wanted) -> Points:
    return dict(MINUTES[wanted.component])


@pytest.mark.parametrize(
    ("query", "values"),
    [
        (A, {120: 2, 180: 4, 240: 8, 300: 16}),
        (f"  ( {A} ) ", {120: 2, 180: 4, 240: 8, 300: 16}),
        (f"DEFAULT(7, {B})", {120: 10, 180: 7, 240: 0, 300: 4}),
        (f"SUM({A}, {B})", {120: 12, 180: 4, 240: 8, 300: 20}),
        (f"SUM(1, 2, {B})", {120: 13, 180: 3, 240: 3, 300: 7}),
        (f"MAX({A}, {B})", {120: 10, 180: 4, 240: 8, 300: 16}),
        (f"MAX(5, {B})", {120: 10, 180: 5, 240: 5, 300: 5}),
        (f"MAX({B})", {120: 10, 240: 0, 300: 4}),
        (f"PERCENTILE(0, {A}, {B})", {120: 2, 180: 4, 240: 0, 300: 4}),
        (f"PERCENTILE(100, {A}, {B})", {120: 10, 180: 4, 240: 8, 300: 16}),
        (f"PERCENTILE(50, {A}, {B}, {A})", {120: 2, 180: 4, 240: 8, 300: 16}),
        (f"DIVIDE({A}, {B})", {120: 0.2, 300: 4}),
        (f"DIVIDE({A}, 2)", {120: 1, 180: 2, 240: 4, 300: 8}),
        (f"DIVIDE(1, {B})", {120: 0.1, 300: 0.25}),
        (f"MULTIPLY({A}, {B})", {120: 20, 240: 0, 300: 64}),
        (f"MULTIPLY(60, {B})", {120: 600, 240: 0, 300: 240}),
        (f"SUBTRACT({A}, {B})", {120: -8, 240: 8, 300: 12}),
        # The minute before the first counts; after a hole there is nothing to compare with.
        (f"RATE({A})", {120: 1, 180: 2, 240: 4, 300: 8}),
        (f"RATE({B})", {300: 4}),
        (f"DIVIDE(SUM(RATE({A}), 1), MAX({B}, 2))", {120: 0.2, 180: 1.5, 240: 2.5, 300: 2.25}),
    ],
)
def test_what_an_operator_makes(query: str, values: dict[int, float]) -> None:
    assert evaluated(parsed(query), source, SPAN) == pytest.approx(values)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "neither a number nor an operator"),
        ("7", "the query is a constant"),
        ("nan", "neither a number"),
        ("SUMM(TS(a, *, m))", "there is no operator 'SUMM'; did you mean 'SUM'?"),
        ("ts(a, *, m)", "there is no operator 'ts'; did you mean 'TS'?"),
        ("TS(a, *)", "TS takes a component, * and a metric"),
        ("TS(a, container_1_a_1, m)", "write * for 'container_1_a_1'"),
        (f"SUM({A}", "a closing bracket is missing"),
        (f"SUM({A}))", "a closing bracket too many"),
        (f"SUM({A}) 3", "does not end with its closing bracket"),
        (f"({A}, {B})", "no operator before its bracket"),
        ("SUM()", "SUM takes 1 argument or more; here it has 0"),
        (f"DIVIDE({A})", "DIVIDE takes 2 arguments; here it has 1"),
        (f"DIVIDE({A}, 0)", "0 as its divisor"),
        (f"PERCENTILE({A}, 50)", "the first argument of PERCENTILE must be a number"),
        (f"PERCENTILE(101, {A})", "must be from 0 to 100"),
        ("PERCENTILE(50, 1)", "PERCENTILE needs a series"),
        ("RATE(3)", "RATE needs a series, not the number 3"),
        (f"DEFAULT({A}, 3)", "the first argument of DEFAULT must be a number"),
        (f"SUM({A},)", "neither a number nor an operator"),
        ("(" * 30 + A + ")" * 30, "levels deep"),
        ("SUM(" + ", ".join(["1"] * 200) + ")", "SUM takes"),
        ("x" * 5000, "5000 characters"),
    ],
)
def test_a_query_that_makes_no_sense_is_one_sentence(query: str, said: str) -> None:
    with pytest.raises(QueryError) as error:
        parsed(query)
    assert said in str(error.value) and "\n" not in str(error.value) and not str(error.value).endswith(".")


PIECES = st.sampled_from(["SUM", "TS", "RATE", "MAX", "DIVIDE", "(", ")", ",", "*", "a", "1", " ", A, B, "-1e9", "é"])


@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_text_is_a_query_or_an_error_of_it(text: str) -> None:
    try:
        query = parsed(text)
    except QueryError:
        return
    try:
        found = evaluated(query, source, SPAN)
    except KeyError:
        return  # a component that these minutes do not have
    assert set(found) <= set(SPAN.minutes()) and len(series(query)) <= 100


# ---- over HTTP, in the shape of heron/tools/tracker/src/python/routers/metrics.py of Heron 0.20.5 ----------------

NAMED = "cluster=local&environ=default&topology=wordy"


@pytest.fixture
def minutes(busy: FakeTopology) -> FakeTopology:
    reply = control_pb2.TimelineReply(first=6000.0, step_s=60.0, points=3, known_since=6000.0)
    reply.series.add(component="count", name="executed", values=struct.pack("<3f", 10.0, nan, 30.0))
    reply.series.add(component="count", name="busy", values=struct.pack("<3f", 0.5, 0.25, 1.0))
    busy.answers["get_timeline"] = reply
    return busy


def ask(asking: Asking, query: str, path: str = "metricsquery", start: int = 6000, end: int = 6120) -> Any:
    address = f"/topologies/{path}?{NAMED}&starttime={start}&endtime={end}&query={quote(query)}"
    return asking.ask("GET", address)


@pytest.mark.parametrize("path", ["metricsquery", "metrics/query"])
def test_the_answer_is_herons(path: str, asking: Asking, minutes: FakeTopology) -> None:
    response = ask(asking, "TS(count, *, __execute-count)", path)
    assert response.status_code == 200, response.text
    assert response.json() == {
        "starttime": 6000,
        "endtime": 6120,
        # Counts of a minute; of the one in the middle nothing is known.
        "timeline": [{"instance": None, "data": {"6000": "600.0", "6120": "1800.0"}}],
    }
    body = next(body for name, body in minutes.asked if name == "get_timeline")
    assert isinstance(body, control_pb2.GetTimeline)
    assert (list(body.components), list(body.names), body.since, body.until) == (
        ["count"],
        ["executed"],
        5880.0,
        6180.0,
    )


def test_own_series_can_be_named_too(asking: Asking, minutes: FakeTopology) -> None:
    response = ask(asking, "MULTIPLY(TS(count, *, busy), TS(count, *, executed_per_s))")
    assert response.json()["timeline"] == [{"instance": None, "data": {"6000": "5.0", "6120": "30.0"}}]


@pytest.mark.parametrize(
    ("query", "start", "status", "said"),
    [
        ("TS(cuont, *, busy)", 6000, 404, "no component 'cuont'"),
        ("TS(count, *, __execute-count/default)", 6000, 400, "all streams together; write __execute-count"),
        ("TS(count, *, bussy)", 6000, 400, "did you mean 'busy'?"),
        ("SUM(", 6000, 400, "closing bracket"),
        ("TS(count, *, busy)", 6121, 400, "starttime is 6121, after endtime"),
        ("TS(count, *, busy)", 0, 200, ""),
    ],
)
def test_a_bad_question_is_one_sentence(
    query: str, start: int, status: int, said: str, asking: Asking, minutes: FakeTopology
) -> None:
    response = ask(asking, query, start=start)
    assert response.status_code == status, response.text
    assert status == 200 or said in response.json()["title"]


def test_a_question_over_too_many_minutes_is_refused(asking: Asking, minutes: FakeTopology) -> None:
    response = ask(asking, "TS(count, *, busy)", end=6000 + 61 * 1000 * 60)
    assert response.status_code == 400 and "at most 1000" in response.json()["title"]
