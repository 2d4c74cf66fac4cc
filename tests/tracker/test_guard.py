"""Every route, asked by everybody who might: nobody, each token, another user, a foreign name, another site."""

from __future__ import annotations

import os
import re

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.health.signals import Signals
from heronpy.proto import control_pb2
from heronpy.tracker import peer, reading
from heronpy.tracker.app import routes
from heronpy.tracker.calls import Route, Table
from heronpy.tracker.front import HEADERS
from heronpy.tracker.guard import (
    CONNECTIONS_MAX,
    CONNECTIONS_OF_ONE,
    CONNECTIONS_OF_OTHERS,
    Asker,
    Facts,
    House,
    Refusal,
    Scope,
    decide,
    has_room,
)
from heronpy.tracker.tokens import Tokens
from heronpy.tracker.tracker import Tracker
from heronpy.views.findings import Finding, Verdict
from tests.cli.conftest import FakeTopology
from tests.tracker.conftest import BARE, HOST, NAME, Asking

ROUTES = routes()
HOUSE = House(1000, frozenset({BARE}), "http", name=NAME)
CHANGE = {"x-heron": "1", "content-type": "application/json"}


def path_of(route: Route) -> str:
    """An address of the route that names things that are not there."""
    return re.sub(r"\{\w+\}", "x", route.path)


def test_there_are_routes_of_every_scope() -> None:
    assert {route.scope for route in ROUTES} == {Scope.VIEW, Scope.ALL}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_refuses_all_but_those_with_its_scope(
    route: Route, asking: Asking, busy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(asking.folder)
    old = tokens.create(Scope.ALL)
    secrets = {scope: tokens.create(scope) for scope in (Scope.VIEW, Scope.ALL)}
    query = "?topology=x/x/x/x" if route.path.endswith("/live") else ""
    posted = route.method == "POST"

    async def everybody(client: httpx.AsyncClient, tracker: Tracker) -> None:
        async def ask(**headers: str) -> int:
            """The status of the answer."""
            given = {**(CHANGE if posted else {}), **headers}
            body = {"json": {}} if posted else {}
            return (await client.request(route.method, path_of(route) + query, headers=given, **body)).status_code

        owner = await ask()
        assert owner < 401 or owner == 404
        for scope, secret in secrets.items():
            allowed = scope in (Scope.ALL, route.scope)
            assert (await ask(Authorization=f"Bearer {secret}") == 403) is not allowed, scope
        assert await ask(Authorization=f"Bearer {old}") == 401
        assert await ask(Authorization=f"Basic {secrets[Scope.ALL]}") == 401
        for uid in (None, os.getuid() + 1):
            monkeypatch.setattr(peer, "uid_of", lambda client, server, uid=uid: uid)
            assert await ask() == 401, f"uid {uid}"
        monkeypatch.setattr(peer, "uid_of", lambda client, server: os.getuid())
        for header in ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "Via"):
            assert await ask(**{header: "for=127.0.0.1"}) == 401, header
        admin = {"Authorization": f"Bearer {secrets[Scope.ALL]}"}
        assert await ask(**admin, Host="evil.example:8889") == 421
        assert await ask(**admin, Origin="http://evil.example") == 403
        for site in ("cross-site", "same-site"):
            assert await ask(**admin, **{"Sec-Fetch-Site": site}) == 403
        if posted:
            assert await ask(**{"x-heron": "0"}) == 403
            assert await ask(**{"content-type": "text/plain"}) == 415

    asking.within(everybody)


@pytest.mark.parametrize("path", ["/", "/health", "/static/index.html"])
def test_open_pages_need_no_token_and_still_refuse_other_sites(
    path: str, asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "uid_of", lambda client, server: None)
    assert asking.ask("GET", path).status_code == 200
    assert asking.ask("GET", path, headers={"Host": "evil.example"}).status_code == 421
    assert asking.ask("GET", path, headers={"Origin": "null"}).status_code == 403
    assert asking.ask("GET", path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert asking.ask("POST", path, headers=CHANGE).status_code in (401, 405)


def test_what_is_not_there_needs_a_token_too(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asking.ask("GET", "/api/v1/nothing").status_code == 404
    assert asking.ask("DELETE", "/api/v1/topologies", headers=CHANGE).status_code == 405
    monkeypatch.setattr(peer, "uid_of", lambda client, server: None)
    assert asking.ask("GET", "/api/v1/nothing").status_code == 401
    assert asking.ask("GET", "/api/v1/openapi.json").status_code == 401


@pytest.mark.parametrize("path", ["/", "/api/v1/me", "/api/v1/nothing", "/api/v1/topologies?x=1"])
def test_every_answer_has_the_headers_and_no_cookie(path: str, asking: Asking) -> None:
    answer = asking.ask("GET", path)
    for name, value in HEADERS.items():
        if name != "Cache-Control":
            assert answer.headers[name] == value
    assert answer.headers["cache-control"] in ("no-store", "no-cache")
    assert "set-cookie" not in answer.headers
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "require-trusted-types-for" in policy


def test_a_name_in_the_host_header_cannot_choose_the_path(asking: Asking) -> None:
    answer = asking.ask("GET", "/api/v1/topologies", headers={"Host": f"{HOST}/health?"})
    assert answer.status_code == 421


def test_refusals_are_counted_and_the_log_has_no_token(asking: Asking, caplog: pytest.LogCaptureFixture) -> None:
    async def ask(client: httpx.AsyncClient, tracker: Tracker) -> None:
        for _ in range(12):
            answer = await client.get("/api/v1/me", headers={"Authorization": "Bearer not-a-token"})
            assert answer.status_code == 401
        assert tracker.refused == 12
        assert "heron_tracker_refused_requests_total 12.0" in (await client.get("/metrics")).text

    asking.within(ask)
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(" ")[0] for text in said if "refused so far" in text] == ["1", "10"]
    assert "not-a-token" not in caplog.text


def test_streams_of_a_token_leave_room_for_the_owner(
    asking: Asking, busy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "STREAMS_MAX", 3)

    async def watch(client: httpx.AsyncClient, tracker: Tracker) -> None:
        token = {"Authorization": f"Bearer {tracker.tokens.create(Scope.VIEW)}"}
        feed = tracker.feeds.of_list(list(tracker.clusters.values()))
        streams = [feed.stream("", "the token 'view'", values=False) for _ in range(3)]
        for stream in streams:
            await anext(stream)
        monkeypatch.setattr("heronpy.tracker.feeds.Feed.gone", "it is over")  # a stream ends after its snapshot
        refused = await client.get("/api/v1/live", headers=token)
        assert refused.status_code == 503 and "3 pages of the token 'view'" in refused.json()["title"]
        assert (await client.get("/api/v1/live")).status_code == 200
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]
        assert (await client.get("/api/v1/live", headers=token)).status_code == 200

    asking.within(watch)


# ---- the decision by itself -----------------------------------------------------------------


def facts(method: str = "GET", uid: int | None = 1000, **headers: str) -> Facts:
    return Facts(method, {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}, uid=uid)


def test_behind_a_proxy_the_uid_says_nothing() -> None:
    assert isinstance(decide(Scope.VIEW, facts(), HOUSE, None), Asker)
    proxied = House(1000, frozenset({HOST}), "https", behind_proxy=True)
    assert isinstance(decide(Scope.VIEW, facts(), proxied, None), Refusal)
    holder = Asker("token x", Scope.VIEW)
    assert decide(Scope.VIEW, facts(authorization="Bearer x"), proxied, holder) == holder


def test_a_wrong_token_is_not_rescued_by_the_uid() -> None:
    assert isinstance(decide(Scope.VIEW, facts(authorization="Bearer wrong"), HOUSE, None), Refusal)


def test_a_host_that_is_sent_twice_is_refused() -> None:
    twice = Facts("GET", {"host": HOST}, frozenset({"host"}), 1000)
    assert isinstance(decide(Scope.OPEN, twice, HOUSE, None), Refusal)


NAMED = (HOST, f"{NAME}:80", NAME, f"{NAME.upper()}:9000")
FOREIGN = (
    f"{'f' * 32}.localhost:8889", f"x.{NAME}", f"{NAME}.", f"{NAME}.evil.example", f"{NAME}:8889/health?", f"{NAME}:",
    f"{NAME}:8889:1", "localhost", "\u2028", "",
)  # fmt: skip


@pytest.mark.parametrize("host", NAMED)
def test_under_the_random_name_browsers_are_answered_at_any_port(host: str) -> None:
    """So a forwarded port works."""
    sent = {"host": host, "origin": f"http://{host.lower()}", "sec-fetch-site": "same-origin"}
    for scope in (Scope.OPEN, Scope.PAGES, Scope.ALL):
        assert isinstance(decide(scope, Facts("GET", sent, uid=1000), HOUSE, None), Asker)
    assert isinstance(decide(Scope.PAGES, Facts("GET", sent, uid=1001), HOUSE, None), Asker)
    assert isinstance(decide(Scope.VIEW, Facts("GET", sent, uid=1001), HOUSE, None), Refusal)
    other = Facts("GET", sent | {"origin": f"http://{NAME}:1"}, uid=1000)
    assert isinstance(decide(Scope.OPEN, other, HOUSE, None), Refusal), "whoever has another port of this name"


@pytest.mark.parametrize("host", FOREIGN, ids=ascii)
def test_no_other_name_is_answered_and_none_is_told_the_right_one(host: str) -> None:
    for scope in Scope:
        found = decide(scope, Facts("GET", {"host": host}, uid=1000), HOUSE, Asker("x", Scope.ALL))
        assert isinstance(found, Refusal) and found.status == 421
        assert (found.type == "restarted") is host.partition(":")[0].endswith(".localhost")
        assert NAME not in found.detail and (NAME in host or NAME not in found.title)


def test_at_the_bare_address_only_programs_with_a_token_are_answered() -> None:
    def ask(scope: Scope, holder: Asker | None = None, **headers: str) -> Asker | Refusal:
        sent = {"host": BARE, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return decide(scope, Facts("GET", sent, uid=1000), HOUSE, holder)

    holder = Asker("x", Scope.VIEW)
    assert isinstance(ask(Scope.OPEN), Asker), "who looks whether it is there"
    assert ask(Scope.VIEW, holder, authorization="Bearer x") == holder
    for scope in (Scope.PAGES, Scope.VIEW, Scope.ALL):
        refused = ask(scope)
        assert isinstance(refused, Refusal) and refused.status == 401, "the uid alone is not enough"
    for browser in ("origin", "sec_fetch_site", "sec_fetch_mode", "sec_fetch_dest", "sec_fetch_user"):
        value = f"http://{BARE}" if browser == "origin" else "none"
        for scope in Scope:
            refused = ask(scope, holder, authorization="Bearer x", **{browser: value})
            assert isinstance(refused, Refusal) and refused.status == 421, browser


@given(st.lists(st.sampled_from(["uid 1000", "uid 1", "uid 2", "uid 3", "10.0.0.1"]), max_size=600))
def test_others_however_many_leave_room_for_the_owner(peers: list[str]) -> None:
    connected: list[str] = []
    for peer_ in peers * 4:
        if peer_ != "uid 1000" and has_room(peer_, "uid 1000", connected):
            connected.append(peer_)
    assert all(connected.count(one) <= CONNECTIONS_OF_ONE for one in set(connected))
    assert len(connected) <= CONNECTIONS_OF_OTHERS
    while has_room("uid 1000", "uid 1000", connected):
        connected.append("uid 1000")
    assert len(connected) == CONNECTIONS_MAX and not has_room("uid 1", "uid 1000", connected)


def test_where_nobody_is_the_owner_each_has_half() -> None:
    one = ["uid 33"] * CONNECTIONS_OF_ONE
    assert not has_room("uid 33", "", one) and has_room("uid 34", "", one + ["uid 34"] * (CONNECTIONS_OF_ONE - 1))


@pytest.mark.parametrize("origin", [f"https://{HOST}", "http://127.0.0.1", "null", f"http://{HOST}.evil.example"])
def test_only_the_exact_origin_is_ours(origin: str) -> None:
    assert isinstance(decide(Scope.OPEN, facts(origin=f"http://{HOST}"), HOUSE, None), Asker)
    assert isinstance(decide(Scope.OPEN, facts(origin=origin), HOUSE, None), Refusal)


def test_a_route_without_a_fitting_scope_cannot_be_declared() -> None:
    async def nothing(call: object) -> None:
        """Do nothing."""

    with pytest.raises(TypeError):
        Table().route("POST", "/x", Scope.VIEW)(nothing)
    with pytest.raises(TypeError):
        Table().route("POST", "/x", Scope.OPEN)(nothing)
    with pytest.raises(TypeError):
        Table().route("GET", "/x")(nothing)  # type: ignore[call-arg]


def test_the_key_of_a_skew_is_a_value(asking: Asking, busy: FakeTopology, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Finding(
        Verdict.SKEW, "count", "container_1_count_2",
        {"share": 0.9, "even": 0.5, "tasks": 2, "busy": 1.0, "median": 0.1, "of_key": 0.97}, quote="user='Ada'",
    )  # fmt: skip
    signals = Signals("wordy", control_pb2.LIFE_RUNNING, "", 60.0)
    monkeypatch.setattr("heronpy.tracker.sources._look", lambda session, name: (signals, [found]))
    tokens = Tokens(asking.folder)
    of_all = "97 % of its tuples have user='Ada'"
    for scope, said in ((Scope.VIEW, "97 % of its tuples have one key"), (Scope.ALL, of_all)):
        secret = tokens.create(scope)
        answer = asking.ask(
            "GET", "/api/v1/topologies/local/me/default/wordy/doctor", headers={"Authorization": f"Bearer {secret}"}
        )
        assert said in answer.json()["findings"][0]["sentence"]
        assert scope is Scope.ALL or "Ada" not in answer.text
