"""Modules of the pages without a tracker: the live state after every message, and figures as text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heronpy.tracker import live
from heronpy.tracker.pages import load
from heronpy.views.live import Snapshot
from heronpy.views.load import ComponentLoad, EdgeLoad, Load, TaskLoad, Tasks
from heronpy.views.overview import Topology
from tests.ui.conftest import chromium, lasting_page

figures = st.none() | st.floats(0, 1e8) | st.integers(0, 1000).map(float)


def made(kind: type[msgspec.Struct], **given: Any) -> st.SearchStrategy[Any]:
    """A struct with drawn figures where a field may be one, and plain values elsewhere."""
    fields = {}
    for field in msgspec.structs.fields(kind):
        if field.name in given:
            fields[field.name] = given[field.name]
        elif field.type is float:
            fields[field.name] = st.floats(0, 1e8)
        elif field.type == float | None:
            fields[field.name] = figures
        elif field.type in (str | None, str):
            fields[field.name] = st.sampled_from(["", "a", "b\u2028<b>"])
        elif field.type in (int | None, int):
            fields[field.name] = st.integers(0, 1 << 40)
        elif field.type is bool or field.type == bool | None:
            fields[field.name] = st.booleans()
        else:
            fields[field.name] = st.none() if type(None) in getattr(field.type, "__args__", ()) else st.just([])
    return st.builds(kind, **fields)


components = st.lists(made(ComponentLoad), min_size=2, max_size=2).map(
    lambda rows: [msgspec.structs.replace(row, name=f"c{number}") for number, row in enumerate(rows)]
)
tasks = st.lists(made(TaskLoad), min_size=3, max_size=3).map(
    lambda rows: [msgspec.structs.replace(row, task_id=number, container=1) for number, row in enumerate(rows)]
)
snapshots = st.builds(
    Snapshot,
    level=st.just("tasks"),
    topology=made(Topology),
    topologies=st.none(),
    plan=st.none(),
    load=made(Load, components=components, edges=st.lists(made(EdgeLoad, id=st.just("a/b>c")), min_size=1, max_size=1)),
    tasks=made(Tasks, tasks=tasks, processes=st.just([])),
    silent_s=figures,
)


def rounded(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: rounded(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one, name) for one in value]
    if type(value) is int:
        # JavaScript has one kind of number: what comes back without a fraction may have been a float.
        value = float(live.rounded(name, value))
    return live.rounded(name, value)


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    """A browser."""
    with chromium() as found:
        yield found


def empty(started: Any) -> Any:
    """An empty page that can import the modules."""
    opened = lasting_page(started)

    served = load()

    def serve(route: Any) -> None:
        path = urlsplit(route.request.url).path.lstrip("/")
        found = served.get(path if path.startswith("vendor/") else f"js/{path}")
        route.fulfill(body=found.content if found else b"", content_type=found.media if found else "text/html")

    opened.route("**/*", serve)
    return opened


@pytest.fixture(scope="module")
def page(started: Any) -> Any:
    """An empty page that has the module of the live state."""
    opened = empty(started)
    opened.goto("http://page.test/")
    opened.evaluate("async () => { window.state = await import('http://page.test/live_state.js'); }")
    opened.evaluate("async () => { window.format = await import('http://page.test/format.js'); }")
    return opened


AFTER = """([first, messages, cuts]) => {
  const parser = new state.Parser();
  let text = messages, now = {...state.initial(), snapshot: first};
  for (const cut of [...cuts, Infinity]) {
    for (const message of parser.feed(text.slice(0, cut))) now = state.after(now, message);
    text = text.slice(cut);
  }
  return now.snapshot;
}"""


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(states=st.lists(snapshots, min_size=2, max_size=4), cuts=st.lists(st.integers(0, 2000), max_size=4))
def test_deltas_lead_to_what_the_tracker_has(page: Any, states: list[Snapshot], cuts: list[int]) -> None:
    messages = [live.PING]
    for old, new in itertools.pairwise(states):
        change = live.delta(old, new)
        assert change is not None
        messages.append(live.message("delta", change, "1-1"))
    found = page.evaluate(AFTER, [msgspec.to_builtins(states[0]), b"".join(messages).decode(), cuts])
    assert rounded(found) == rounded(msgspec.to_builtins(states[-1]))


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        ("count", None, "-"),
        ("count", 0, "0"),
        ("count", 0.0004, "<0.001"),
        ("count", 999.6, "1 k"),
        ("rate", 41_200, "41.2 k/s"),
        ("share", 0.983, "0.98"),
        ("bytes", 1023, "1023 B"),
        ("bytes", 1 << 20, "1.0 MB"),
        ("duration", 39e-6, "39 µs"),
        ("duration", 0.9999, "1 s"),
        ("duration", 125, "2 min 5 s"),
        ("duration", None, "-"),
        ("latency", 99, "1 min 39 s"),
        ("latency", 100, "≥ 1 min 40 s"),
        ("latency", None, "-"),
        ("taskName", "container_1_a_b_12", "a_b-12"),
        ("taskName", "stmgr-1", "stmgr-1"),
    ],
)
def test_a_figure_as_text(page: Any, function: str, value: Any, text: str) -> None:
    assert page.evaluate("([name, value]) => format[name](value)", [function, value]) == text


WAITING = {"emitted_per_s": 0.0, "latency_p99_s": None, "held": 0.9}


@pytest.mark.parametrize(
    ("topology", "queued", "text"),
    [
        pytest.param({"latency_p99_s": 0.25}, [(9, 1.0)], "250 ms", id="known"),
        pytest.param({"latency_p99_s": 100.0}, [], "≥ 1 min 40 s", id="beyond the last bucket"),
        pytest.param({}, [(5, 0.0), (0, 0.0)], "> 10 s", id="nothing moves"),
        pytest.param({"emitted_per_s": 20.0}, [(400, 20.0), (300, 10.0)], "≈ 50 s", id="long queues"),
        pytest.param({"emitted_per_s": 20.0}, [(400, 0.0)], "none ended", id="a bolt stands"),
        pytest.param({"emitted_per_s": 20.0}, None, "none ended", id="in the list"),
        pytest.param({"emitted_per_s": 20.0, "held": 0.0}, [(1, 900.0)], "-", id="not slow"),
        pytest.param({"ended_at": 1.0}, [(5, 0.0)], "-", id="ended"),
    ],
)
def test_the_latency_of_what_is_too_slow_to_be_measured(page: Any, topology: Any, queued: Any, text: str) -> None:
    rows = [{"queue_tuples": tuples, "executed_per_s": rate} for tuples, rate in queued or []]
    load = None if queued is None else {"window_s": 10.0, "components": rows}
    found = page.evaluate(
        "async ([topology, load]) => (await import('http://page.test/levels.js')).endToEnd(topology, load)",
        [WAITING | topology, load],
    )
    assert found == text


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ((0.05, False, 0), "50 ms"),
        ((12.0, True, 0), "> 12 s"),
        ((100.0, False, 0), "≥ 1 min 40 s"),
        ((100.0, True, 0), "> 1 min 40 s"),
        ((None, False, 42), "> 42 s"),
        ((None, False, 1), "-"),
    ],
)
@pytest.mark.parametrize("of", ["taskColumns", "componentColumns"])
def test_a_latency_of_which_a_bound_is_known_is_said_as_one(
    page: Any, of: str, row: tuple[float | None, bool, int], text: str
) -> None:
    found = page.evaluate(
        """async ([of, latency_p99_s, latency_at_least, silent_s]) => (await import('http://page.test/columns.js'))[of]({}).find((one) => one.title === 'p99').cell({ latency_p99_s, latency_at_least, silent_s })""",
        [of, *row],
    )
    assert found == text


@pytest.mark.parametrize(
    ("count", "said", "text"),
    [(0, "0", "0"), (3, "about 3", "about 3"), (0, "an unknown number", "0 and an unknown number")],
)
def test_what_is_lost_agrees_with_what_tasks_have_counted(page: Any, count: int, said: str, text: str) -> None:
    given = {"lost": count, "lost_text": said}
    lost = "async (given) => (await import('http://page.test/columns.js')).lost(given)"
    assert page.evaluate(lost, given) == text


def test_a_repeated_event_is_shown_once(page: Any) -> None:
    def event(number: int, first_at: float) -> dict[str, Any]:
        return {"number": number, "kind": "backpressure", "subject": "a", "reason": "", "first_at": first_at}

    merge = "([old, more]) => state.merged(old, more).map((event) => event.number)"
    assert page.evaluate(merge, [[event(1, 1.5), event(2, 2.0)], [event(5, 1.5), event(3, 3.0)]]) == [2, 3, 5]
    # What is asked for again may be older than what the stream has told.
    assert page.evaluate(merge, [[event(5, 1.5)], [event(1, 1.5)]]) == [5]


def test_the_lines_of_a_chart_change_only_for_one_that_is_clearly_higher(page: Any) -> None:
    """Neither they nor their order, with which a chart would be made anew."""

    def looked(*tops: float) -> dict[str, Any]:
        found = [{"component": f"c{n}", "metric": "cpu", "values": [None, top]} for n, top in enumerate(tops)]
        return {"series": found}

    looks = [
        looked(*(1.0 + n for n in range(10))),
        looked(7.0, 7.0, *(12.0 - n for n in range(8))),
        looked(9.0, *(4.0 + n / 10 for n in range(9))),
    ]
    shown = page.evaluate(
        """async (looks) => {
          const charts = await import('http://page.test/charts.js');
          const chart = charts.OF_TOPOLOGY.find((one) => 'cpu' in one.lines);
          let before = [];
          return looks.map((look) => (before = charts.linesOf(chart, look, [], new Set(before)).lines.map((line) => line.name)));
        }""",
        looks,
    )
    first = [f"c{n}" for n in range(2, 10)]
    assert shown == [first, first, ["c0", *(f"c{n}" for n in range(3, 10))]]


@pytest.mark.parametrize(("letters", "text"), [("R", "R"), ("RR", "R2"), ("RRMB", "R2MB"), ("BRRRRRRRRRRRB", "BR11B")])
def test_marks_at_one_place_are_one(page: Any, letters: str, text: str) -> None:
    """Two restarts at nearly the same time were written over each other."""
    joined = "async (letters) => (await import('http://page.test/charts.js')).joined(letters)"
    assert page.evaluate(joined, letters) == text


def test_a_spark_run_of_seconds_has_a_line(page: Any) -> None:
    """Between two looks of the page, as the tracker keeps them between two of its own."""

    def sink(committed: int, each_s: float) -> dict[str, Any]:
        return {"committed": committed, "failed": 0, "seconds_per_batch": each_s, "waiting": 2, "lag_s": None}

    found = page.evaluate(
        """async ([looks]) => {
          const series = await import('http://page.test/series.js');
          const recorder = new series.SparkRecorder();
          const now = Date.now() / 1000;
          looks.forEach(([ago, sinks]) => recorder.see('one', sinks, now - ago));
          const kept = series.joined(null, recorder, 600, '');
          recorder.see('other', looks[0][1], now);
          return { kept, other: recorder.times.length };
        }""",
        [[[6, [sink(2, 4.0)]], [5.5, [sink(9, 4.0)]], [4, [sink(6, 3.0)]], [2, [sink(6, 3.0)]], [0, []]]],
    )
    series = {one["metric"]: one["values"] for one in found["kept"]["series"]}
    assert len(found["kept"]["times"]) == 3 and {one["component"] for one in found["kept"]["series"]} == {""}
    assert [round(one, 6) if one is not None else None for one in series["spark_done"]] == [None, 2.0, 0.0]
    assert series["spark_batch_s"] == [4.0, 2.5, None] and series["spark_waiting"] == [2, 2, 2]
    assert found["other"] == 1, "another topology begins anew"


JOINED = """async ([minutes, looks, began]) => {
  const series = await import('http://page.test/series.js');
  const recorder = new series.Recorder();
  const load = (at, held) => ({ at, held, components: [] });
  looks.forEach(([at, held]) => recorder.see('one', load(at, held)));
  const timeline = { kept_from: 0, step_s: 60, times: minutes.map(([at]) => at), series: [{ component: '', metric: 'held', values: minutes.map(([, held]) => held) }] };
  const found = series.joined(timeline, recorder, 600, '', began);
  return found.times.map((at, number) => [at, found.series.find((one) => one.metric === 'held').values[number]]);
}"""


def level(begin: float, end: float) -> list[tuple[float, float]]:
    """A part of a minute: its mean, from its beginning to its end."""
    return [(begin, 0.5), (end, 0.5)]


def minutes(*begins: float) -> list[tuple[float, float]]:
    return [point for begin in begins for point in level(begin, begin + 60)]


def samples(*times: float) -> list[tuple[float, float]]:
    return [(at, 0.25) for at in times]


@pytest.mark.parametrize(
    ("looks", "found"),
    [
        pytest.param([], minutes(940, 1000, 1060, 1120, 1180, 1240), id="nothing seen"),
        pytest.param(
            [1100, 1102, 1104],
            [*minutes(940, 1000), *level(1060, 1100), *samples(1100, 1102, 1104), *level(1104, 1120),
             *minutes(1120, 1180, 1240)],
            id="minutes around",
        ),
        pytest.param(
            [1002, 1242, 1244],
            [*minutes(940), *samples(1002), *level(1002, 1060), *minutes(1060, 1120, 1180), *samples(1242, 1244),
             *level(1244, 1300)],
            id="a hidden tab",
        ),
        pytest.param(
            [1000, 1020, 1040],
            [*minutes(940), *samples(1000, 1020, 1040), *level(1040, 1060), *minutes(1060, 1120, 1180, 1240)],
            id="no minute in a short gap",
        ),
        pytest.param(
            [1298, 1400, 1402],
            [*minutes(940, 1000, 1060, 1120, 1180), *level(1240, 1298), *samples(1298), (1298, None),
             *samples(1400, 1402)],
            id="nobody knows",
        ),
        pytest.param([1002, 87400, 87402], samples(87400, 87402), id="a browser that slept for a day"),
    ],
)  # fmt: skip
def test_minutes_fill_what_a_page_has_not_seen(page: Any, looks: list[float], found: list[Any]) -> None:
    """As levels: no line goes from one minute, or from the last one, to where the page has begun to look."""
    kept = [[at, 0.5] for at in range(940, 1241, 60)]
    points = page.evaluate(JOINED, [kept, [[at, 0.25] for at in looks]])
    times = [at for at, _ in points]
    assert times == sorted(times)
    assert [(round(at, 2), value) for at, value in points] == found


def test_nothing_is_drawn_of_the_first_minute_before_the_topology_began(page: Any) -> None:
    points = page.evaluate(JOINED, [[[960, 0.5], [1020, 0.5]], [], 999])
    assert [(round(at, 2), value) for at, value in points] == [*level(999, 1020), *level(1020, 1080)]


def test_samples_of_a_short_topology_are_a_line(page: Any) -> None:
    """That are kept of one that ended before a minute was over."""
    found = page.evaluate(
        """async (times) => {
          const series = await import('http://page.test/series.js');
          const timeline = { kept_from: 0, step_s: 2, times, series: [{ component: '', metric: 'held', values: times.map(() => 0.5) }] };
          const { times: at, series: [held] } = series.joined(timeline, new series.Recorder(), 600, '');
          return at.map((one, number) => [one, held.values[number]]);
        }""",
        [1000, 1002, 1004.5, 1040, 1042],
    )
    assert [(round(at, 2), value) for at, value in found] == [
        (1000, 0.5), (1002, 0.5), (1004.5, 0.5), (1004.5, None), (1040, 0.5), (1042, 0.5),
    ]  # fmt: skip


def test_a_component_has_one_colour_in_all_charts(page: Any) -> None:
    """Also in those that have no line of some components, and the lines of one component differ by their dashes."""
    names = [f"c{number}" for number in range(10)]
    found = page.evaluate(
        """async (names) => {
          const { OF_TOPOLOGY, linesOf } = await import('http://page.test/charts.js');
          const nodes = names.map((name, place) => ({ name, kind: place ? 'bolt' : 'spout' }));
          return OF_TOPOLOGY.map((chart) => {
            const series = Object.keys(chart.lines).flatMap((metric) => metric === 'held' ? [] : names.slice(chart.lines.cpu ? 3 : 0, chart.lines.cpu ? 6 : 10).map((component) => ({ component, metric, values: [1] })));
            return linesOf(chart, { series }, nodes, new Set()).lines.map((line) => [line.name, line.colour, line.dash.join()]);
          });
        }""",
        names,
    )
    colours: dict[str, set[str]] = {}
    for lines in found:
        assert lines and len({(colour, dash) for _, colour, dash in lines}) == len(lines), lines
        for name, colour, _ in lines:
            colours.setdefault(name.split()[0], set()).add(colour)
    assert all(len(found) == 1 for found in colours.values()), colours
    assert len({min(found) for name, found in colours.items() if name < "c8"}) == 8


LIVE = """async () => {
  window.opened = 0;
  // A connection that was lost while the computer slept: nobody says so.
  window.fetch = (_, { signal }) => {
    window.opened += 1;
    const body = new ReadableStream({ start: (control) => signal.addEventListener('abort', () => control.error(signal.reason)) });
    return Promise.resolve(new Response(body));
  };
  const { Live } = await import('http://page.test/live.js');
  const live = new Live({ level: 'component' });
  live.listen(() => (window.status = live.state.status));
}"""


@pytest.fixture(scope="module")
def sleeper(started: Any) -> Any:
    """An empty page whose time the test turns."""
    opened = empty(started)
    opened.clock.install()
    opened.goto("http://page.test/")
    return opened


def test_a_browser_that_slept_for_a_day_opens_its_stream_anew(sleeper: Any) -> None:
    page = sleeper
    page.evaluate(LIVE)
    page.wait_for_function("status === 'live'")
    before = page.evaluate("opened")
    page.clock.fast_forward(86_400_000)
    page.wait_for_function("status === 'waiting'")
    page.clock.run_for(5_000)
    page.wait_for_function("(before) => opened === before + 1 && status === 'live'", arg=before)
