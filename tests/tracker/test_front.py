"""The first moments of a tracker: pages and health at once, all else when the app is there, and nothing to strangers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from heronpy.tracker import peer
from heronpy.tracker.app import App
from heronpy.tracker.front import HEADERS, Front
from heronpy.tracker.pages import load
from tests.tracker.conftest import HOST, Asking


def before_the_app(asking: Asking, do: Callable[[httpx.AsyncClient, asyncio.Future[Any]], Awaitable[None]]) -> None:
    """Run something with a client of a tracker whose app is not there yet."""

    async def run() -> None:
        app: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        tracker = asking.tracker()
        transport = httpx.ASGITransport(Front(tracker.house, load(), app), client=("127.0.0.1", 40000))
        try:
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                await do(client, app)
        finally:
            tracker.close()

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/", "/health", "/static/js/main.js"])
def test_what_is_open_is_there_at_once(path: str, asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "uid_of", lambda client, server: None)

    async def look(client: httpx.AsyncClient, app: asyncio.Future[Any]) -> None:
        answer = await client.get(path)
        assert answer.status_code == 200
        assert all(answer.headers[name] == value for name, value in HEADERS.items() if name != "Cache-Control")
        assert not app.done()

    before_the_app(asking, look)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/api/v1/me", {}, 200),
        ("/api/v1/nothing", {}, 404),
        ("/", {"Host": "evil.example"}, 421),
        ("/static/js/main.js", {"Origin": "http://evil.example"}, 403),
        ("/health", {"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_all_else_waits_for_the_app(path: str, headers: dict[str, str], status: int, asking: Asking) -> None:
    async def look(client: httpx.AsyncClient, app: asyncio.Future[Any]) -> None:
        asked = [asyncio.create_task(client.get(path, headers=headers)) for _ in range(2)]
        assert not (await asyncio.wait(asked, timeout=0.1))[0], "nothing is answered yet"
        asked[0].cancel()  # one who goes away takes the app from nobody
        app.set_result(App(asking.tracker()))
        assert (await asked[1]).status_code == status

    before_the_app(asking, look)
