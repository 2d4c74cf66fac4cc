"""A simple client of an API server, for tests that act as the operator of a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import urllib3

from heronpy.engines.contract import EngineAwayError, EngineError
from heronpy.engines.kubernetes.api_server import GoneError, refusal


class Rest:
    """A client with a connection. Close it, because open connections fail the test."""

    def __init__(self, url: str, ca: Path, token: str) -> None:
        self._url = url
        self._token = token
        self._pool = urllib3.PoolManager(ca_certs=str(ca), maxsize=4, retries=False, timeout=20.0)

    def __enter__(self) -> Rest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._pool.clear()

    def call(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        """Send a request; return the answer. Raises the errors of the engine."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content}
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = self._pool.request(method, self._url + path, body=data, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise EngineAwayError(f"{method} {path}: {error}") from None
        if answer.status >= 300:
            raise refusal(method, path, answer.status, answer.data)
        return json.loads(answer.data) if answer.data[:1] == b"{" else answer.data

    def find(self, path: str) -> dict[str, Any] | None:
        """Return an object; None if it does not exist."""
        try:
            found: dict[str, Any] = self.call("GET", path)
        except GoneError:
            return None
        return found

    def is_ready(self) -> bool:
        try:
            self.call("GET", "/readyz")
        except EngineError:
            return False
        return True
