"""When a feed is renewed, and what a viewer gets meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from heronpy.tracker import feeds
from heronpy.tracker.feeds import Feed
from heronpy.views.live import Snapshot

PATIENCE_S = 30.0


class Source:
    """Makes states that can be told apart, unless it hangs."""

    def __init__(self) -> None:
        self.made = 0
        self.hangs = False

    async def make(self) -> Snapshot:
        if self.hangs:
            await asyncio.Event().wait()
        self.made += 1
        return Snapshot(
            level="list", topology=None, topologies=[], plan=None, load=None, tasks=None, silent_s=float(self.made)
        )


async def first_of(feed: Feed) -> tuple[bytes, AsyncIterator[bytes]]:
    stream = feed.stream("", values=True)
    return await asyncio.wait_for(anext(stream), PATIENCE_S), stream


def test_who_comes_back_soon_sees_the_last_state_at_once() -> None:
    async def run() -> None:
        source = Source()
        feed = Feed(source.make, 3600.0)
        message, stream = await first_of(feed)
        assert b'"silent_s":1.0' in message
        await stream.aclose()  # type: ignore[attr-defined]
        source.hangs = True
        message, stream = await first_of(feed)
        assert b"event: snapshot" in message and b'"silent_s":1.0' in message
        await stream.aclose()  # type: ignore[attr-defined]
        source.hangs = False
        message, stream = await first_of(feed)
        message = await asyncio.wait_for(anext(stream), PATIENCE_S)
        assert b"event: delta" in message and b'"silent_s":2' in message, "the newest follows without a pause"
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_who_comes_later_sees_no_old_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "RECENT_S", 0.0)

    async def run() -> None:
        source = Source()
        feed = Feed(source.make, 3600.0)
        _, stream = await first_of(feed)
        await stream.aclose()  # type: ignore[attr-defined]
        message, stream = await first_of(feed)
        assert b'"silent_s":2.0' in message
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_what_stands_out_does_not_wait_for_the_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "GLANCE_S", 0.01)
    looks = []

    async def glance(shown: Snapshot) -> bool:
        looks.append(shown.silent_s)
        return len(looks) == 3

    async def run() -> None:
        source = Source()
        feed = Feed(source.make, 3600.0, glance=glance)
        _, stream = await first_of(feed)
        message = await asyncio.wait_for(anext(stream), PATIENCE_S)
        assert b'"silent_s":2' in message
        assert looks == [1.0] * 3, "compared with what is shown"
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())
