"""Helpers that several engines share: polling, this host's address, and the last part of a file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from heronpy.common.errors import ConfigError
from heronpy.engines.contract import EngineAwayError
from heronpy.net.addresses import address_here

_TAIL_BYTES: Final = 4096


@contextmanager
def polling(poll_s: float, changed: Callable[[], None], wake: threading.Event | None = None) -> Iterator[None]:
    """Call `changed` every `poll_s` from another thread, and when `wake` is set."""
    over, wake = threading.Event(), wake or threading.Event()

    def poll() -> None:
        while True:
            wake.wait(poll_s)
            wake.clear()
            if over.is_set():
                return
            changed()

    thread = threading.Thread(target=poll, name="engine-poll", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        wake.set()
        thread.join()


def address_towards(peer: str, network: str = "") -> str:
    """This host's address on the route to a peer (host:port). Raises EngineAwayError if there is no route."""
    try:
        return address_here(network, peer)
    except ConfigError as error:
        raise EngineAwayError(str(error)) from None


def end_of(file: str | os.PathLike[str]) -> str:
    """The last 4 kB of a file as text; "" if it cannot be read."""
    try:
        with open(file, "rb") as opened:
            opened.seek(max(0, os.fstat(opened.fileno()).st_size - _TAIL_BYTES))
            return opened.read().decode(errors="replace")
    except OSError:
        return ""
