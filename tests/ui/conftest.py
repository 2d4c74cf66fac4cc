"""A running topology, a tracker and a browser. What every test demands of a page is checked when it closes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.request import urlopen

import pytest

from tests.support.command import Heron
from tests.support.tracker_address import request_to
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).with_name("marked.py")
#: What a page may take under load; an idle machine is far faster.
PATIENCE_MS = 30_000.0
NETWORK_CHANGED, LOADS_MAX = "ERR_NETWORK_CHANGED", 10
PLACES = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")


def missing(what: str) -> NoReturn:
    """Skip, or fail where HERON_TEST_BROWSER=required, for want of something."""
    if os.environ.get("HERON_TEST_BROWSER") == "required":
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; skips when Chromium or Playwright is missing."""
    path = next((path for path in PLACES if os.access(path, os.X_OK)), None)
    if path is None:
        missing(f"Chromium is in none of {', '.join(PLACES)}")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("Playwright is not installed: pip install -e '.[dev]'")
    with sync_playwright() as playwright:
        # Without a sandbox only where Chromium cannot have one: it is root's in a container.
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        started = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield started
        finally:
            started.close()


def lasting_page(owner: Any) -> Any:
    """A new page of a browser or a context, which is loaded again when the machine's network changes meanwhile: then
    Chromium drops all connections, also to this machine, and other tests make hosts with interfaces."""
    page, failed = owner.new_page(), list[str]()
    go = page.goto
    page.on("requestfailed", lambda request: failed.append(request.failure or ""))

    def goto(address: str, **options: Any) -> Any:
        for _ in range(LOADS_MAX):
            failed.clear()
            try:
                answer = go(address, **options)
            except Exception as error:
                if NETWORK_CHANGED not in str(error):
                    raise
            else:
                if not any(NETWORK_CHANGED in one for one in failed):
                    return answer
                go("about:blank")  # or an address that differs in its fragment only would load nothing
        pytest.fail(f"{address} was dropped {LOADS_MAX} times because the network changed", pytrace=False)

    page.goto = goto
    return page


@dataclass
class Site:
    """A topology that runs and a tracker."""

    heron: Heron
    address: str
    name: str = "marked"

    def page(self, *parts: str) -> str:
        """Address of a page of the topology."""
        role = next(iter((self.heron.home / "topologies" / "local").iterdir())).name
        return "/".join([f"{self.address}/#/t/local/{role}/default/{self.name}", *parts])


@pytest.fixture(scope="module")
def site(warm_commands: None) -> Iterator[Site]:
    """One for all tests of a module: it takes seconds to start. Left clean."""
    with running(PROGRAM, "marked", "-", "--config-property", "heron.instance.poison_tries=2") as found:
        yield found


@contextmanager
def running(program: Path, name: str, *words: str) -> Iterator[Site]:
    """A topology that runs, and a tracker; nothing of them is left."""
    with chromium():
        pass  # nothing is started for a browser that is missing
    # Not tmp_path: paths of ipc sockets are limited to 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="hp-", dir="/tmp"))
    try:
        for part in ("home", "t"):
            (folder / part).mkdir(mode=0o700)
        heron = Heron(folder / "home")
        heron.env["TMPDIR"] = str(folder / "t")
        try:
            heron.submit(program, *words)
            yield Site(heron, heron("ui").ok().out.split()[-1], name)
        finally:
            heron("ui", "stop")
            for left in heron.names():
                heron.kill(left)
            wait_for(lambda: not heron.processes(), 20.0, "the end of all processes")
    finally:
        shutil.rmtree(folder)


@dataclass
class Tab:
    """A page, and what it did that no page may do."""

    page: Any
    address: str
    asked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    #: Failing requests are part of the test.
    broken: bool = False

    def check(self) -> None:
        """No error, no report of the content security policy, no request elsewhere, nothing run out of texts."""
        reports = self.page.evaluate("window.reports")
        assert not reports, f"reports of the content security policy: {reports}"
        foreign = [url for url in self.asked if not url.startswith((self.address, "data:"))]
        assert not foreign, f"requests that left: {foreign}"
        assert self.page.evaluate("window.pwned") is None
        wrong = [text for text in self.wrong if NETWORK_CHANGED not in text]
        wrong = [text for text in wrong if not (self.broken and "Failed to load resource" in text)]
        assert not wrong, f"errors: {wrong}"


@pytest.fixture
def browser(site: Site) -> Iterator[Any]:
    """A browser of its own for each test, so that nothing of it is left."""
    with chromium() as started:
        yield started


@pytest.fixture
def tab(browser: Any, site: Site) -> Iterator[Tab]:
    """An empty page that is checked at the end."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(PATIENCE_MS)
    page = lasting_page(context)
    page.add_init_script(
        "window.reports = [];"
        "addEventListener('securitypolicyviolation', (e) => reports.push(`${e.violatedDirective} ${e.sourceFile}:${e.lineNumber}`))"
    )
    found = Tab(page, site.address)
    page.on("request", lambda request: found.asked.append(request.url))
    page.on("pageerror", lambda error: found.wrong.append(str(error)))
    page.on(
        "console", lambda message: message.type == "error" and found.wrong.append(f"{message.text}: {message.location}")
    )
    yield found
    found.check()
    context.close()


def snapshot(site: Site) -> Any:
    """The first message of the live stream of the topology."""
    place = site.page().partition("/#/t/")[2]
    asked = request_to(f"{site.address}/api/v1/live?topology={place}&level=fitting")
    with urlopen(asked, timeout=30) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                return json.loads(line.removeprefix(b"data: "))
    raise AssertionError("no snapshot")


def serve(page: Any, seen: Any) -> None:
    """Let the live stream of the page say this and nothing else."""
    body = f"event: snapshot\ndata: {json.dumps(seen)}\n\n"
    page.route("**/live?*", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
