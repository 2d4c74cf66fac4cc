"""What can go wrong while somebody looks: one sentence each, and the page goes on."""

from __future__ import annotations

import http.client
import os
import signal
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from heronpy.tracker.guard import STREAMS_MAX
from tests.support.tracker_address import request_to
from tests.ui.conftest import Site, Tab

pytestmark = [pytest.mark.slow, pytest.mark.heavy]


@pytest.fixture(autouse=True)
def requests_may_fail(tab: Tab) -> None:
    """They are what these tests are about."""
    tab.broken = True


def test_what_is_not_there_is_said(site: Site, tab: Tab) -> None:
    page, role = tab.page, site.page().split("/")[-3]
    for address, said in (
        (f"{site.address}/#/t/local/{role}/default/markd", "has no topology 'markd'; the nearest name is marked"),
        (f"{site.address}/#/t/local/other/default/marked", "topology 'marked' is not in local/other/default"),
        (f"{site.address}/#/t/locl/{role}/default/marked", "there is no cluster 'locl'; the nearest name is local"),
        (f"{site.address}/#/t/%zz/%E0%A4%A/default/x", "there is no cluster '%zz'"),
        (site.page("task", "container_9_zz_99"), "The topology has no task container_9_zz_99 now."),
        (site.page("component", "zz"), "marked has no component zz"),
        (site.page("checkpoints", "99"), "'marked' has no checkpoint 99"),
        (site.page("logs", "..%2f..%2flaunch"), "there is no page or route"),
        (site.page("nothing"), "Page not found"),
    ):
        page.goto("about:blank")
        page.goto(address)
        page.get_by_text(said).first.wait_for()


def test_a_topology_master_that_hangs_is_said_and_forgotten(site: Site, tab: Tab) -> None:
    page, master = tab.page, site.heron.pid("marked", "tmaster")
    page.goto(site.page())
    page.locator("[data-node=count]", has_text="/s").wait_for()
    silent = page.get_by_text("The topology master has not answered for")
    os.kill(master, signal.SIGSTOP)
    try:
        silent.wait_for()
        assert page.locator("[data-node]").count() == 3, "what is known stays"
    finally:
        os.kill(master, signal.SIGCONT)
    silent.wait_for(state="hidden")


def test_a_long_line_and_half_a_log_are_shown(site: Site, tab: Tab) -> None:
    logs = site.heron.log_dir("marked")
    process = next(path.stem for path in sorted(logs.glob("container_1_count_*.log")))
    with open(logs / f"{process}.log", "ab") as file:
        file.write(
            b"2026-01-01T00:00:00.000+0000 WARN  x [user] " + b"y" * 65_536 + b"\nnot a record \xff\xfe \x1b[2J\n"
        )
    tab.page.goto(site.page("task", process))
    tab.page.locator(".log .line", has_text="not a record").first.wait_for()
    # It is longer than what is read at first.
    tab.page.get_by_role("button", name="earlier lines").click()
    line = tab.page.locator(".log .line", has_text="y" * 1000).first
    line.wait_for()
    assert "y" * 3000 not in line.text_content(), "the rest waits for a click"
    line.get_by_role("button", name="more characters").click()
    tab.page.locator(".log .line", has_text="y" * 3000).first.wait_for()


BY_PROXY = "https://heron.test"


def by_proxy(site: Site, route: Any) -> None:
    """Answer a request of the browser as a proxy with TLS would; live streams say nothing."""
    path = route.request.url.removeprefix(BY_PROXY)
    if path.startswith("/api/v1/live"):
        route.fulfill(body="", content_type="text/event-stream")
        return
    asked = request_to(site.address + path)
    if token := route.request.headers.get("authorization"):
        asked.add_header("Authorization", token)
    try:
        with urlopen(asked, timeout=30) as answer:
            route.fulfill(status=answer.status, content_type=answer.headers["Content-Type"], body=answer.read())
    except HTTPError as error:
        route.fulfill(status=error.code, content_type=error.headers["Content-Type"], body=error.read())


def test_a_token_says_what_it_lacks_and_one_that_is_gone_asks_for_another(site: Site, tab: Tab) -> None:
    page, tab.address, tab.broken = tab.page, BY_PROXY, True
    page.route(f"{BY_PROXY}/**", lambda route: by_proxy(site, route))
    secret = site.heron("ui", "token", "view").ok().out.split()[0]
    page.goto(BY_PROXY)
    page.evaluate("(secret) => sessionStorage.setItem('heron-token', secret)", secret)
    page.goto(site.page("logs").replace(site.address, BY_PROXY))
    page.reload()
    page.get_by_text("the token 'view' does not allow this").first.wait_for()
    page.locator("h1", has_text="marked").wait_for()
    site.heron("ui", "token", "view", "--remove").ok()
    page.reload()
    page.get_by_role("heading", name="Sign in").wait_for()
    page.get_by_text("this token is not valid, or no longer valid").wait_for()
    page.get_by_label("token").wait_for()


def test_a_page_without_tls_sends_no_token(site: Site, tab: Tab) -> None:
    """Another user of the machine would get it, when he takes the port of a tracker that has ended."""
    page, sent = tab.page, list[str]()
    page.goto(site.address)
    page.evaluate("sessionStorage.setItem('heron-token', 'secret')")
    page.on("request", lambda request: sent.append(request.headers.get("authorization", "")))
    page.goto(site.page("logs"))
    page.reload()
    page.locator("h1", has_text="marked").wait_for()
    assert sent and not any(sent)


def test_an_update_of_a_plan_that_has_changed_is_refused(site: Site, tab: Tab) -> None:
    page = tab.page
    page.goto(site.page())
    page.get_by_role("button", name="update").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("count").fill("3")
    site.heron("update", "local", "marked", "--component-parallelism", "parse:2").ok()
    dialog.get_by_role("button", name="preview").click()
    dialog.get_by_text("check what has changed, and repeat the request").wait_for()


def test_a_double_click_does_it_once(site: Site, tab: Tab) -> None:
    """The second one was refused, as if somebody else changed the topology, while the first was at work."""
    page = tab.page
    asked: list[bool] = []

    def answer(route: Any) -> None:
        asked.append(route.request.post_data_json["dry_run"])
        route.fulfill(
            json={"action": "restart", "dry_run": asked[-1], "text": "so it is", "changes": [], "plan_version": 1}
        )

    page.route("**/actions/restart", answer)
    page.goto(site.page())
    page.locator(".actions").get_by_role("button", name="restart").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="preview").click()
    dialog.get_by_text("so it is").wait_for()
    dialog.locator(".do:enabled").evaluate("(button) => { button.click(); button.click(); }")
    dialog.locator(".do").wait_for(state="detached")
    assert asked == [True, False]


def test_a_plan_that_cannot_be_read_is_said_by_a_tracker_that_has_not_seen_it(site: Site, tab: Tab) -> None:
    [plan] = (site.heron.home / "state").rglob("packingplans/marked.node")
    whole = Path(plan).read_bytes()
    site.heron("ui", "stop").ok()
    plan.write_bytes(whole[:10])
    try:
        site.address = tab.address = site.heron("ui").ok().out.split()[-1]
        tab.page.goto(site.page())
        tab.page.get_by_text("marked.node is damaged").wait_for()
        tab.page.locator(".state", has_text="RUNNING").first.wait_for()
    finally:
        plan.write_bytes(whole)
    tab.page.locator("[data-node=count]").wait_for()


def test_too_many_pages_at_once_are_told_to_wait(site: Site, tab: Tab) -> None:
    page, address = tab.page, urlsplit(site.address)
    streams = [http.client.HTTPConnection("127.0.0.1", address.port) for _ in range(STREAMS_MAX)]
    try:
        for one in streams:
            one.request("GET", "/api/v1/live", headers={"Host": address.netloc})
            assert one.getresponse().status == 200
        page.goto(site.page())
        page.get_by_text(f"{STREAMS_MAX} pages of uid {os.getuid()} are already open").wait_for()
    finally:
        for one in streams:
            one.close()
    page.locator("[data-node=count]").wait_for()
