"""What is told to an OpenTelemetry collector with the traces, and to nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from heronpy.cli.look.otlp import headers, send
from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.views.traces import Trace

TRACES = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
ALL = "OTEL_EXPORTER_OTLP_HEADERS"
ONE = Trace(id="7", at=1.0, took_s=0.1, spans=[])


@contextmanager
def server(moved_to: str = "") -> Iterator[tuple[str, list[Message]]]:
    """A collector, or an address that sends one to another; with the headers of all requests."""
    seen: list[Message] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(307 if moved_to else 200)
            if moved_to:
                self.send_header("Location", moved_to)
            self.end_headers()

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on stderr."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/v1/traces", seen
        finally:
            http.shutdown()
            thread.join()


def test_headers_come_from_the_environment_and_go_with_each_request() -> None:
    extra = headers({TRACES: "authorization=Bearer%20a%3Db, x-team = core ,", ALL: "x-team=other"})
    assert extra == {"authorization": "Bearer a=b", "x-team": "core"}
    with server() as (url, seen):
        assert send(url, "wc", [ONE], extra) == 0
    assert seen[0]["Authorization"] == "Bearer a=b" and seen[0]["Content-Type"] == "application/json"
    assert headers({}) == headers({TRACES: "", ALL: ""}) == {}


@pytest.mark.parametrize("text", ["token", "a b=c", "=c", "x=a%0d%0ay: z", "x=ä", "x=secret%00"])
def test_what_is_no_header_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(RequestError, match=f"^{ALL} has a part that is not a header") as error:
        headers({ALL: text})
    assert "secret" not in str(error.value) and "token" not in str(error.value)


def test_another_address_does_not_get_the_headers() -> None:
    with (
        server() as (other, strangers),
        server(other) as (url, _),
        pytest.raises(ClusterError, match="refused the traces: 307"),
    ):
        send(url, "wc", [ONE], {"x-key": "k"})
    assert strangers == []
