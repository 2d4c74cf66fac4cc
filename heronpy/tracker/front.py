"""Serves the health check and the page files while the tracker is starting.

All other requests wait for the app, because importing its modules takes most of the start. Meanwhile, a browser loads
the pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from heronpy.common.log_format import escape
from heronpy.tracker import peer
from heronpy.tracker.guard import SAFE, Asker, Facts, House, Problem, Scope, decide
from heronpy.tracker.pages import INDEX, Page
from heronpy.views.overview import Problem as ProblemShape

HEALTH = "/health"
#: Maximum number of characters of a problem's sentence.
SENTENCE_MAX = 2000

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Front:
    """ASGI: answers requests that need no scope until the app exists, and then passes all requests to the app."""

    def __init__(self, house: House, pages: Mapping[str, Page], app: asyncio.Future[ASGIApp]) -> None:
        self._house, self._pages, self._app = house, pages, app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._app.done():
            response = self._early(Request(scope, receive))
            if response is not None:
                await send_with_headers(response, scope, receive, send)
                return
        # A client that disconnects must not cancel the start of the app for other clients.
        app = await asyncio.shield(self._app)
        await app(scope, receive, send)

    def _early(self, request: Request) -> Response | None:
        """Return the early answer if the client may get it. Other requests wait for the app, which logs refusals."""
        path = path_of(request)
        found = open_answer(path, request, self._pages)
        if found is None or not isinstance(decide(open_scope(path), facts_of(request), self._house, None), Asker):
            return None
        return found


async def send_with_headers(response: Response, scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Send a response with the headers that every answer has."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    await response(scope, receive, send)


def open_scope(path: str) -> Scope:
    """Return the scope that the guard checks for requests to `open_answer`."""
    return Scope.OPEN if path == HEALTH else Scope.PAGES


def open_answer(path: str, request: Request, pages: Mapping[str, Page]) -> Response | None:
    """Return the answer to a request that needs no scope; None for other requests."""
    if request.method not in SAFE:
        return None
    if path == HEALTH:
        return Response(b'{"status":"ok"}\n', media_type="application/json")
    name = path.removeprefix("/static/") if path.startswith("/static/") else INDEX if path == "/" else None
    return None if name is None else _page(name, request, pages)


def _page(name: str, request: Request, pages: Mapping[str, Page]) -> Response:
    page = pages.get(name)
    if page is None:
        return problem_response(Problem(404, "not-found", f"there is no page {name[:200]!r}", "go to /"))
    headers = {"ETag": page.etag, "Cache-Control": "no-cache"}
    if page.etag in [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(page.content, headers=headers, media_type=page.media)


def path_of(request: Request) -> str:
    """Return the path as it was sent: `request.url` uses the Host header, which any client can set."""
    path: str = request.scope["path"]
    return path


def facts_of(request: Request) -> Facts:
    """Return the facts from which the guard decides. The kernel is queried only if the request has no token."""
    names = [name for name, _ in request.headers.items()]
    headers = dict(request.headers.items())
    client, server = request.scope.get("client"), request.scope.get("server")
    uid = None
    if "authorization" not in headers and client is not None and server is not None and server[1] is not None:
        uid = peer.uid_of((client[0], client[1]), (server[0], server[1]))
    repeated = frozenset(name for name in names if names.count(name) > 1)
    return Facts(request.method, headers, repeated, uid, request.scope["scheme"] == "https")


def _line(text: str) -> str:
    """Return at most `SENTENCE_MAX` characters of the text, on one line."""
    line = escape(text[: SENTENCE_MAX + 1]).replace("\n", " ").replace("\t", " ")
    return line if len(line) <= SENTENCE_MAX else line[: SENTENCE_MAX - 1] + "…"


def problem_response(problem: Problem) -> Response:
    """Return a problem as `application/problem+json`.

    A problem's sentences may quote text from elsewhere, such as the error of user code in a savepoint.
    Therefore each sentence becomes one line of bounded length without control characters.
    """
    shape = ProblemShape(
        status=problem.status, type=problem.type, title=_line(str(problem)), detail=_line(problem.detail),
        nearest=problem.nearest,
    )  # fmt: skip
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else {}
    return Response(msgspec.json.encode(shape), problem.status, headers=headers, media_type="application/problem+json")
