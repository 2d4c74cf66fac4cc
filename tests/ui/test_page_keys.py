"""The pages by keyboard alone: what the keys do, where they lead, and what is to be done next."""

from __future__ import annotations

import json

import pytest

from tests.support.waiting import wait_for
from tests.ui.conftest import PATIENCE_MS, Site, Tab, serve, snapshot

pytestmark = pytest.mark.slow


#: The second key after g, and how its page is known: by the page's own words or heading.
LEADS = {
    "d": "doctor", "t": "tasks", "c": "checkpoints", "b": "batches", "e": "exceptions", "x": "letters", "r": "traces",
    "o": "logs", "s": "config", "g": "",
}  # fmt: skip


def test_every_page_has_its_keys_and_the_help_names_them(site: Site, tab: Tab) -> None:
    page = tab.page
    page.goto(site.page())
    page.locator("[data-node=count]").wait_for()
    for key, name in LEADS.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        # The address has the page behind the name of the topology.
        page.wait_for_function("end => location.hash.endsWith(end)", arg=f"/marked/{name}" if name else "/marked")
        page.get_by_role("heading", name="marked").first.wait_for()
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="keys")
    help_.wait_for()
    told = "  ".join(help_.locator("kbd").all_text_contents()).split("  ")
    assert {f"g {key}" for key in LEADS} <= set(told) and "g l" in told


def test_keys_lead_from_the_list_to_the_doctor_and_to_evidence(site: Site, tab: Tab) -> None:
    page = tab.page
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(site.address)
    page.get_by_role("link", name="marked", exact=True).wait_for()
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_function("() => location.hash.endsWith('/marked/doctor')")
    page.keyboard.press("g")
    page.keyboard.press("g")
    page.locator("[data-node=lines]").wait_for()
    page.locator("section[aria-label=components] tbody tr").first.wait_for()
    # On the overview the doctor's finding comes first, then the graph, and only then the tables below the charts.
    page.locator(".sentence a").first.wait_for()
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('.sentence') !== null")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.dataset.node") == "lines"
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="marked / lines").wait_for()
    taken = page.get_by_role("region", name="current activity")

    tab.broken = True  # a process that is busy may not print its stacks in time; the page says to ask again

    def shows(key: str, what: str) -> None:
        """By its heading, and it has the focus, so that keys scroll it."""
        title = taken.get_by_role("heading", name=what)

        def is_shown() -> bool:
            page.keyboard.press(key)
            title.or_(page.locator(".trouble")).first.wait_for()
            return bool(title.count())

        wait_for(is_shown, PATIENCE_MS / 1000, what)
        page.wait_for_function("() => document.activeElement.closest(\"section[aria-label='current activity']\")")

    # Of the task of the first row.
    page.locator("section[aria-label=tasks] tbody a").first.wait_for()
    shows("s", "stacks of lines-1")
    assert page.evaluate("location.hash").endswith("/task/container_1_lines_1")
    for key, kind in (("p", "profile"), ("h", "heap"), ("s", "stacks")):
        shows(key, f"{kind} of lines-1")
    page.keyboard.press("l")
    assert page.evaluate("document.activeElement.closest('.log') !== null")
    # Of the marked row; the log needs no button.
    page.goto(site.page("component", "count"))
    last = page.locator("section[aria-label=tasks] tbody tr a").last
    last.wait_for()
    last.focus()
    goal = last.get_attribute("href")
    page.keyboard.press("l")
    page.wait_for_function("(goal) => location.hash === goal", arg=goal)
    page.wait_for_function("() => document.activeElement.closest('.log')")


def test_the_graph_is_one_stop_of_tab(site: Site, tab: Tab) -> None:
    """One of twenty components took twenty more to pass; arrows reach all of them."""
    page = tab.page
    page.goto(site.page())
    page.locator("[data-node=count]").wait_for()
    page.get_by_label("colour by").focus()

    def here() -> str:
        return str(
            page.evaluate("document.activeElement.dataset.node ?? document.activeElement.outerHTML.slice(0, 200)")
        )

    page.keyboard.press("Tab")
    assert here() == "lines"
    seen = [here()]
    for _ in range(2):
        page.keyboard.press("ArrowDown")
        seen.append(here())
    assert sorted(seen) == ["count", "lines", "parse"], "also those that are on no edge from here"
    page.keyboard.press("Tab")
    assert here() not in seen
    page.keyboard.press("Shift+Tab")
    assert here() == seen[-1], "where one has left it"


def test_keys_in_the_list_are_about_the_task_that_the_doctor_names(site: Site, tab: Tab) -> None:
    """The help promised it, and nothing happened."""
    page, seen = tab.page, snapshot(site)
    named = seen["topology"] | {"task": "container_1_count_3", "sentence": "count-3 is slow"}
    other = seen["topology"] | {"name": "other", "id": "other-1", "task": "", "rank": 0}
    every = {"level": "list", "topology": None, "topologies": [named, other], "plan": None, "load": None, "tasks": None}
    page.route("**/live", lambda route: route.fulfill(body=f"event: snapshot\ndata: {json.dumps(every)}\n\n"))
    page.goto(site.address)
    page.get_by_role("link", name="other", exact=True).focus()
    page.keyboard.press("s")
    assert page.evaluate("location.hash") in ("", "#/"), "the marked row names no task"
    page.get_by_role("link", name="marked", exact=True).focus()
    page.keyboard.press("s")
    page.get_by_role("heading", name="count / count-3").wait_for()
    page.get_by_role("heading", name="stacks of count-3").wait_for()


def test_what_is_to_be_done_next_is_a_link_where_the_page_has_it(site: Site, tab: Tab) -> None:
    page, seen = tab.page, snapshot(site)
    where = "local marked"
    crashing = {
        "verdict": "crashing", "calm": False, "sentence": "count-3 was restarted 3 times", "component": "count",
        "task": "container_1_count_3", "next": f"heron exceptions {where}; heron logs {where} container_1_count_3",
    }  # fmt: skip
    serve(page, seen | {"topology": seen["topology"] | crashing})
    page.goto(site.page())
    leads = page.locator(".sentence .next", has_text="see")
    for name in ("count-3", "log", "stacks", "profile", "heap", "count", "exceptions", "dead letters"):
        assert leads.get_by_role("link", name=name, exact=True).count() == 1, name
    leads.get_by_role("link", name="stacks").click()
    page.get_by_role("heading", name="stacks of count-3").wait_for()
    # The same link on the page where it leads.
    leads.get_by_role("link", name="log").click()
    page.wait_for_function("() => document.activeElement.closest('.log')")


def test_what_is_to_be_done_next_can_be_done_on_the_page(site: Site, tab: Tab) -> None:
    """A diagnosis named `heron update` and `heron restart`, and the page's own dialogs had to be found and filled in."""
    page, seen = tab.page, snapshot(site)
    more = "heron update local marked --component-parallelism count:3"
    advised = {"verdict": "under-provisioned", "calm": False, "sentence": "count needs more tasks", "component": "count",
               "next": more}  # fmt: skip
    serve(page, seen | {"topology": seen["topology"] | advised})
    page.goto(site.page())
    see = page.locator(".sentence .next", has_text="see")
    see.get_by_role("button").first.wait_for()
    assert see.get_by_role("button").all_text_contents() == ["update …"]
    see.get_by_role("button", name="update").click()
    assert page.get_by_role("dialog").get_by_label("count").input_value() == "3"
    page.get_by_role("button", name="preview").click()
    page.get_by_role("dialog").get_by_text("would add 1").wait_for()
    page.get_by_role("button", name="close").click()
    assert page.get_by_role("dialog").count() == 0
    page.locator(".actions").get_by_role("button", name="update").click()
    assert page.get_by_role("dialog").get_by_label("count").input_value() == "2", "as it is, where nothing is advised"


def test_the_task_that_is_to_be_restarted_is_chosen(site: Site, tab: Tab) -> None:
    page, seen = tab.page, snapshot(site)
    task, where = "container_1_count_3", "local marked"
    slow = {"verdict": "slow task", "calm": False, "sentence": "count-3 is slow", "component": "count", "task": task,
            "next": f"heron profile {where} {task}; heron restart {where} {task}"}  # fmt: skip
    serve(page, seen | {"topology": seen["topology"] | slow})
    page.goto(site.page())
    page.locator(".sentence .next", has_text="see").get_by_role("button", name="restart").click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_label("part").input_value() == task
    dialog.get_by_role("button", name="preview").click()
    dialog.get_by_text("would restart 1 task").wait_for()
    assert dialog.locator(".changes li").all_text_contents() == [task]


def test_a_task_shows_what_it_does_by_keyboard_alone(site: Site, tab: Tab) -> None:
    page = tab.page
    said: list[str] = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.accept()))
    page.goto(site.page("task", "container_1_count_3"))
    taken = page.get_by_role("region", name="current activity")
    for kind, what in (
        ("stacks", "most recent call first"),
        ("heap", "The process stopped for"),
        ("profile", "sampled by"),
    ):
        taken.get_by_role("button", name=kind).focus()
        page.keyboard.press("Enter")
        taken.get_by_text(what).first.wait_for()
    assert taken.get_by_text("of a core").count() == 1, "a task that waits shows little, whatever its picture says"
    assert said == ["container_1_count_3 stops for up to 2 s while its objects are counted."]
    assert taken.locator("svg rect").count() == 0 or taken.locator("tbody tr").count() > 0, "a table next to the graph"
    tab.broken = True  # what is not there is asked for
    page.goto(site.page("task", "container_1_nobody_9"))
    page.get_by_text("has no task container_1_nobody_9 now").wait_for()
    assert taken.count() == 0
