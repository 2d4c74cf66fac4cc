"""Runs an S3 server for tests (moto) in a process that can be killed, with faults on request.

`python -m tests.support.object_server` prints its port. A PUT to `/-/faults` sets the faults of later requests.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from heronpy.procs.linux import die_with_parent

REGION = "us-east-1"
_START_S = 60.0


@dataclass
class Faults:
    """The faults of later requests; each fault decrements its count."""

    busy: int = 0
    """Number of requests that are answered with 503."""
    lose: int = 0
    """Number of writes that are performed but whose answer is lost."""
    refuse: str = ""
    """Error code of the status 403 for every write, or with `refuse_all` for every request; "" to allow them."""
    refuse_all: bool = False
    ignore_conditions: bool = False
    """Whether the server ignores If-None-Match, as old servers do."""


class ObjectServer:
    """The server; each user creates a bucket."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        argv = [sys.executable, "-m", "tests.support.object_server", str(os.getpid()), str(self.port)]
        self._process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=Path(__file__).parents[2]
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """Kill the server; all objects are lost."""
        assert self._process is not None and self._process.stdout is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a process needs to use the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "testkey",
            "AWS_SECRET_ACCESS_KEY": "very-secret-word",
        }

    def set(self, **faults: Any) -> None:
        """Replace all faults by these."""
        self._put("/-/faults", json.dumps(asdict(Faults(**faults))).encode())

    def make_bucket(self, name: str) -> str:
        """Create a bucket; return its URL."""
        self._put(f"/{name}", b"")
        return f"s3://{name}"

    def requests(self) -> dict[str, int]:
        """Return the number of requests so far by method."""
        with urllib.request.urlopen(f"{self.endpoint}/-/faults", timeout=_START_S) as answer:
            return dict(json.loads(answer.read()))

    def _put(self, path: str, data: bytes) -> None:
        request = urllib.request.Request(f"{self.endpoint}{path}", data=data, method="PUT")
        with urllib.request.urlopen(request, timeout=_START_S):
            pass


def why_not() -> str:
    """Return why the server cannot run on this machine; "" if it can."""
    missing = [name for name in ("moto", "flask", "obstore") if find_spec(name) is None]
    return f"{missing[0]} is not installed; run pip install 'heronpy[dev]'" if missing else ""


class _Faulty:
    """WSGI application that injects the faults and passes other requests to the server."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock, self._condition = threading.Lock(), threading.Lock()
        self._faults = Faults()
        self._seen: dict[str, int] = {}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path == "/-/faults":
            return self._control(environ, start_response)
        with self._lock:
            self._seen[method] = self._seen.get(method, 0) + 1
        writes = method in ("PUT", "POST", "DELETE")
        if self._takes("busy"):
            return _answer(start_response, "503 Slow Down", "SlowDown")
        if self._faults.refuse and (writes or self._faults.refuse_all):
            return _answer(start_response, "403 Forbidden", self._faults.refuse)
        if self._faults.ignore_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        loses = method == "PUT" and self._takes("lose")
        # A real store checks a condition and writes atomically; moto does not.
        with self._condition if "HTTP_IF_NONE_MATCH" in environ or "HTTP_IF_MATCH" in environ else nullcontext():
            answer = self._app(environ, start_response)
        if loses:
            list(answer)
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return []
        return answer  # type: ignore[no-any-return]

    def _takes(self, fault: str) -> bool:
        with self._lock:
            left: int = getattr(self._faults, fault)
            if left:
                setattr(self._faults, fault, left - 1)
        return left > 0

    def _control(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT":
            given = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            with self._lock:
                self._faults = Faults(**{field.name: given[field.name] for field in fields(Faults)})
        start_response("200 OK", [("Content-Type", "application/json")])
        with self._lock:
            return [json.dumps(self._seen).encode()]


def _answer(start_response: Callable[..., Any], status: str, code: str) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "application/xml")])
    return [f"<Error><Code>{code}</Code><Message>as the test wishes</Message></Error>".encode()]


def main() -> None:
    if not die_with_parent(signal.SIGKILL, int(sys.argv[1])):
        return
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        # Keep connections alive, like a real server.
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: Any) -> None:
            pass

    app = _Faulty(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", int(sys.argv[2]), app, threaded=True, request_handler=Quiet)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
