"""Watches a topology's pods, and immediately reports changes, including how vanished pods ended."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from heronpy.engines.contract import EngineError
from heronpy.engines.kubernetes.api_server import ExpiredError, refusal
from heronpy.engines.kubernetes.client import Api, shut
from heronpy.engines.kubernetes.seen import of, text

#: The server ends an answer after this time; the next request continues there.
WATCH_S = 30
AGAIN_S = 1.0


class Following:
    """Watches pods in one thread. `since` returns the number of completed lists and the version of the last. `on_event`
    receives the kind of an event and the pod.
    """

    def __init__(
        self,
        api: Api,
        path: Callable[[], str],
        selector: str,
        since: Callable[[], tuple[int, str]],
        on_event: Callable[[str, Mapping[str, Any]], None],
        changed: Callable[[], None],
        poll_s: float,
    ) -> None:
        self._api = api
        self._path = path
        self._selector = selector
        self._since = since
        self._on_event = on_event
        self._changed = changed
        self._poll_s = poll_s
        self._over = threading.Event()
        self._opened: list[Any] = []
        self._thread = threading.Thread(target=self._run, name="kubernetes-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the thread. If the thread is waiting for an unresponsive server, it ends later."""
        self._over.set()
        shut(self._opened)
        self._thread.join(1.0)

    def _run(self) -> None:
        version, lists = "", 0
        while not self._over.is_set():
            if self._since()[0] != lists:
                lists, version = self._since()
            if not version:
                self._changed()
                self._over.wait(self._poll_s)
                continue
            try:
                version = self._follow(version)
            except ExpiredError:
                # Only a new list shows the current pods.
                version = ""
                self._changed()
            except EngineError:
                self._changed()
                self._over.wait(AGAIN_S)

    def _follow(self, version: str) -> str:
        """Read one answer to the watch request; returns the version from which to continue."""
        query: dict[str, str | int] = {
            "labelSelector": self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": WATCH_S,
        }
        self._opened.clear()
        for line in self._api.lines(self._path(), query, WATCH_S + 10.0, self._opened):
            if self._over.is_set():
                break
            try:
                event = json.loads(line)
            except ValueError:
                continue
            kind, pod = text(of(event), "type"), of(event, "object")
            if kind == "ERROR":
                code = pod.get("code")
                raise refusal("watch", "pods", code if isinstance(code, int) else 500, line)
            version = text(of(pod, "metadata"), "resourceVersion") or version
            if kind in ("ADDED", "MODIFIED", "DELETED"):
                self._on_event(kind, pod)
                self._changed()
        return version
