"""Sends requests to the address that `heron ui` prints, because only browsers resolve names below .localhost."""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import Request


def request_to(url: str) -> Request:
    """Return a request to this machine that names the tracker in the Host header."""
    place = urlsplit(url)
    where = f"http://127.0.0.1:{place.port}{place.path}" + (f"?{place.query}" if place.query else "")
    return Request(where, headers={"Host": place.netloc})
