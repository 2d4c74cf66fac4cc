"""The five sick examples: from the list to the cause in at most four steps, by mouse and by keyboard alone."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import EXAMPLES, Heron
from tests.support.tracker_address import request_to
from tests.support.waiting import wait_for
from tests.ui.conftest import PATIENCE_MS, Tab, chromium

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.timeout(600)]

STEPS_MAX = 4


@dataclass(frozen=True)
class Cause:
    """What is found of an example: the verdict, words of its sentence, and the page that the finding leads to."""

    verdict: str
    words: tuple[str, ...]
    heading: str
    #: What is to be seen there.
    seen: str
    #: What proves it: its key, what is pressed by mouse, and what is seen then.
    evidence: tuple[str, str, str]
    #: What the sentence names for those who may see values.
    value: str = ""


CAUSES = {
    "slow": Cause(
        "slow task", ("is slow", "work_2", "the other tasks of work", "process (sick.py:"), "work / work-2", "busy",
        ("s", "stacks", "most recent call first"),
    ),
    "skew": Cause(
        "skew", ("data skew", "of the tuples", "of its tuples have"), "work / work-", "busy",
        ("p", "profile", "sampled by"), "user='big'",
    ),
    "leak": Cause("memory", ("memory", "work_2"), "work / work-2", "memory", ("h", "heap", "bytearray")),
    "crash": Cause(
        "crashing", (" times", "work_2", "process (sick.py:"), "work / work-2", "cannot be booked",
        ("l", "", "cannot be booked"),
    ),
    "sink": Cause(
        "dependency", ("waiting, not computing", "store", "process (sick.py:"), "store / store-", "busy",
        ("s", "stacks", "in process"),
    ),
}  # fmt: skip


@dataclass
class Sick:
    """One of the examples, its tracker, and what it is ill with."""

    heron: Heron
    address: str
    what: str
    asked_at: float = float("-inf")

    def is_found(self) -> bool:
        """Whether the tracker's first finding is the cause; it is asked twice a second, as it limits what one may ask."""
        if time.monotonic() - self.asked_at < ASK_S:
            return False
        self.asked_at = time.monotonic()
        role = next((self.heron.home / "topologies" / "local").iterdir()).name
        asked = f"{self.address}/api/v1/topologies/local/{role}/default/Sick"
        with urllib.request.urlopen(request_to(asked), timeout=30) as answer:
            said = json.load(answer)
        cause = CAUSES[self.what]
        return said["verdict"] == cause.verdict and all(word in said["sentence"] for word in cause.words)


ASK_S = 0.5
#: Named within some ten seconds, also on a machine that has other work to do.
QUICK = ("crash",)


@pytest.fixture(params=[pytest.param(what, marks=() if what in QUICK else pytest.mark.heavy) for what in CAUSES])
def site(request: pytest.FixtureRequest) -> Iterator[Sick]:
    """Running long enough that the cause is known."""
    with chromium():
        pass  # nothing is started for a browser that is missing
    folder = Path(tempfile.mkdtemp(prefix="hp-", dir="/tmp"))
    heron = Heron(folder / "home")
    try:
        (folder / "home").mkdir(mode=0o700)
        heron("submit", "local", EXAMPLES / "sick.py", "Sick", "--what", request.param).ok()
        sick = Sick(heron, heron("ui").ok().out.split()[-1], request.param)
        wait_for(sick.is_found, 240.0, f"the tracker naming {CAUSES[request.param].verdict}")
        yield sick
    finally:
        heron("ui", "stop")
        heron.kill("Sick")
        wait_for(lambda: not heron.processes(), 20.0, "the end of all processes")
        shutil.rmtree(folder)


def test_the_cause_is_found_by_mouse_and_by_keyboard_alone(site: Sick, tab: Tab) -> None:
    page, cause = tab.page, CAUSES[site.what]
    key, button, proof = cause.evidence
    page.on("dialog", lambda dialog: dialog.accept())  # the pause of a task that has its objects counted

    def by_mouse() -> list[Any]:
        first = page.locator("article").first
        return [
            lambda: page.get_by_role("link", name="Sick", exact=True).click(),
            lambda: page.get_by_role("link", name="evidence").click(),
            lambda: first.get_by_role("link").first.click(),
            lambda: button and page.get_by_role("button", name=button).click(),
        ]

    def by_keyboard() -> list[Any]:
        def press(*keys: str) -> None:
            for key in keys:
                page.keyboard.press(key)

        return [
            lambda: press("j", "Enter"), lambda: press("g", "d"), lambda: press("j", "Enter"), lambda: press(key),
        ]  # fmt: skip

    for steps in (by_mouse(), by_keyboard()):
        assert len(steps) <= STEPS_MAX
        page.goto(site.address)
        page.reload()
        # The list says it already.
        said = page.get_by_role("row").filter(has=page.get_by_role("link", name="Sick", exact=True))
        said.filter(has_text=cause.words[0]).wait_for()
        open_topology, open_doctor, open_culprit, take_evidence = steps
        open_topology()
        sentence = page.locator(".sentence strong")
        sentence.filter(has_text=cause.value or cause.words[0]).wait_for()
        for word in cause.words:
            assert word in sentence.text_content(), sentence.text_content()
        assert (
            page.locator(".sentence").get_by_role("link", name="work-" if site.what != "sink" else "store-").count()
            == 1
        )
        open_doctor()
        leads = page.locator("article").first
        leads.filter(has_text=cause.verdict).get_by_role("link").first.wait_for()
        open_culprit()
        page.get_by_role("heading", name=cause.heading).wait_for()
        page.locator("main").get_by_text(cause.seen).first.wait_for()
        take_evidence()
        page.locator("section[aria-label='current activity'], .log .lines").get_by_text(proof).first.wait_for()
    # Who knows the keys needs two steps: the first of the list is the worst, and so is the first finding.
    page.goto(site.address)
    page.reload()
    page.locator("[data-row]").first.wait_for()
    page.keyboard.press("g")
    page.keyboard.press("d")
    leads.filter(has_text=cause.verdict).get_by_role("link").first.wait_for()
    page.keyboard.press(key)
    page.get_by_role("heading", name=cause.heading).wait_for()
    page.wait_for_function(
        "() => document.activeElement.closest(\"section[aria-label='current activity'], .log\")",
        timeout=2 * PATIENCE_MS,
    )
