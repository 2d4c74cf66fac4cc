"""Sends traces to an OpenTelemetry collector: OTLP/JSON over HTTP, version 1 of the protocol.

https://opentelemetry.io/docs/specs/otlp/#otlphttp. A span takes microseconds in this command, and no time in a task.
A collector's API key comes from OpenTelemetry's environment variables, so it never appears on a command line.
"""

from __future__ import annotations

import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.views.traces import Trace, TraceSpan

TIMEOUT_S = 10.0
#: Maximum number of traces in one request.
CHUNK = 100
_PATH = "/v1/traces"
#: The first variable that is set is used: comma-separated `name=value` with percent-encoded values.
_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
#: SPAN_KIND_INTERNAL, SPAN_KIND_CONSUMER, and STATUS_CODE_ERROR.
_INTERNAL, _CONSUMER, _ERROR = 1, 5, 2
#: The name of a header (RFC 9110).
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def address(url: str) -> str:
    """Return the URL to which traces are sent; raises RequestError for an invalid address."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise RequestError(f"--otlp {url} is not an address; use an address such as http://127.0.0.1:4318")
    return url if parts.path.rstrip("/") else url.rstrip("/") + _PATH


def headers(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the headers for each request, from the environment; raises RequestError for a malformed header."""
    name = next((name for name in _HEADERS if environment.get(name)), "")
    found = {}
    for pair in filter(str.strip, environment.get(name, "").split(",")):
        key, equals, value = (urllib.parse.unquote(part).strip() for part in pair.partition("="))
        if not equals or not _TOKEN.fullmatch(key) or not value.isprintable() or not value.isascii():
            # The value is a secret and may be the malformed part, so it is not shown.
            raise RequestError(f"{name} has a part that is not a header; write name=value, separated by commas")
        found[key] = value
    return found


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the headers are meant for the original address only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def send(where: str, topology: str, traces: list[Trace], extra: Mapping[str, str] = MappingProxyType({})) -> int:
    """Send traces to an `address` with `extra` headers; returns the number of spans.

    Raises ClusterError when the collector does not accept them.
    """
    count = 0
    for low in range(0, len(traces), CHUNK):
        spans = [span for trace in traces[low : low + CHUNK] for span in spans_of(trace)]
        count += len(spans)
        _post(where, request_of(topology, spans), extra)
    return count


def _post(url: str, body: dict[str, Any], extra: Mapping[str, str]) -> None:
    told = {**extra, "Content-Type": "application/json"}
    request = urllib.request.Request(url, msgspec.json.encode(body), told, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        raise ClusterError(f"the collector at {url} refused the traces: {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ClusterError(f"the collector at {url} did not accept the traces: {reason}") from None


def request_of(topology: str, spans: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the traces as an ExportTraceServiceRequest."""
    resource = {"attributes": [_text("service.name", topology)]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "heronpy"}, "spans": spans}]}]}


def spans_of(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield a span for each call, which includes the hops to the call, and a child span for each of these hops."""
    for one in trace.spans:
        yield from _spans(trace, one)


def _spans(trace: Trace, one: TraceSpan) -> Iterator[dict[str, Any]]:
    at, way = trace.at + one.start_s, [part for part in one.parts if part.hop != "process"]
    whole = sum(part.took_s for part in one.parts)
    base = {"traceId": trace.id.rjust(32, "0")}
    span = {
        **base,
        "spanId": one.number,
        "name": f"{one.component}.{'next_tuple' if one.parent is None else 'process'}",
        "kind": _INTERNAL if one.parent is None else _CONSUMER,
        "startTimeUnixNano": _ns(at),
        "endTimeUnixNano": _ns(at + whole),
        "attributes": list(_attributes(one)),
    }
    if one.end in ("acked", "failed"):
        span["name"] = f"{one.component}.{one.end}"
    if one.end == "failed":
        span["status"] = {"code": _ERROR}
    if one.parent is not None:
        span["parentSpanId"] = one.parent
    yield span
    for number, part in enumerate(way if one.parent is not None and one.end not in ("acked", "failed") else ()):
        yield {
            **base,
            # Numbers of calls are random, so the numbers of parts do not collide with them.
            "spanId": f"{(int(one.number, 16) + number + 1) % (1 << 64) or 1:016x}",
            "parentSpanId": one.number,
            "name": part.hop,
            "kind": _INTERNAL,
            "startTimeUnixNano": _ns(at),
            "endTimeUnixNano": _ns(at := at + part.took_s),
        }


def _attributes(one: TraceSpan) -> Iterable[dict[str, Any]]:
    yield _text("heron.task", one.instance_id)
    if one.source:
        yield _text("heron.source", one.source)
    yield _text("heron.end", one.end)
    if not one.exact and one.error_s is None:
        yield _text("heron.wire", "unknown between hosts")
    elif not one.exact:
        yield _text("heron.wire", "estimated between hosts")
        yield {"key": "heron.wire.error_s", "value": {"doubleValue": one.error_s}}


def _text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def _ns(wall_s: float) -> str:
    """Return nanoseconds as a string, because a fixed64 is a string in JSON."""
    return str(int(wall_s * 1e9))
