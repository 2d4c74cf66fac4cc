"""Asks a tracker at the address that `heron ui` prints: only browsers know where a name below .localhost is."""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import Request


def request_to(url: str) -> Request:
    """The request that goes to this machine, and names the tracker in its Host header."""
    place = urlsplit(url)
    where = f"http://127.0.0.1:{place.port}{place.path}" + (f"?{place.query}" if place.query else "")
    return Request(where, headers={"Host": place.netloc})
