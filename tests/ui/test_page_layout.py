"""How the pages look in a browser: without faults that axe finds, and whole in narrow windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from heronpy.statemgr import open_state
from tests.jobs.job_worlds import make_job
from tests.support.command import REPO
from tests.ui.conftest import PATIENCE_MS, Site, lasting_page, missing

pytestmark = pytest.mark.slow


#: Each page of a topology, and what is there once it has its figures.
AXE_PAGES = {
    "": ".chart canvas",
    "doctor": "article",
    "exceptions": ".exception",
    "tasks": "tbody tr",
    "config": "tbody tr",
    "traces": ".waterfall",
    "logs": "tbody tr, .log",
    "letters": "main section, main table, main p",
    "checkpoints": "main p, main table",
    "batches": "main p, main table",
    "component/count": "tbody tr",
    "task/container_1_count_3": ".log .line",
}


def test_axe_is_shown_every_page() -> None:
    """A page is a module; the overview, the table of tasks and components are one, exceptions and letters another."""
    modules = {path.stem for path in (REPO / "heronpy/tracker/static/js/pages").glob("*.js")}
    asked = {part.partition("/")[0] for part in AXE_PAGES}
    assert modules - {"list", "topology", "job"} == asked - {"", "tasks", "component", "letters"}


#: As /pools and one of them answer.
POOL = {
    "cluster": "local", "pool": "small", "size": {"cpu": 2.0, "ram_bytes": 1 << 30}, "topologies": ["Day"], "scheduler": False,
    "slots": [{"slot": 1, "state": "RUNNING", "host": "vm", "shards": 64, "containers": 1, "load": 0.5, "cpu": 1.0, "ram_bytes": 1}],
}  # fmt: skip


@pytest.fixture
def jobs(site: Site) -> Iterator[dict[str, str]]:
    """The pages of a job, with its list, and what is there once they have their figures."""
    state = open_state("local", str(site.heron.home / "state" / "local"))
    store = make_job(state)
    store.decided("Day", "scaler", "work", "work has as many tasks as it may have, " * 4)
    store.set("Day", "oncall", {"parallelism": {"work": 6}}, 0, "ada", "backfill")
    yield {
        site.address: "section[aria-label='pool small'] tbody tr",
        f"{site.address}/#/job/local%2FDay": ".pins button",
    }
    store.delete("Day")
    state.close()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.heavy)])
def test_axe_finds_nothing(site: Site, browser: Any, jobs: dict[str, str], scheme: str) -> None:
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        missing("axe-playwright-python is not installed: pip install -e '.[dev]'")
    # axe brings its own scripts, which the policy would not let in.
    context = browser.new_context(color_scheme=scheme, bypass_csp=True, viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(PATIENCE_MS)
    page = lasting_page(context)
    page.route("**/pools**", lambda route: route.fulfill(json=[POOL] if route.request.url.endswith("/pools") else POOL))
    pages = [
        (site.address, "a[href*=marked]"),
        *jobs.items(),
        *((site.page(*part.split("/")) if part else site.page(), seen) for part, seen in AXE_PAGES.items()),
    ]
    wrong = []
    for address, seen in pages:
        page.goto(address)
        page.locator(seen).first.wait_for()
        found = Axe().run(page)
        if found.violations_count:
            wrong.append(f"{address} in {scheme}: {found.generate_report()}")
    assert not wrong, "\n".join(wrong)
    context.close()


#: On how many lines each text of an element stands.
LINES = """(element) => [...element.childNodes].filter((one) => one.nodeType === Node.TEXT_NODE).map((text) => {
  const range = document.createRange();
  range.selectNodeContents(text);
  return range.getClientRects().length;
})"""


def test_the_sentence_is_seen_whole_in_a_narrow_list(site: Site, browser: Any) -> None:
    context = browser.new_context(viewport={"width": 400, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    try:
        page = lasting_page(context)
        page.goto(site.address)
        sentence = page.locator("td a[href$=doctor]").first
        sentence.wait_for()
        box = sentence.bounding_box()
        assert box["width"] >= 150 and box["x"] + box["width"] <= 400, box
        assert max(page.locator(".where").first.evaluate(LINES)) == 1, "cluster/role/environ breaks at a slash only"
        page.set_viewport_size({"width": 1280, "height": 900})
        assert page.locator(".where").first.bounding_box()["height"] < 24, "and in a wide window not at all"
    finally:
        context.close()


#: What is beyond the edges of the window and in no box that scrolls there: nobody can see it.
LOST = """() => [...document.querySelectorAll('main *')].filter((one) => {
  const { left, right, width } = one.getBoundingClientRect();
  if (!width || (left >= -1 && right <= innerWidth + 1) || one.closest('.unseen')) return false;
  for (let box = one.parentElement; box; box = box.parentElement) if (/auto|scroll/.test(getComputedStyle(box).overflowX)) return false;
  return true;
}).map((one) => one.outerHTML.slice(0, 200))"""


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_cut_off_in_a_narrow_window(site: Site, browser: Any, jobs: dict[str, str], width: int) -> None:
    """Each wide table scrolls in its own box, also by the keys of a keyboard, and the page does not scroll sideways."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    page = lasting_page(context)
    try:
        pages = {site.page(*part.split("/")) if part else site.page(): seen for part, seen in AXE_PAGES.items()}
        page.route(
            "**/pools**", lambda route: route.fulfill(json=[POOL] if route.request.url.endswith("/pools") else POOL)
        )
        for address, seen in {**jobs, **pages}.items():
            page.goto(address)
            page.locator(seen).first.wait_for()
            assert page.evaluate(LOST) == [], address
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
        page.goto(site.page("tasks"))
        box = page.locator(".scroll").first
        box.focus()
        for _ in range(60):
            page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "box => box.scrollLeft + box.clientWidth > box.scrollWidth - 2", arg=box.element_handle()
        )
    finally:
        context.close()
