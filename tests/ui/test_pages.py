"""The pages in a browser, over a topology that really runs: what is found, what stays text, what keeps going."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.states import START_PHASES
from heronpy.jobs.store import Store
from heronpy.jobs.syncer import Running
from heronpy.statemgr import open_state
from tests.jobs.job_worlds import make_job, record_minutes
from tests.support.waiting import wait_for
from tests.ui.conftest import PATIENCE_MS, PROGRAM, Site, Tab, serve, snapshot
from tests.ui.marked import MARKUP

pytestmark = pytest.mark.slow

REPO = Path(__file__).parents[2]

#: MARKUP as logs show it: escapes of a terminal are written out.
SHOWN = MARKUP.split("\x1b")[0]


def test_from_the_list_to_a_log_by_keyboard(site: Site, tab: Tab) -> None:
    page = tab.page
    page.goto(site.address)
    page.get_by_role("link", name="marked", exact=True).wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.locator("[data-node=count]").wait_for()
    assert page.locator("[data-node]").count() == 3
    assert page.locator("g.edge").count() == 2
    assert "fields(word)" in page.locator("g.edge.keyed").text_content()
    # Rates come with the first reports: a figure, not "-".
    page.locator("g.edge.keyed .rate", has_text="/s").wait_for()
    page.locator("[data-node=lines]").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.node") == "count"
    # Its node, its squares and its row are marked together.
    assert page.locator(".square.marked").count() == 2
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="marked / count").wait_for()
    page.locator("[data-row]").first.wait_for()

    def opened() -> bool:
        # A row that comes with its first figures between the two keys has lost the mark: press again, as people do.
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_timeout(500)
        return "/task/" in page.url

    wait_for(opened, PATIENCE_MS / 1000, "the page of a task")
    page.locator(".log .line", has_text="seen 1 ").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("nothing like that")
    page.get_by_text("0 of ").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.locator("[data-node=count]").wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="keys").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.get_by_role("heading", name="Topologies").wait_for()


def seconds(text: str) -> float:
    """Of a duration as pages show it."""
    units = {"min": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
    words = text.split()
    return sum(float(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


def test_the_overview_shows_the_phases_of_the_start_and_they_add_up(site: Site, tab: Tab) -> None:
    page = tab.page
    page.goto(site.page())
    start = page.locator("section[aria-label^='start: ']")
    start.wait_for()
    assert start.locator("dt").all_text_contents() == list(START_PHASES)
    whole = seconds(start.get_attribute("aria-label").removeprefix("start: "))
    assert sum(map(seconds, start.locator("dd").all_text_contents())) == pytest.approx(whole, rel=0.02)
    assert start.locator("div").first.get_attribute("title") == START_PHASES["package"][1]
    told = site.heron("events", "local", "marked", "--start", "--json").json()
    assert whole == pytest.approx(told["took_s"], rel=0.02)


@pytest.fixture
def job(site: Site) -> Iterator[Store]:
    """A job of the topology, which no manager keeps, with a decision and minutes of a scaler."""
    state = open_state("local", str(site.heron.home / "state" / "local"))
    file = site.heron.home / "managers" / "local" / f"{site.name}.minutes"
    store = make_job(state, name=site.name)
    try:
        store.decided(site.name, "scaler", "work", "work 10 -> 12 tasks: <b>9,000/s</b> now")
        record_minutes(file)
        yield store
    finally:
        if site.name in store.names():
            store.delete(site.name)
        shutil.rmtree(file.parent)
        state.close()


def test_the_overview_shows_the_job_that_keeps_the_topology(site: Site, tab: Tab, job: Store) -> None:
    page = tab.page
    page.goto(site.page())
    card = page.get_by_role("region", name="job", exact=True)
    row = card.get_by_role("row", name="work").first
    row.get_by_role("button", name="pin work").wait_for()
    assert row.locator("td").all_text_contents()[:3] == ["10/40", "pin …", "provisioner"]
    card.get_by_text("No manager runs in cluster local, so changes wait").wait_for()
    card.get_by_text("scaler: work 10 -> 12 tasks: <b>9,000/s</b> now").wait_for()
    card.get_by_text("provisioner v1 by deploy, definition, parallelism.work, scale.max.work: first").wait_for()
    charts = card.locator(".chart", has=page.locator("canvas"))
    charts.nth(2).wait_for()
    assert [text.split("\n")[0] for text in charts.locator("figcaption").all_text_contents()] == [
        "load",
        "tasks",
        "lag",
    ]
    tasks = charts.nth(1).get_by_role("row", name="work").locator("td").all_text_contents()
    assert tasks == ["7", "0", "7"], "last, least and most"
    job.delete(site.name)
    card.wait_for(state="detached")


def test_a_job_is_changed_from_its_page_by_keyboard(site: Site, tab: Tab, job: Store) -> None:
    page, name = tab.page, site.name
    tab.broken = True  # a change that is refused

    def pressed(button: str) -> None:
        page.get_by_role("button", name=button).focus()
        page.keyboard.press("Enter")

    page.goto(site.address)
    page.get_by_role("region", name="jobs").get_by_role("link", name=name).press("Enter")
    page.get_by_role("heading", name="job", exact=True).wait_for()
    pressed("pin call")
    dialog = page.get_by_role("dialog", name="pin call")
    dialog.get_by_label("tasks").fill("4")
    dialog.get_by_label("duration").select_option("for 1 hour")
    dialog.get_by_label("why").fill("backfill")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("parallelism.call = 4 by").wait_for()
    assert job.get(name).found["parallelism", "call"].entry.stamp.why == "backfill"
    pressed("remove parallelism.call")
    job.set(name, "oncall", {"parallelism": {"call": 9}}, 1, "bob", "")
    page.get_by_role("dialog", name="remove").get_by_role("button", name="remove").click()
    page.get_by_text("'parallelism.call' of layer oncall was set to 9 by bob in the").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("parallelism.call = 9 by bob").wait_for()
    pressed("remove parallelism.call")
    page.get_by_role("dialog").get_by_role("button", name="remove").click()
    page.get_by_text("parallelism.call = 9 by bob").wait_for(state="detached")
    pressed("revert to oncall v2")
    page.get_by_role("dialog", name="revert to oncall v2").get_by_role("button", name="revert to").click()
    page.get_by_text("parallelism.call = 9 by").wait_for()
    page.get_by_text("parallelism.call: reverted to version 2").wait_for()
    pressed("revert to oncall v1")
    job.set(name, "oncall", {"parallelism": {"call": 7}}, 4, "bob", "")
    page.get_by_role("dialog", name="revert to oncall v1").get_by_role("button", name="revert to").click()
    page.get_by_text("'parallelism.call' of layer oncall was set to 7 by bob in the").wait_for()
    page.keyboard.press("Escape")
    pressed("stop …")
    page.get_by_role("dialog").get_by_role("button", name="stop").click()
    page.get_by_role("button", name="start …").wait_for()
    assert job.get(name).document.run == "stopped"
    job.put_running(name, Running("", state="QUARANTINED", failure="the program crashes"), 0)
    page.get_by_text("the program crashes", exact=True).wait_for()
    pressed("release …")
    page.get_by_role("dialog").get_by_role("button", name="release").click()
    wait_for(lambda: job.running(name)[0].state == "WAITING", PATIENCE_MS / 1000, "the release")
    job.put_running(name, Running(""), job.running(name)[1])


def test_figures_say_over_which_time_they_are(site: Site, tab: Tab) -> None:
    """The rate of a component and the sum of its tasks' differed: one is over some seconds, the other over up to twenty."""
    page, seen = tab.page, snapshot(site)
    serve(page, seen | {"load": seen["load"] | {"window_s": 7.2}, "tasks": seen["tasks"] | {"window_s": 14.4}})
    page.goto(site.page("component", "count"))
    page.get_by_text("Over the last 14 s.", exact=True).wait_for()
    assert page.get_by_text("Over the last 7 s.", exact=True).count() == 1


def test_traces_that_are_not_at_their_end_are_counted(site: Site, tab: Tab) -> None:
    page = tab.page
    found = {"at": 1e9, "hops": [], "traces": [], "matching": 0, "p50_s": None, "p99_s": None, "kept": 0,
             "discarded": 0, "under_way": 7}  # fmt: skip
    page.route("**/traces?*", lambda route: route.fulfill(json=found))
    page.goto(site.page("traces"))
    page.locator("dt", has_text="in progress").wait_for()
    assert page.locator("div", has=page.locator("dt", has_text="in progress")).last.locator("dd").text_content() == "7"


#: Notes how letters of marks are drawn.
ALIGNED = """
const draw = CanvasRenderingContext2D.prototype.fillText;
window.aligned = [];
CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
  if (String(text).startsWith('B')) aligned.push(this.textAlign);
  return draw.call(this, text, ...at);
};
"""


def test_marks_of_charts_name_who_it_was(site: Site, tab: Tab) -> None:
    """In the chart's title while one points at it, and, without a mouse, in the list of events."""
    now, subject = time.time(), "container_1_count_3"
    said_text = f"the spouts were held back because {subject} was too slow"
    event = {
        "number": 1, "at": now - 60, "first_at": now - 60, "times": 1, "kind": "backpressure", "subject": subject,
        "reason": "", "text": said_text, "lasted_s": 40.0, "warning": False,
        "detail": "",
    }  # fmt: skip
    said = {"events": [event], "last": 1, "forgotten": 0}
    page = tab.page
    page.route("**/events?*", lambda route: route.fulfill(json=said))
    # The figures of the last minutes, whatever the topology has seen yet.
    times = [now - 300 + 10 * number for number in range(31)]
    series = [{"component": "count", "metric": "executed_per_s", "values": [1.0] * len(times)}]
    line = {"times": times, "step_s": 10.0, "series": series, "kept_from": now - 300}
    page.route("**/timeline?*", lambda route: route.fulfill(json=line))
    page.add_init_script(ALIGNED)
    page.goto(site.page())
    page.locator(".chart canvas").first.wait_for()
    page.get_by_label("events, the newest first").get_by_text(said_text).wait_for()
    page.wait_for_function("() => aligned.length")
    assert set(page.evaluate("aligned")) == {"left"}, "a letter stands within its band"
    chart = page.locator(".chart").filter(has_text="rates").first
    over = chart.locator(".u-over").bounding_box()
    for share in (0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85):
        page.mouse.move(over["x"] + share * over["width"], over["y"] + over["height"] / 2)
        if chart.locator("figcaption", has_text=said_text).count():
            return
    raise AssertionError("no place of the chart says who held the spouts")


def test_a_log_that_is_left_while_it_scrolls(site: Site, tab: Tab) -> None:
    """The browser may tell of it after the page has gone on; `tab` demands that nothing is said in the console."""
    page = tab.page
    page.goto(site.page("logs"))
    page.get_by_role("link", name="lines-1").click()
    page.locator(".log .line").first.wait_for()
    box = page.locator(".log .lines").element_handle()
    page.get_by_role("link", name="config").click()
    page.wait_for_function("(box) => !box.isConnected", arg=box)
    box.evaluate("(box) => box.dispatchEvent(new Event('scroll'))")


def test_a_long_log_opens_at_its_end_and_stays_there(site: Site, tab: Tab) -> None:
    """Its lines are of several heights, and none of these is known before the browser has laid it out."""
    page = tab.page
    told = [0]

    def answer(route: Any) -> None:
        first, count = told[0], 5 if told[0] else 600
        told[0] += count
        lines = [
            {"at": 1e9, "level": "INFO", "logger": "", "text": f"line {number} " + "\n  at" * (number % 40)}
            for number in range(first, told[0])
        ]
        piece = {"lines": lines, "begin": first * 100, "end": told[0] * 100, "file": "1", "rotated": False}
        route.fulfill(json=piece)

    page.goto(site.page("logs"))
    page.route("**/api/**/logs/*lines_1*", answer)
    page.get_by_role("link", name="lines-1").click()
    wide = page.viewport_size
    assert wide is not None
    for number, width in ((599, 1300), (609, 500), (619, 700)):
        page.set_viewport_size({"width": width, "height": wide["height"]})
        page.locator(".log .line", has_text=f"line {number} ").wait_for()
        page.wait_for_function(
            "box => box.scrollHeight - box.scrollTop - box.clientHeight < 30",
            arg=page.locator(".log .lines").element_handle(),
        )
    page.locator(".log .lines").evaluate("box => box.scrollTo(0, 0)")
    page.locator(".log .line", has_text="line 639 ").wait_for()
    assert page.locator(".log .lines").evaluate("box => box.scrollTop") == 0
    page.set_viewport_size(wide)
    page.unroute("**/api/**/logs/*lines_1*")


def test_what_looks_like_html_stays_text(site: Site, tab: Tab) -> None:
    page = tab.page
    page.goto(site.page("exceptions"))
    page.get_by_text(SHOWN).first.wait_for()
    assert 'raise ValueError(f"cannot parse' in page.locator(".exception pre").first.text_content()
    page.goto(site.page("letters"))
    # The values are seen without opening it.
    page.locator(".exception summary code", has_text="<script>").first.wait_for()
    page.locator(".exception summary").first.click()
    page.locator(".exception pre", has_text="<script>").first.wait_for()
    page.goto(site.page("config"))
    page.get_by_role("searchbox").fill("own.setting")
    page.get_by_text(SHOWN).wait_for()
    page.goto(site.page("logs"))
    page.get_by_label("find in all logs").fill("opened ")
    page.keyboard.press("Enter")
    page.locator(".log .line", has_text=f"opened {SHOWN}").first.wait_for()
    assert page.get_by_text("hits: 1 in ").count() == 1 and page.locator("img").count() == 0
    page.get_by_role("row").get_by_role("link", name="lines-1").click()
    page.locator(".log .line", has_text=f"opened {SHOWN}").wait_for()
    assert page.locator("img").count() == 0


def test_charts_tables_and_every_other_page(site: Site, tab: Tab) -> None:
    page = tab.page
    page.goto(site.page())
    page.locator(".chart canvas").first.wait_for()
    assert page.locator(".chart .legend th", has_text="lines out").count() == 1
    assert page.locator("section[aria-label=components] tbody tr").count() == 3
    assert page.locator("section[aria-label=streams] tbody tr").count() == 2
    page.get_by_label("colour by").select_option("memory")
    page.locator("[data-node=count]", has_text="memory").wait_for()
    page.goto(site.page("tasks"))
    page.get_by_role("link", name="count-").first.wait_for()
    page.get_by_role("link", name="stmgr-1").wait_for()
    page.goto(site.page("batches"))
    page.get_by_text("no Spark sink").wait_for()
    page.goto(site.page("traces"))
    page.locator(".waterfall .hop.process").first.wait_for()
    assert page.locator("section[aria-label=hops] tbody tr").count() == 12, (
        "five hops to each bolt, and process and ack"
    )
    page.get_by_label("at least").select_option("10000")
    page.get_by_text("No traced tuple took that long").wait_for()
    page.goto(site.page("checkpoints"))
    page.get_by_text("takes no automatic checkpoints").wait_for()
    page.goto(site.page("component", "nobody"))
    page.get_by_text("marked has no component nobody").wait_for()


def test_the_stages_of_a_batch_run(site: Site, tab: Tab) -> None:
    """The words of the tracker, as text; nothing is shown of a topology without units."""
    tab.page.goto(site.page())
    tab.page.locator("section[aria-label=components] tbody tr").first.wait_for()
    assert tab.page.get_by_text("work units").count() == 0
    table = {"titles": ["stage", "units"], "rows": [["1 <b>lines</b>", "3 of 4"], ["2 count", ""]]}
    answer = {"run": {"run": "marked/3", "state": "FAILED", "cause": "no <b>number"}, "table": table}
    tab.page.route("**/progress", lambda route: route.fulfill(json=answer))
    tab.page.reload()
    section = tab.page.locator("section", has=tab.page.get_by_text("batch run marked/3: FAILED"))
    section.get_by_role("row", name="1 <b>lines</b> 3 of 4").wait_for()
    section.get_by_role("alert").get_by_text("no <b>number").wait_for()


#: When the newest figures of the page's live stream were made, whether they are shown or not.
NEWEST = """async () => {
  const { current } = await import('/static/js/live.js');
  return current().state.snapshot.load.at;
}"""


def test_a_page_opens_one_stream(site: Site, tab: Tab) -> None:
    """It is opened before the modules of the page are there, and the page goes on with it."""
    for parts in ((), ("tasks",), ("component", "count"), ("doctor",), ("logs",)):
        tab.page.goto("about:blank")  # else only the fragment of the address differs, and nothing is loaded
        tab.asked.clear()
        tab.page.goto(site.page(*parts))
        tab.page.locator(".head .state", has_text="RUNNING").wait_for()
        assert sum("/live?" in url for url in tab.asked) == 1, parts


def test_frozen_and_going_on(site: Site, tab: Tab) -> None:
    page = tab.page
    page.goto(site.page())
    acked = page.locator("section[aria-label='since submit'] dd").first
    acked.wait_for()
    page.keyboard.press(" ")
    page.get_by_text("frozen").wait_for()
    shown, at = acked.text_content(), page.evaluate(NEWEST)
    wait_for(lambda: page.evaluate(NEWEST) > at, 20.0, "newer figures")
    assert acked.text_content() == shown
    page.keyboard.press(" ")
    wait_for(lambda: acked.text_content() != shown, 20.0, "a page that goes on")


def test_a_full_stop_is_said_plainly(site: Site, tab: Tab) -> None:
    """In the head of every page, in the list, and at the spout; also while nothing is found yet."""
    page, seen = tab.page, snapshot(site)
    spout = next(row for row in seen["load"]["components"] if row["name"] == "lines")
    spout["emitted_per_s"], seen["load"]["held"] = 0, 0.9
    seen["load"]["window_s"] = 10.0
    stopped = seen["topology"] | {
        "emitted_per_s": 0, "recent_per_s": [None, 41_200.0, 38_000.0, 0.0], "state": "RUNNING", "held": 0.9,
        "verdict": None, "sentence": None, "calm": None, "latency_p99_s": None,
    }  # fmt: skip
    for row in seen["load"]["components"]:
        row["queue_tuples"] = 7
    serve(page, seen | {"topology": stopped})
    page.goto(site.page())
    page.locator(".head .alarm", has_text="stopped: 0/s, up to 41.2 k/s before").wait_for()
    assert page.locator(".head").get_by_text("p99 > 10 s").count() == 1
    page.locator("[data-node=lines]", has_text="stopped, held").wait_for()
    page.goto(site.page("logs"))
    page.locator(".head .alarm", has_text="stopped").wait_for()
    page.unroute("**/live?*")
    every = {"level": "list", "topology": None, "topologies": [stopped], "plan": None, "load": None, "tasks": None}
    serve(page, every | {"silent_s": None})
    page.route("**/live", lambda route: route.fulfill(body=f"event: snapshot\ndata: {json.dumps(every)}\n\n"))
    page.goto(site.address)
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="marked", exact=True))
    row.locator(".alarm", has_text="stopped").wait_for()
    row.get_by_role("cell", name="none ended").wait_for()


def test_the_cause_stands_out_and_what_is_so_for_the_machine_does_not(site: Site, tab: Tab) -> None:
    page = tab.page
    finding = {"calm": False, "next": "", "component": "count", "task": "", "figures": {}, "names": [], "host": ""}
    findings = [
        finding | {"verdict": "skew", "sentence": "a key is too frequent"},
        finding | {"verdict": "machine", "sentence": "the machine is busy"},
        finding | {"verdict": "healthy", "calm": True, "sentence": "all is well"},
        finding | {"verdict": "stopped", "sentence": "the spouts have stopped"},
        finding | {"verdict": "limit", "sentence": "the limit limits the rate"},
    ]
    task = {
        "instance_id": "container_1_count_3", "component": "count", "up": True, "executed_per_s": 1.0, "busy": 0.5,
        "emitted_per_s": 0.0, "cpu": 0.1, "queue_bytes": 0, "lag_s": None, "silent_s": 0.0,
    }  # fmt: skip
    said = {
        "topology": "marked", "healthy": False, "window_s": 300.0, "findings": findings, "emitted_per_s": 1.0,
        "held": 0.0, "tasks": [task], "events_known": True, "ended_at": None, "not_known": "",
    }  # fmt: skip
    page.route("**/marked/doctor", lambda route: route.fulfill(json=said))
    page.goto(site.page("doctor"))
    articles = page.locator("article")
    articles.nth(2).wait_for()
    for place, style in enumerate(("warn", "info", "ok", "bad", "warn")):
        assert style in articles.nth(place).locator(".rank").get_attribute("class").split()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="count-3"))
    row.get_by_role("cell", name="MB").wait_for()
    titles = page.locator("section[aria-label='observations of each task'] thead th").all_text_contents()
    assert {"memory", "restarts"} <= {title.split(" ")[0] for title in titles}


@pytest.mark.heavy
def test_a_tracker_that_dies_and_comes_back_and_a_topology_that_ends(site: Site, tab: Tab) -> None:
    page, heron = tab.page, site.heron
    tab.broken = True
    page.goto(site.page())
    page.locator("[data-node=count]", has_text="×2").wait_for()
    heron("update", "local", "marked", "--component-parallelism", "count:3").ok()
    page.locator("[data-node=count]", has_text="×3").wait_for()
    heron("ui", "stop").ok()
    page.get_by_text("No update").wait_for()
    assert page.locator("[data-node=count]").count() == 1
    site.address = tab.address = heron("ui").ok().out.split()[-1]
    page.get_by_text("the tracker was restarted and has a new address").first.wait_for()
    assert page.locator("[data-node=count]").count() == 1, "what was seen stays"
    tab.asked.clear()
    page.goto(site.page())
    page.locator("[data-node=count]", has_text="×3").wait_for()
    assert f"Page: {site.page()}" in heron("status", "local", "marked").ok().out
    heron.kill("marked")
    page.get_by_text("this page shows the last known state").wait_for()
    # Not as it was found last, in the middle of its end.
    page.locator(".state", has_text="KILLED").wait_for()
    assert page.locator("[data-node]").count() == 3
    assert page.locator(".chart canvas").count() > 0


def test_a_topology_that_has_ended_says_why_it_was_ill(site: Site, tab: Tab) -> None:
    """The list said so, and the page of the topology not."""
    page, seen = tab.page, snapshot(site)
    killed = "topology 'marked' was killed"
    ended = {
        "state": "KILLED",
        "ended_at": time.time(),
        "sentence": f"{killed}; the doctor's last finding: count-3 is slow",
    }
    messages = (("snapshot", seen | {"topology": seen["topology"] | ended}), ("gone", {"text": killed}))
    body = "".join(f"event: {event}\ndata: {json.dumps(data)}\n\n" for event, data in messages)
    page.route("**/live?*", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.goto(site.page())
    flow = page.locator(".flow", has_text="this page shows the last known state")
    assert flow.text_content().startswith(f"{ended['sentence']} (")


def test_a_topology_that_has_ended_keeps_its_page(site: Site, tab: Tab) -> None:
    """After the test above, which has killed it; a later one of its name is another run."""
    page, heron = tab.page, site.heron
    if "marked" in heron.names():
        heron.kill("marked")
    launched = heron.submit(PROGRAM, "-").out
    assert f"page:   {site.page()}" in launched
    page.goto(site.address)
    ended = page.locator("section[aria-label=ended]")
    assert (
        ended.get_by_role("link", name="topology 'marked' was killed").first.get_attribute("href").endswith("/doctor")
    )
    ended.get_by_role("link", name="marked").first.click()
    page.get_by_role("heading", name="marked", exact=True).wait_for()
    page.get_by_text("topology 'marked' was killed").wait_for()
    page.locator(".state", has_text="KILLED").wait_for()
    page.locator("[data-node=count]", has_text="/s").wait_for()
    page.locator(".chart canvas").first.wait_for()
    page.locator(".events li", has_text="marked is RUNNING").first.wait_for()
    assert page.get_by_role("button", name="kill").count() == 0
    page.get_by_role("link", name="doctor").click()
    page.locator("article[aria-label=ended]", has_text="topology 'marked' was killed").wait_for()
    page.get_by_text("are no longer known").wait_for()
    page.get_by_role("navigation").get_by_role("link", name="exceptions").click()
    page.get_by_text(SHOWN).first.wait_for()
    page.get_by_role("link", name="tasks").click()
    page.get_by_role("link", name="count-").first.wait_for()
    page.get_by_role("link", name="logs").click()
    page.get_by_role("link", name="lines-1").click()
    page.locator(".log .line", has_text="opened").first.wait_for()
    page.goto(site.page())
    page.get_by_role("button", name="kill").wait_for()
