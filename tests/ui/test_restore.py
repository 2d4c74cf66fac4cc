"""Going back to a checkpoint from the page: said first, then done; by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Request, Route

from tests.ui.conftest import Site, Tab, running

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("kept.py")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One for all tests of the module."""
    # No checkpoint comes by itself, so none goes while a test looks at it.
    with running(PROGRAM, "kept", "-", "--config-property", "heron.checkpoint.interval_s=3600") as found:
        yield found


def savepoint(site: Site) -> int:
    """The number of a checkpoint that has just been taken."""
    site.heron("checkpoints", "savepoint", "local", "kept").ok()
    found = site.heron("checkpoints", "list", "local", "kept", "--json").json()
    return max(int(one["checkpoint"]) for one in found["checkpoints"])


def test_by_mouse_from_the_list_of_checkpoints(site: Site, tab: Tab) -> None:
    page, first, second = tab.page, savepoint(site), savepoint(site)
    page.goto(site.page("checkpoints"))
    page.get_by_role("button", name=f"restore checkpoint {first}", exact=True).click()
    dialog = page.get_by_role("dialog", name="restore kept")
    dialog.get_by_role("heading", name=f"restore kept, checkpoint {first}").wait_for()
    do = dialog.get_by_role("button", name="restore", exact=True)
    assert do.is_disabled(), "it is said first"
    dialog.get_by_role("button", name="preview").click()
    dialog.get_by_text(f"would go back to checkpoint {first}").wait_for()
    dialog.get_by_text("3 tasks restart with their state at that time").wait_for()
    dialog.get_by_text(
        "is processed again; it counts once in states and in the output that sinks publish with checkpoints"
    ).wait_for()
    dialog.get_by_text(
        "spout clock keeps no position and cannot be rewound: tuples that it emits again may be counted"
    ).wait_for()
    dialog.get_by_text(f"newer checkpoints are abandoned: {second}").wait_for()
    with page.expect_request(lambda request: request.method == "POST" and "restore" in request.url) as asked:
        do.click()
    assert asked.value.headers["if-match"] and asked.value.post_data_json == {"checkpoint": first, "dry_run": False}
    dialog.get_by_text(f"has resumed from checkpoint {first}").wait_for()
    dialog.get_by_role("button", name="close").click()
    page.get_by_text("abandoned for an older checkpoint").wait_for()


def test_before_the_page_knows_the_plan(site: Site, tab: Tab) -> None:
    """A click is quicker than the first look at the topology; the version of the first answer goes along then."""
    page, number = tab.page, savepoint(site)
    held: list[Route] = []
    page.route("**/live?**", lambda route: held.append(route))
    page.goto(site.page("checkpoints"))
    page.get_by_role("button", name=f"restore checkpoint {number}", exact=True).click()
    dialog = page.get_by_role("dialog", name="restore kept")
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request) if "actions/restore" in request.url else None)
    dialog.get_by_role("button", name="preview").click()
    dialog.get_by_text(f"would go back to checkpoint {number}").wait_for()
    dialog.get_by_role("button", name="restore", exact=True).click()
    dialog.get_by_text(f"has resumed from checkpoint {number}").wait_for()
    assert held and ["if-match" in one.headers for one in asked] == [False, True]
    page.unroute_all()


def test_by_keyboard_from_the_page_of_one_checkpoint(site: Site, tab: Tab) -> None:
    page, number = tab.page, savepoint(site)
    page.goto(site.page("checkpoints"))
    page.get_by_role("button", name=f"restore checkpoint {number}", exact=True).wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"checkpoint {number}", exact=True).wait_for()
    page.get_by_role("button", name=f"restore checkpoint {number}").wait_for()
    for _ in range(40):
        if page.evaluate("document.activeElement.getAttribute('aria-label')") == f"restore checkpoint {number}":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="restore kept")
    dialog.get_by_role("button", name="preview").wait_for()
    page.keyboard.press("Enter")
    dialog.get_by_text(f"would go back to checkpoint {number}").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    dialog.get_by_text(f"has resumed from checkpoint {number}").wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
