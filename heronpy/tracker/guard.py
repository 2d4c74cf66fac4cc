"""Access control: accepts or refuses every request before it is processed. Pure.

Default deny: a route has a scope or is open, and nothing else is served. The uid of the client's socket on loopback, or
a token, identifies the client. There are no cookies that another web site could use. Requests with a foreign host name
(DNS rebinding) or from another site are refused for every route, and a change needs a header that a form cannot send.

A tracker without TLS has a random name that changes at each start, and answers browsers only under this name. While the
tracker is not running, another user who takes its port can leave scripts in a browser. The scripts stay in the browser,
but only under names that no tracker uses again.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Scope(Enum):
    """The right that a route needs."""

    #: Open to every client that can connect.
    OPEN = "open"
    #: The files of the pages, which hold no data, for any browser.
    PAGES = "pages"
    #: Figures: nothing that may quote a value, and no change.
    VIEW = "view"
    #: Logs, values of tuples, settings, and every change.
    ALL = "all"


class Problem(Exception):
    """An error that ends a request with a sentence and the fix."""

    def __init__(self, status: int, type: str, title: str, detail: str = "", nearest: str | None = None) -> None:
        super().__init__(title)
        self.status, self.type, self.title, self.detail, self.nearest = status, type, title, detail, nearest


#: Maximum number of connections: in total, of all users except the tracker's own, and of one user or address.
CONNECTIONS_MAX, CONNECTIONS_OF_OTHERS, CONNECTIONS_OF_ONE = 256, 192, 128
#: Live streams of one asker.
STREAMS_MAX = 32
#: Methods that change nothing.
SAFE = frozenset({"GET", "HEAD"})
_HERE = frozenset({"same-origin", "none"})
#: The form of a Host header, with its name.
_HOST = re.compile(r"([a-z0-9.-]+)(?::[0-9]{1,5})?")
#: Domain whose names every browser resolves to this machine.
_LOCAL = ".localhost"
_NEW_ADDRESS = "run heron ui, and open the address that it prints"


@dataclass(frozen=True, slots=True)
class Asker:
    """The client of a request, and the client's rights."""

    who: str
    scope: Scope

    @property
    def may_all(self) -> bool:
        """Whether the client may make changes, and see texts that quote users' values."""
        return self.scope is Scope.ALL


#: The client of an open route.
NOBODY = Asker("nobody", Scope.OPEN)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of a request: HTTP status, kind for programs, sentence and fix."""

    status: int
    type: str
    title: str
    detail: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a request on which the guard bases its decision; header names are in lower case."""

    method: str
    headers: Mapping[str, str]
    #: Headers that were sent more than once.
    repeated: frozenset[str] = frozenset()
    #: uid of the client's socket, if both ends are on loopback and the kernel reports the uid; else None.
    uid: int | None = None
    tls: bool = False


@dataclass(frozen=True, slots=True)
class House:
    """The facts about the tracker on which the guard bases its decisions."""

    #: uid of the tracker.
    uid: int
    #: Accepted values of the Host header, in lower case.
    hosts: frozenset[str]
    #: `http` or `https`, as browsers see it.
    scheme: str
    #: Whether a proxy forwards the requests of other clients, so that the uid of the socket proves nothing.
    behind_proxy: bool = False
    #: The random name for browsers, at any port; empty if TLS prevents other processes from answering at `hosts`.
    name: str = ""

    def is_for_browsers(self, host: str) -> bool:
        """Whether the tracker answers browsers under this value of the Host header."""
        if not self.name:
            return host in self.hosts
        found = _HOST.fullmatch(host)
        return found is not None and hmac.compare_digest(found[1], self.name)


def decide(scope: Scope, facts: Facts, house: House, holder: Asker | None) -> Asker | Refusal:
    """Return the client, or the refusal of the request. `holder` is the owner of the valid token in the request."""
    foreign = _foreign(facts, house)
    if foreign is not None:
        return foreign
    if facts.method not in SAFE and (unsafe := _unproven(facts)) is not None:
        return unsafe
    at_page = house.is_for_browsers(_host(facts))
    if scope is Scope.OPEN or (scope is Scope.PAGES and at_page):
        return NOBODY
    asker = holder if "authorization" in facts.headers or not at_page else _by_uid(facts, house)
    if asker is None:
        return _unknown(facts, house)
    if scope is Scope.ALL and not asker.may_all:
        return Refusal(
            403, "forbidden", f"{asker.who} does not allow this request",
            "use the token that allows everything; the tracker's user creates it: heron ui token all",
        )  # fmt: skip
    return asker


def _foreign(facts: Facts, house: House) -> Refusal | None:
    host = _host(facts)
    at_page = house.is_for_browsers(host)
    if house.name and host.partition(":")[0].endswith(_LOCAL) and not at_page:
        return Refusal(421, "restarted", "the tracker was restarted and has a new address", _NEW_ADDRESS)
    if "host" in facts.repeated or not (at_page or host in house.hosts):
        names = ", ".join(sorted(house.hosts)[:4])
        return Refusal(
            421, "foreign-host", f"this tracker does not answer to the name {host[:200]!r}",
            f"use one of {names}; for a proxy, start the tracker with --behind-proxy NAME",
        )  # fmt: skip
    if not at_page and any(name == "origin" or name.startswith("sec-fetch-") for name in facts.headers):
        return Refusal(421, "foreign-host", f"browsers get no answer at {host}", _NEW_ADDRESS)
    origin = facts.headers.get("origin")
    if origin is not None and origin.lower() != f"{house.scheme}://{host}":
        return _cross_site("a page on another site sent the request")
    site = facts.headers.get("sec-fetch-site")
    if site is not None and site.lower() not in _HERE:
        return _cross_site("a link on another site leads here")
    return None


def _host(facts: Facts) -> str:
    return facts.headers.get("host", "").lower()


def _cross_site(why: str) -> Refusal:
    return Refusal(403, "cross-site", f"refused because {why}", "open the tracker's address in a new tab")


def _unproven(facts: Facts) -> Refusal | None:
    """Refuse a change without a header that only code can set; a form or link on another site cannot set it."""
    if facts.headers.get("x-heron") != "1":
        return Refusal(403, "no-header", "a change needs the header X-Heron: 1", "send it with the request")
    if facts.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return Refusal(415, "no-json", "the body of a change is JSON", "send Content-Type: application/json")
    return None


def is_forwarded(names: Iterable[str]) -> bool:
    """Whether a proxy forwards the request for another client."""
    return any(name in ("forwarded", "via") or name.startswith("x-forwarded-") for name in names)


def _by_uid(facts: Facts, house: House) -> Asker | None:
    if house.behind_proxy or facts.uid is None or facts.uid != house.uid or is_forwarded(facts.headers):
        return None
    return Asker(f"uid {facts.uid}", Scope.ALL)


def _unknown(facts: Facts, house: House) -> Refusal:
    fix = "send Authorization: Bearer TOKEN; the tracker's user creates one: heron ui token view"
    if "authorization" in facts.headers:
        return Refusal(401, "bad-token", "this token is not valid, or no longer valid", fix)
    if house.behind_proxy or is_forwarded(facts.headers):
        return Refusal(401, "no-token", "a request through a proxy needs a token", fix)
    if not house.is_for_browsers(_host(facts)):
        return Refusal(401, "no-token", f"a program needs a token at {_host(facts)}", fix)
    who = f"uid {facts.uid}" if facts.uid is not None else "an unknown user"
    return Refusal(401, "no-token", f"{who} needs a token here", fix)


def has_room(peer: str, owner: str, connected: Sequence[str]) -> bool:
    """Whether the tracker accepts another connection from a user or address, in addition to these.

    Connections of other users always leave some connections to the owner. `owner` is empty if users cannot be
    identified: with TLS, and behind a proxy.
    """
    if peer == owner or len(connected) >= CONNECTIONS_MAX:
        return len(connected) < CONNECTIONS_MAX
    others = sum(one != owner for one in connected)
    return connected.count(peer) < CONNECTIONS_OF_ONE and (not owner or others < CONNECTIONS_OF_OTHERS)


def bearer(headers: Mapping[str, str]) -> str | None:
    """Return the token in an Authorization header; None without a token."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None
