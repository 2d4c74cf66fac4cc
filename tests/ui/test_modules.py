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
from tests.support.waiting import wait_for
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
        ("share", 0.983, "98 %"),
        ("share", 0.0004, "0 %"),
        ("share", None, "-"),
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
    """Neither the lines nor their order change, because a change would draw the chart again."""

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


@pytest.mark.parametrize(("reason", "letter"), [("", "B"), ("avoided", "F"), ("dropped", "F")])
def test_a_full_task_that_holds_no_spout_has_its_own_mark(page: Any, reason: str, letter: str) -> None:
    mark = "async (event) => (await import('http://page.test/charts.js')).mark(event)"
    assert page.evaluate(mark, {"kind": "backpressure", "reason": reason}) == letter
    assert page.evaluate(mark, {"kind": "restart", "reason": "crashed"}) == "R"


#: Charts whose drawing only notes what it is asked for; `show` renders one with this last value and these events.
CHARTS = """async (above) => {
  window.drawn = 0;
  window.uPlot = class {
    constructor(options) { window.options = options; }
    setData() { window.drawn += 1; }
    setSize() {}
    destroy() {}
  };
  const { Charts, OF_TOPOLOGY } = await import('http://page.test/charts.js');
  const { html, render } = await import('http://page.test/ui.js');
  const box = document.createElement('div');
  box.style.paddingTop = `${above}px`;
  document.body.append(box);
  const [charts, nodes] = [OF_TOPOLOGY.filter((one) => 'cpu' in one.lines), []];
  window.show = (last, events = []) => {
    const timeline = { times: [1, 2], series: [{ component: 'a', metric: 'cpu', values: [0, last] }] };
    render(html`<${Charts} charts=${charts} timeline=${timeline} events=${events} nodes=${nodes} />`, box);
  };
  show(1);
  // Told after the observer of the page, which is older.
  new IntersectionObserver(() => (window.looked = true)).observe(box.querySelector('figure'));
}"""


def test_a_chart_that_nobody_sees_is_not_drawn(started: Any) -> None:
    """Its table is renewed, for readers, and it is drawn when it comes into sight."""
    page = empty(started)
    page.clock.install()
    page.goto("http://page.test/")
    page.evaluate(CHARTS, 5000)
    page.wait_for_function("window.looked")
    page.clock.run_for(1000)
    drawn = page.evaluate("drawn")
    for last in (2, 3, 4):
        page.clock.fast_forward(20_000)
        page.evaluate("(last) => show(last)", last)
        page.clock.run_for(1000)
        assert page.locator("td b").text_content() == str(last)
    assert page.evaluate("drawn") == drawn
    page.evaluate("scrollTo(0, 5000)")

    def is_drawn() -> bool:
        page.clock.run_for(100)
        return bool(page.evaluate("drawn") > drawn)

    wait_for(is_drawn, 20.0, "a chart that is drawn")
    page.close()


#: What marks are drawn on 600 seconds, a pixel each: texts and bands with where they begin.
MARKED = """(events) => {
  show(1, events);
  const found = { texts: [], bands: [] };
  const nothing = () => {};
  const ctx = {
    save: nothing, restore: nothing, beginPath: nothing, rect: nothing, clip: nothing,
    measureText: (text) => ({ width: 6 * text.length }),
    fillText: (text, left) => found.texts.push([text, left]),
    fillRect: (left, top, width, height) => found.bands.push([left, width, height]),
  };
  options.hooks.drawClear[0]({ ctx, bbox: { left: 0, top: 0, width: 600, height: 100 }, scales: { x: { min: 0, max: 600 } }, valToPos: (at) => at });
  return found;
}"""


def test_marks_say_how_often_and_since_when(started: Any) -> None:
    """Nine restarts were one line, and spouts that are held had no mark before that was over."""
    page = empty(started)
    page.goto("http://page.test/")
    page.evaluate(CHARTS, 0)
    crash = {"number": 1, "kind": "restart", "subject": "container_1_work_2", "at": 200, "first_at": 50, "times": 9,
             "lasted_s": 0, "text": ""}  # fmt: skip
    culprit = {"name": "container_1_store_3", "component": "store", "since_s": 100.0, "queued_bytes": 1}
    held = page.evaluate("async (one) => (await import('http://page.test/past.js')).lasting(one, 400)", culprit)
    # Held for moments only: all of that time in one band would say more.
    often = crash | {"kind": "backpressure", "first_at": 450, "at": 500, "times": 4, "lasted_s": 2.0}
    found = page.evaluate(MARKED, [crash, held, often])
    assert found["texts"] == [["R9 work-2", 52], ["B store-3", 302], ["B4 work-2", 452]]
    assert found["bands"] == [[50, 150, 12], [200, 1, 100], [300, 100, 100], [450, 50, 12], [500, 1, 100]]
    # An episode is an event when it is over, after what happened meanwhile; its letter stands where it began.
    once = crash | {"first_at": 250, "at": 250, "times": 1}
    assert page.evaluate(MARKED, [once, held | {"at": 400, "lasted_s": 300.0}])["texts"] == [
        ["B store-3", 102],
        ["R work-2", 252],
    ]
    page.close()


JOINED = """async ([minutes, looks, began]) => {
  const series = await import('http://page.test/series.js');
  const recent = new series.Samples();
  const of = (points, step_s) => ({ kept_from: 0, step_s, times: points.map(([at]) => at), series: [{ component: '', metric: 'held', values: points.map(([, held]) => held) }] });
  for (const one of looks) recent.take('one', of(one, 1.9));
  const found = series.joined(of(minutes, 60), recent, 600, '', began);
  return found.times.map((at, number) => [at, found.series.find((one) => one.metric === 'held').values[number]]);
}"""


def middles(*begins: float) -> list[tuple[float, float]]:
    """A mean is a point in the middle of its minute."""
    return [(begin + 30, 0.5) for begin in begins]


def samples(*times: float) -> list[tuple[float, float]]:
    return [(at, 0.25) for at in times]


def gap(after: float) -> tuple[float, None]:
    """No line goes on from here."""
    return after + 1, None


@pytest.mark.parametrize(
    ("looks", "found"),
    [
        pytest.param([], middles(940, 1000, 1060, 1120, 1180, 1240), id="nothing seen"),
        pytest.param(
            [1100, 1102, 1104],
            [*middles(940, 1000, 1060), *samples(1100, 1102, 1104), *middles(1120, 1180, 1240)],
            id="minutes around",
        ),
        pytest.param(
            [1002, 1242, 1244],
            [*middles(940), *samples(1002), *middles(1000, 1060, 1120, 1180), *samples(1242, 1244), *middles(1240)],
            id="a hidden tab",
        ),
        pytest.param(
            [1000, 1020, 1050],
            [*middles(940), *samples(1000, 1020, 1050), *middles(1060, 1120, 1180, 1240)],
            id="no minute in a short gap",
        ),
        pytest.param(
            [1360, 1362],
            [*middles(940, 1000, 1060, 1120, 1180, 1240), *samples(1360, 1362)],
            id="the newest minute is not told yet",
        ),
        pytest.param(
            [1298, 1400, 1402],
            [*middles(940, 1000, 1060, 1120, 1180, 1240), *samples(1298), gap(1298), *samples(1400, 1402)],
            id="nobody knows",
        ),
        pytest.param([1002, 87400, 87402], samples(87400, 87402), id="a browser that slept for a day"),
    ],
)  # fmt: skip
def test_minutes_fill_what_a_page_has_not_seen(page: Any, looks: list[float], found: list[Any]) -> None:
    """As points that lines connect: steps hid how a leak grows, and left a gap before what the page has seen."""
    kept = [[at, 0.5] for at in range(940, 1241, 60)]
    points = page.evaluate(JOINED, [kept, [[[at, 0.25]] for at in looks]])
    times = [at for at, _ in points]
    assert times == sorted(times)
    assert [(at, value) for at, value in points] == found


def test_minutes_that_nobody_has_kept_are_a_gap(page: Any) -> None:
    points = page.evaluate(JOINED, [[[940, 0.5], [1000, 0.5], [1240, 0.5]], []])
    assert [(at, value) for at, value in points] == [*middles(940, 1000), gap(1030), *middles(1240)]


def test_the_first_minute_begins_with_the_topology(page: Any) -> None:
    points = page.evaluate(JOINED, [[[960, 0.5], [1020, 0.5]], [], 1000])
    assert [(at, value) for at, value in points] == [(1010, 0.5), (1050, 0.5)]


@pytest.mark.parametrize(
    ("told", "found"),
    [
        pytest.param([[1200, 1210], [1220, 1222]], [1200, 1210, 1220, 1222], id="more"),
        pytest.param([[1200, 1210], [1210, 1212]], [1200, 1210, 1212], id="the last one again"),
        pytest.param([[1200, 1210], [], [1212]], [1200, 1210, 1212], id="nothing new"),
        pytest.param([[1000, 1210], [1605, 1801]], [1210, 1605, 1801], id="ten minutes at most"),
        pytest.param([[1000, 1210], [1900]], [1900], id="a hidden tab"),
    ],
)
def test_what_the_tracker_has_seen_is_put_together(page: Any, told: list[list[float]], found: list[float]) -> None:
    points = page.evaluate(JOINED, [[], [[[at, 0.25] for at in one] for one in told]])
    assert [tuple(one) for one in points if one[1] is not None] == samples(*found)


def test_another_topology_has_samples_of_its_own(page: Any) -> None:
    found = page.evaluate(
        """async () => {
          const recent = new (await import('http://page.test/series.js')).Samples();
          const told = (times) => ({ times, series: [{ component: '', metric: 'held', values: times }] });
          recent.take('one', told([1, 2]));
          return [recent.of('one'), recent.of('other'), recent.series.size];
        }"""
    )
    assert found == [2, 0, 0]


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
