"""Another user of the machine takes the port of a tracker that does not run, and a real browser comes by.

What he leaves in the browser, a service worker and a script that it may keep for ever, is still there when the tracker
runs again at this port, and is served before anything is asked of the tracker.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import psutil
import pytest

from heronpy.tracker import place
from heronpy.tracker.folder import folder_of
from tests.security.other_user import NOBODY, needs_root
from tests.support.command import Heron
from tests.support.tracker_address import request_to
from tests.ui.conftest import PATIENCE_MS, chromium, lasting_page

pytestmark = [pytest.mark.slow, needs_root, pytest.mark.timeout(300)]

#: Serves on both loopback addresses; each visit leaves what it can.
SQUATTER = """
socks = [socket.create_server(("127.0.0.1", int(sys.argv[1])))]
try:
    socks.append(socket.create_server(("::1", int(sys.argv[1])), family=socket.AF_INET6))
except OSError:
    pass
WORKER = '''
addEventListener("install", (event) => event.waitUntil(skipWaiting()));
addEventListener("activate", (event) => event.waitUntil(clients.claim()));
addEventListener("fetch", (event) => {
  const path = new URL(event.request.url).pathname;
  if (path === "/") event.respondWith(new Response(PAGE, { headers: { "Content-Type": "text/html" } }));
  else if (path.endsWith(".js")) event.respondWith(new Response(SCRIPT, { headers: { "Content-Type": "text/javascript" } }));
});
'''
SCRIPT = "window.pwned = fetch('/api/v1/me', { cache: 'no-store' }).then((answer) => answer.status, () => 0);"
PAGE = ("<title>taken</title><script src='/static/js/main.js'></script><script>"
        "navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready)"
        ".then(() => { document.title = 'left' });</script>")
WORKER = f"const PAGE = {PAGE!r};const SCRIPT = {SCRIPT!r};" + WORKER
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body, kind = (WORKER, "text/javascript") if self.path == "/worker.js" else (
            (SCRIPT, "text/javascript") if self.path.endswith(".js") else (PAGE, "text/html"))
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "public, max-age=31536000, immutable")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())
    def log_message(self, *words): pass
def serve(sock):
    while True:
        link, address = sock.accept()
        threading.Thread(target=Answer, args=(link, address, None), daemon=True).start()
for sock in socks[1:]:
    threading.Thread(target=serve, args=(sock,), daemon=True).start()
print("ready", flush=True)
serve(socks[0])
"""


@contextlib.contextmanager
def squatted(port: int) -> Iterator[None]:
    """Nobody has this port."""
    # It reads its modules while it may.
    drop = "import email.feedparser, encodings.idna, http.server, os, socket, sys, threading\n"
    drop += f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    squatter = subprocess.Popen(
        [sys.executable, "-I", "-c", drop + SQUATTER, str(port)], stdout=subprocess.PIPE, text=True, cwd="/", env={}
    )
    try:
        assert squatter.stdout is not None and squatter.stdout.readline() == "ready\n"
        yield
    finally:
        squatter.kill()
        squatter.wait()
        if squatter.stdout is not None:
            squatter.stdout.close()


@pytest.fixture
def heron(tmp_path: Path) -> Iterator[Heron]:
    """A home without a topology, whose tracker had a port that no other test wants; its tracker is stopped."""
    (tmp_path / "home").mkdir(mode=0o700)
    heron = Heron(tmp_path / "home")
    with socket.create_server(("127.0.0.1", 0)) as free:
        folder, address = folder_of(heron.home), f"http://x.localhost:{free.getsockname()[1]}"
    place.remove(folder, place.write(folder, address, "", by_ui=True))
    yield heron
    heron("ui", "stop").ok()


def address_of(heron: Heron) -> str:
    """Where the tracker is, which is started if need be."""
    return heron("ui").ok().out.strip()


@pytest.mark.heavy
def test_what_a_squatter_leaves_in_a_browser_gets_nothing(heron: Heron) -> None:
    before = address_of(heron)
    port = urlsplit(before).port
    assert port is not None
    heron("ui", "stop").ok()
    prepared = [f"http://127.0.0.1:{port}/", f"http://localhost:{port}/", f"{before}/"]
    with chromium() as browser:
        context = browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        page: Any = lasting_page(context)
        with squatted(port):
            for origin in prepared:
                page.goto(origin)
                page.wait_for_function("document.title === 'left'")
        address = address_of(heron)
        assert urlsplit(address).port == port, "it has its last port again"

        page.goto(f"{address}/")
        page.get_by_role("link", name="heron").wait_for()
        assert page.evaluate("window.pwned") is None
        assert page.evaluate("navigator.serviceWorker.getRegistrations().then((all) => all.length)") == 0
        assert page.evaluate("fetch('/api/v1/me').then((answer) => answer.status)") == 200, "it is the user's own"
        assert not context.cookies() and page.evaluate("document.referrer") == ""

        for origin in prepared:
            page.goto(origin)
            assert page.title() in ("taken", "left"), "the attack is there"
            page.wait_for_function("window.pwned !== undefined")
            assert page.evaluate("window.pwned") == 421, origin
            # Nor does it get at the address that it does not know, if it should learn it.
            asked = f"fetch('{address}/api/v1/me').then((answer) => answer.status, () => 0)"
            assert page.evaluate(asked) == 0, origin
        context.close()
    name = (urlsplit(address).hostname or "").partition(".")[0]
    assert len(name) == 32
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            assert not any(name in word for word in process.cmdline()), process
    log = (heron.home / "tracker" / "tracker.log").read_text()
    assert "refused so far" in log


@pytest.mark.heavy
def test_an_open_page_says_that_the_tracker_was_started_again(heron: Heron) -> None:
    with chromium() as browser:
        page: Any = lasting_page(browser)
        page.set_default_timeout(PATIENCE_MS)
        before = address_of(heron)
        page.goto(before)
        page.get_by_text("heron submit starts a topology").wait_for()
        heron("ui", "stop").ok()
        page.get_by_text("the tracker does not answer").first.wait_for()
        now = address_of(heron)
        assert now != before
        page.get_by_text("the tracker was restarted and has a new address").first.wait_for()
        page.get_by_text("run heron ui, and open the address that it prints").first.wait_for()
        assert urlsplit(now).netloc not in page.content(), "an old page does not learn the new name"


def test_at_the_bare_address_programs_need_a_token_and_browsers_get_nothing(heron: Heron) -> None:
    address = address_of(heron)
    port = urlsplit(address).port or 0
    token = {"Authorization": f"Bearer {heron('ui', 'token', 'view').ok().out.strip()}"}

    def status(**headers: str) -> int:
        link = HTTPConnection("127.0.0.1", port, timeout=60)
        link.request(
            "GET", "/api/v1/topologies", headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        with contextlib.closing(link):
            return link.getresponse().status

    assert status() == 401 and status(**token) == 200
    for browser in ({"Origin": f"http://127.0.0.1:{port}"}, {"Sec_Fetch_Site": "none"}, {"Sec_Fetch_Mode": "cors"}):
        assert status(**token, **browser) == 421, browser
    with urlopen(request_to(f"{address}/api/v1/me"), timeout=60) as answer:
        assert json.load(answer)["scope"] == "all", "the user's own program that knows the name"
    [target] = heron("metrics", "targets", "--tracker").json()
    assert target == {"targets": [f"127.0.0.1:{port}"], "labels": {"__scheme__": "http"}}
