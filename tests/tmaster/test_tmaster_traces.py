"""Joining spans: whatever their order, a tuple's way adds up, and what is kept is bounded."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.proto import control_pb2
from heronpy.tmaster.traces import SETTLE_S, SPANS_MAX, TRACES_MAX, Clocks, TraceStore, placed, quantile, way_of
from heronpy.views.traces import Traces

Span = control_pb2.Span
MS = 1_000_000


def report(*spans: Span, component: str = "count") -> control_pb2.MetricsReport:
    return control_pb2.MetricsReport(process=f"container_1_{component}_2", component=component, spans=spans)


def root(trace: int, began: int = 1000, at: float = 50.0) -> Span:
    return Span(trace=trace, number=1, began=began, ended=began + 2 * MS, at=at, clock=9)


def child(trace: int, number: int, parent: int, at: int, *, step: int = MS, clock: int = 9) -> Span:
    """A call that begins 6 steps after `at`, and lasts one."""
    return Span(
        trace=trace, number=number, parent=parent, emitted=at, sealed=at + step, left=at + 2 * step,
        hops=[at + 3 * step, at + 4 * step], began=at + 6 * step, ended=at + 7 * step, source="word/default",
        source_clock=9, clock=clock, end=control_pb2.SPAN_ENDS,
    )  # fmt: skip


def ask(store: TraceStore, now: float = 100.0, **asked: float) -> Traces:
    request = control_pb2.GetTraces(limit=50)
    for name, value in asked.items():
        setattr(request, name, value)
    return store.reply(request, now, 2e9)


def test_each_part_of_the_way_has_its_time() -> None:
    way = way_of(child(7, 2, 1, 1000))
    assert way.exact and way.sums() == {
        "batch": 0.001,
        "queue": 0.002,
        "wire": 0.001,
        "in-queue": 0.002,
        "process": 0.001,
    }
    assert way_of(root(7)).sums() == {"process": 0.002}


def test_what_has_begun_and_not_arrived_is_counted() -> None:
    """One of four tasks was slow, and its tuples in no figure: p99 was that of the other three."""
    store = TraceStore()
    for trace in (7, 8, 9):
        begun = root(trace, at=50.0 + trace)
        begun.end = control_pb2.SPAN_GOES_ON
        store.take(report(begun), 10.0)
    store.take(report(child(7, 2, 1, 1000)), 10.0)
    for now in (10.0, 10.0 + SETTLE_S):
        found = ask(store, now)
        assert found.under_way == 2 and found.matching in (1, 3)
    assert ask(store, until=58.0).under_way == 0, "only of what was asked for"
    store.take(report(child(8, 2, 1, 1000)), 20.0)
    assert ask(store).under_way == 1


def test_between_hosts_the_wire_is_unknown_and_the_rest_is_not() -> None:
    span = child(7, 2, 1, 1000, clock=5)
    far = 10**15
    del span.hops[:]
    span.hops.extend([1000 + 3 * MS, 1000 + 4 * MS, far, far + 2 * MS])
    span.began, span.ended = far + 3 * MS, far + 4 * MS
    way = way_of(span)
    assert not way.exact
    assert way.sums() == {"batch": 0.001, "queue": 0.004, "wire": 0.001, "in-queue": 0.001, "process": 0.001}


def far_child(offset_ns: int, wire_ns: int) -> Span:
    """Its task is on another host, whose clock is `offset_ns` ahead of that of its source."""
    span = child(7, 2, 1, 1000, clock=5)
    arrived = 1000 + 4 * MS + wire_ns + offset_ns
    del span.hops[:]
    span.hops.extend([1000 + 3 * MS, 1000 + 4 * MS, arrived, arrived + 2 * MS])
    span.began, span.ended = arrived + 3 * MS, arrived + 4 * MS
    return span


@given(st.integers(-4 * MS, 10**15), st.integers(0, 10**9), st.integers(1, MS), st.booleans())
def test_between_hosts_the_wire_is_known_as_well_as_their_clocks_are(
    offset: int, wire: int, error: int, of_master: bool
) -> None:
    """The topology master is on the host of the source, or on a third one."""
    clocks = Clocks(9 if of_master else 3)
    store = TraceStore(clocks)
    clocks.take(control_pb2.ClockOffset(clock=5, offset=-offset, error=error), 10 * 10**9)
    clocks.take(control_pb2.ClockOffset(clock=9, offset=0, error=error), 10 * 10**9)
    span = far_child(offset, wire)
    span.clock_shift, span.clock_error = 1, 1  # is not the reporter's to say
    store.take(report(root(7)), 10.0)
    store.take(report(span), 10.0)
    found = ask(store)
    [_, one] = found.traces[0].spans
    errors = (error if of_master else 2 * error) / 1e9
    assert not one.exact and one.error_s == errors
    took = {hop: sum(part.took_s for part in one.parts if part.hop == hop) for hop in ("wire", "in-queue")}
    assert abs(took["wire"] - 0.001 - wire / 1e9) < 1e-9 and took["in-queue"] == 0.001
    assert {(hop.hop, hop.error_s) for hop in found.hops if hop.target == "count"} >= {("wire", errors), ("queue", 0.0)}


def test_a_clock_that_nobody_has_compared_lately_is_not_known() -> None:
    clocks = Clocks(9)
    span = far_child(0, MS)
    for told, at_ns in (
        (control_pb2.ClockOffset(clock=5, offset=7), 0),  # without an error it says nothing
        (control_pb2.ClockOffset(clock=9, offset=7, error=1), 0),  # it is the master's own
        (control_pb2.ClockOffset(clock=5, offset=7, error=1), -61 * 10**9),
    ):
        clocks.take(told, at_ns)
        clocks.relate(span, 0)
        assert (span.clock_shift, span.clock_error) == (0, 0)
    clocks.take(control_pb2.ClockOffset(clock=5, offset=7, error=50), 0)
    clocks.take(control_pb2.ClockOffset(clock=5, offset=9, error=60), 0)
    clocks.relate(span, 0)
    assert (span.clock_shift, span.clock_error) == (7, 50), "the most exact one counts"
    near = child(7, 2, 1, 1000)
    clocks.relate(near, 0)
    assert near.clock_error == 0, "on one host nothing is compared"


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.randoms(use_true_random=False), st.integers(0, 5))
def test_in_any_order_and_twice_the_calls_of_a_trace_are_a_tree(parents: list[int], random: Random, lost: int) -> None:
    """Each call but those that come from a lost one is found, after its parent; a span that comes twice counts once."""
    first = root(7)
    spans = {1: first}
    for number, seed in enumerate(parents, 2):
        parent = spans[sorted(spans)[seed % len(spans)]]
        spans[number] = child(7, number, parent.number, parent.ended)
    gone = set(sorted(spans)[1:][:lost]) if lost < len(spans) - 1 else set()
    given_spans = [span for number, span in spans.items() if number not in gone] * 2
    random.shuffle(given_spans)
    store = TraceStore()
    for span in given_spans:
        store.take(report(span), 10.0)
    [trace] = ask(store).traces
    reachable: set[int] = set()
    for number, span in spans.items():
        if number not in gone and (not span.parent or span.parent in reachable):
            reachable.add(number)
    found = {int(one.number, 16): one for one in trace.spans}
    assert found.keys() == reachable and len(trace.spans) == len(reachable)
    for one in found.values():
        if one.parent is not None:
            before = found[int(one.parent, 16)]
            end = before.start_s + sum(part.took_s for part in before.parts)
            assert abs(one.start_s - end) < 1e-9
    depth = max((spans[number].ended - first.began) for number in reachable)
    assert abs(trace.took_s - depth / 1e9) < 1e-6


def test_a_tuple_that_left_before_its_call_ended_begins_then() -> None:
    early = child(7, 2, 1, 1000 + MS)
    assert [round(one.start_s, 6) for one in placed([root(7), early])] == [0.0, 0.001]


def test_the_ack_comes_after_the_last_call() -> None:
    acked = Span(trace=7, number=5, parent=1, end=control_pb2.SPAN_ACKED, ended=1000 + 12 * MS, clock=9)
    store = TraceStore()
    store.take(report(root(7), acked, component="word"), 10.0)
    store.take(report(child(7, 2, 1, 1000 + 2 * MS)), 10.0)
    reply = ask(store)
    hops = {(one.source, one.target, one.hop): one.p50_s for one in reply.hops}
    assert round(hops["", "word", "ack"], 6) == 0.003 and hops["", "word", "process"] == 0.002
    assert round(reply.traces[0].took_s, 6) == 0.009, "without the ack"
    assert reply.traces[0].spans[-1].end == "acked"


def test_what_is_under_way_waits_and_what_is_lost_is_shown_after_a_while() -> None:
    store = TraceStore()
    store.take(report(root(7)), 10.0)
    assert ask(store, 10.0 + SETTLE_S / 2).matching == 0, "what it has emitted is not known yet"
    assert ask(store, 10.0 + SETTLE_S).matching == 1
    store.take(report(child(7, 2, 1, 1000)), 20.0)
    assert ask(store, 20.0).matching == 1 and ask(store, 20.0, since=60.0).matching == 0
    assert ask(store, 20.0, until=50.0).matching == 0 and ask(store, 20.0, min_s=9.0).matching == 0
    store.take(report(child(8, 2, 1, 1000)), 20.0)
    assert len(store) == 2 and ask(store, 99.0).matching == 1, "nobody knows where trace 8 began"


@settings(max_examples=20)
@given(st.integers(1, 3 * SPANS_MAX), st.integers(1, 30))
def test_it_is_bounded_and_counts_what_it_gives_up(spans: int, traces: int) -> None:
    store = TraceStore()
    for number in range(1, spans + 1):
        store.take(report(Span(trace=1, number=number, parent=0 if number == 1 else 1)), 1.0)
    assert store.discarded == max(0, spans - SPANS_MAX)
    for trace in range(TRACES_MAX - 10, TRACES_MAX + traces):
        store.take(report(root(trace + 2)), 1.0)
    store.validate()
    for trace in range(2 * TRACES_MAX):
        store.take(report(root(trace + 1)), 2.0)
    store.validate()
    assert len(store) == TRACES_MAX


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.5, 0.99]))
def test_a_quantile_is_one_of_the_values(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = quantile(ordered, share)
    assert found in ordered and sum(value <= found for value in ordered) >= share * len(ordered)
    assert sum(value < found for value in ordered) < share * len(ordered)


def test_damaged_spans_harm_nobody() -> None:
    store = TraceStore()
    strange = Span(trace=7, number=3, parent=3, emitted=9, sealed=1, hops=[5], began=2, ended=1)
    store.take(report(root(7), strange, Span(), Span(trace=7), Span(trace=7, number=4, parent=1, hops=[9, 1, 3])), 1.0)
    [trace] = ask(store).traces
    assert all(part.took_s >= 0 for one in trace.spans for part in one.parts)
