"""HTTP: every request passes the guard first, and every answer has the same headers."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import compile_path
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from heronpy.clusters.errors import NotThereError, RequestError
from heronpy.clusters.masters import NoMasterError
from heronpy.common.errors import (
    ConfigError,
    DeadlineError,
    HeronError,
    InvalidRpcError,
    RetryableError,
    RpcError,
    TopologyError,
)
from heronpy.common.units import counted
from heronpy.tracker import acting, heron, jobs, reading, reading_files, taking
from heronpy.tracker.calls import Call, Route, Text
from heronpy.tracker.ended import EndedError
from heronpy.tracker.front import facts_of, open_answer, open_scope, path_of, problem_response, send_with_headers
from heronpy.tracker.guard import SAFE, Asker, Problem, Refusal, Scope, bearer, decide
from heronpy.tracker.openapi import document
from heronpy.tracker.pages import Page, load
from heronpy.tracker.tracker import Tracker
from heronpy.views.quotes import without_values

log = logging.getLogger("heronpy.tracker")

BODY_MAX_BYTES = 64 * 1024
QUERY_MAX_BYTES = 16 * 1024
FIELDS_MAX = 1000
DOCUMENT = reading.V1 + "/openapi.json"

#: Map from error class to status; the first class that fits is used.
_STATUS: tuple[tuple[type[HeronError], int, str], ...] = (
    (NotThereError, 404, "not-found"),
    (RequestError, 400, "bad-request"),
    (TopologyError, 400, "bad-request"),
    (InvalidRpcError, 400, "bad-request"),
    (EndedError, 410, "ended"),
    (NoMasterError, 503, "no-answer"),
    (DeadlineError, 503, "no-answer"),
    (RetryableError, 503, "no-answer"),
    (RpcError, 409, "refused"),
    (ConfigError, 500, "config"),
)


def routes() -> list[Route]:
    """Return all routes. Raises TypeError if two routes have the same method and path."""
    found = [route for module in (reading, reading_files, acting, taking, jobs, heron) for route in module.table.routes]
    places = [(route.method, route.path) for route in found]
    if len(set(places)) != len(places):
        raise TypeError("two routes have the same method and path")
    return found


class App:
    """The ASGI application of one tracker."""

    def __init__(self, tracker: Tracker, pages: Mapping[str, Page] | None = None) -> None:
        self._tracker = tracker
        self._pages = pages if pages is not None else load()
        self.routes: Sequence[Route] = routes()
        self._compiled = [(compile_path(route.path)[0], route) for route in self.routes]
        self._document = b""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no WebSockets: the server closes the connection
        request = Request(scope, receive)
        self._tracker.asked_at = time.monotonic()
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return
        await send_with_headers(response, scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        try:
            path = path_of(request)
            open_ = open_answer(path, request, self._pages)
            if open_ is not None:
                self._let_in(request, open_scope(path))
                return open_
            if path == DOCUMENT and request.method in SAFE:
                self._let_in(request, Scope.VIEW)
                return self._openapi()
            found = self._find(request.method, path)
            asker = self._let_in(request, found[0].scope if found is not None else Scope.VIEW)
            if found is None:
                return self._unknown(request)
            return await self._answer(*found, request, asker)
        except Problem as problem:
            return problem_response(problem)
        except HeronError as error:
            return problem_response(problem_of(error))
        except ClientDisconnect:
            raise
        except Exception as error:
            log.exception("%s %s failed", request.method, path_of(request))
            text = f"internal error of the tracker: {type(error).__name__}"
            return problem_response(Problem(500, "bug", text, "see its log"))

    def _let_in(self, request: Request, scope: Scope) -> Asker:
        facts = facts_of(request)
        secret = bearer(facts.headers)
        holder = self._tracker.tokens.holder(secret) if secret is not None else None
        decided = decide(scope, facts, self._tracker.house, holder)
        if isinstance(decided, Refusal):
            self._tracker.refused += 1
            if str(self._tracker.refused).rstrip("0") == "1":  # 1, 10, 100, ...
                log.warning("%s refused so far; the last: %s", counted(self._tracker.refused, "request"), decided.title)
            raise Problem(decided.status, decided.type, decided.title, decided.detail)
        return decided

    def _find(self, method: str, path: str) -> tuple[Route, dict[str, str]] | None:
        """Return the route of a request, and the values of the variable parts of its path."""
        wanted = "GET" if method == "HEAD" else method
        for pattern, route in self._compiled:
            match = pattern.match(path) if route.method == wanted else None
            if match is not None:
                return route, match.groupdict()
        return None

    def _unknown(self, request: Request) -> Response:
        methods = sorted({route.method for pattern, route in self._compiled if pattern.match(path_of(request))})
        if methods:
            text = f"{request.method} is not a method of {path_of(request)}"
            return problem_response(Problem(405, "bad-method", text, f"use {' or '.join(methods)}"))
        text = f"there is no page or route {path_of(request)[:200]!r}"
        return problem_response(Problem(404, "not-found", text, f"{DOCUMENT} lists all paths"))

    async def _answer(self, route: Route, path: dict[str, str], request: Request, asker: Asker) -> Response:
        """Check the request, look up the topology, and call the route's function."""
        query = request.scope["query_string"].decode("latin-1")
        if len(query) > QUERY_MAX_BYTES:
            raise Problem(414, "too-large", f"the query has more than {QUERY_MAX_BYTES} bytes", "shorten the query")
        if query.count("&") >= FIELDS_MAX:
            raise Problem(400, "bad-request", f"the query has more than {FIELDS_MAX} parameters", "use fewer")
        parsed = route.parsed(parse_qsl(query, keep_blank_values=True))
        call = Call(self._tracker, asker, path, parsed, request.headers)
        if route.takes is not None:
            call.body = _decoded(await _body(request), route.takes)
        if route.is_of_topology:
            place = path["cluster"], path["role"], path["environ"], path["name"]
            call.topology = await self._tracker.topology(*place)
            call.cluster = self._tracker.clusters[path["cluster"]]
        if call.topology is not None and call.topology.ended_at is not None:
            reading.check_ended(call, route)
        found = await route.answer(call)
        if isinstance(found, AsyncIterator):
            return StreamingResponse(found, media_type=route.media)
        if isinstance(found, Text):
            return Response(found.content, media_type=found.media)
        if not asker.may_all:
            found = without_values(found)
        return Response(msgspec.json.encode(found), media_type=route.media)

    def _openapi(self) -> Response:
        """Return the OpenAPI document. It is built at the first request, because building it takes a long time."""
        if not self._document:
            own = [one for one in self.routes if one.path.startswith(reading.V1)]
            self._document = msgspec.json.encode(document(own))
        return Response(self._document, media_type="application/json")


def problem_of(error: HeronError) -> Problem:
    """Return the Problem for an error that another package has raised."""
    status, word = next(((status, word) for kind, status, word in _STATUS if isinstance(error, kind)), (409, "failed"))
    return Problem(status, word, str(error) or type(error).__name__)


async def _body(request: Request) -> bytes:
    """Read the body, up to the allowed number of bytes."""
    too_large = Problem(413, "too-large", f"the body has more than {BODY_MAX_BYTES} bytes", "send less")
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > BODY_MAX_BYTES:
        raise too_large
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > BODY_MAX_BYTES:
            raise too_large
    return data


def _decoded(data: bytes, kind: type[msgspec.Struct]) -> msgspec.Struct:
    try:
        found: msgspec.Struct = msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, "bad-request", f"the body is invalid: {error}", "see /api/v1/openapi.json") from None
    return found
