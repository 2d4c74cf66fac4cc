"""S02 to S07 at the tracker: injection into logs, commands, pickles, missing credentials, other sites, addresses."""

from __future__ import annotations

import ast
import json
import os
import pickle
from pathlib import Path
from urllib.parse import quote

import pytest

from heronpy.net import rpc_loop
from heronpy.proto import plan_pb2
from heronpy.statemgr import paths
from heronpy.tracker import peer
from heronpy.tracker.calls import Route
from tests.security.tracker_house import CHANGE, PLACE, ROUTES, Asker, House, house, named, path_of
from tests.tracker.conftest import HOST, WORDY, asking, busy, home, wordy

__all__ = ["asking", "busy", "home", "house", "wordy"]

REPO = Path(__file__).parents[2]
#: What would begin a new record, act on a terminal, or be a part of a page.
BREAKS = ("\r\n", "\n", "\x1b[2J", "\u2028", "\u0085", "<script>alert(1)</script>", "\x00", "\u202e")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
CHANGES = [route for route in ROUTES if route.method == "POST"]


# ---- S02: log injection -----------------------------------------------------------------------


@pytest.mark.parametrize("text", BREAKS, ids=ascii)
def test_s02_what_is_asked_forges_no_record_and_is_no_page(
    text: str, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    odd = f"x{text}2026-11-21T00:10:00.000+0000 ERROR tracker [heron] forged"

    async def ask(asker: Asker) -> None:
        for path in (
            f"{WORDY}/logs/{quote(odd)}",
            f"/api/v1/topologies/local/me/default/{quote(odd)}",
            f"/{quote(odd)}",
        ):
            answer = await asker.send("GET", path)
            assert answer.status in (400, 404)
            # JSON escapes what would break a line, and no browser takes it for a page.
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert json.loads(answer.body)["title"] and b"\n" not in answer.body and b"\x1b" not in answer.body
        refused = await asker.send("GET", f"/{quote(odd)}", headers={"Authorization": "Bearer " + "no"})
        assert refused.status == 401

    house.within(ask)
    for record in caplog.records:
        assert "forged" not in record.getMessage() or "\n" not in record.getMessage()


# ---- S03: command injection -------------------------------------------------------------------


@pytest.mark.parametrize("route", CHANGES, ids=named)
def test_s03_no_text_of_a_request_is_run(route: Route, house: House, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    attacks = [
        f"; touch {mark}",
        f"$(touch {mark})",
        f"`touch {mark}`",
        f"| touch {mark}",
        f"x\ntouch {mark}",
        "--help",
    ]

    async def ask(asker: Asker) -> None:
        for attack in attacks:
            for body in (
                {"component": attack},
                {"checkpoint": attack},
                {"parallelism": {attack: 2}},
                {"dry_run": attack},
            ):
                headers = {**CHANGE, "If-Match": attack.replace("\n", " ")}
                sent = path_of(route, id=quote(attack, safe=""))
                await asker.send(route.method, sent, headers=headers, body=json.dumps(body).encode())
            await asker.send(route.method, path_of(route, role=quote(attack, safe="")), headers=CHANGE, body=b"{}")

    house.within(ask)
    assert not mark.exists()


def test_s03_the_tracker_starts_only_itself_by_an_argument_list() -> None:
    found = set()
    for path in sorted((REPO / "heronpy" / "tracker").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.partition(".")[0] in ("subprocess", "pty", "shlex", "multiprocessing") for name in names):
                found.add(path.name)
    assert found <= {"finding.py"}


# ---- S04: deserialisation ---------------------------------------------------------------------


class _Bomb:
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self._mark),)


@pytest.mark.parametrize("route", CHANGES, ids=named)
def test_s04_a_body_is_json_of_its_shape_or_refused(
    route: Route, house: House, tmp_path: Path, nothing_is_unpickled: None
) -> None:
    mark = tmp_path / "mark"
    bomb = pickle.dumps(_Bomb(mark))

    async def ask(asker: Asker) -> None:
        for body in (
            bomb,
            b"\x80\x04.",
            b"!!python/object/apply:os.system ['id']",
            b"[" * 60_000,
            b'{"x": 1}',
            b"\xff\xfe",
            b'{"component": "\xff"}',
            b"null",
        ):
            answer = await asker.send(route.method, path_of(route), headers=CHANGE, body=body)
            assert answer.status == 400, (body[:40], answer.status, answer.body)

    house.within(ask)
    assert not mark.exists()


def test_s04_files_of_the_tracker_that_hold_pickles_are_set_aside(
    house: House, tmp_path: Path, nothing_is_unpickled: None
) -> None:
    bomb = pickle.dumps(_Bomb(tmp_path / "mark"))
    house.asking.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = house.asking.folder.parent / "topologies" / "local" / "me" / "evil" / "ended"
    kept.mkdir(mode=0o700, parents=True)
    for path in (house.asking.folder / "tokens.json", house.asking.folder / "tracker.json", kept / "evil-1"):
        path.write_bytes(bomb)
        path.chmod(0o600)

    async def ask(asker: Asker) -> None:
        assert (await asker.send("GET", "/api/v1/topologies")).status == 200
        assert (await asker.send("GET", "/api/v1/history")).body == b'{"topologies":[]}'
        # Without a list of tokens nobody has one.
        refused = await asker.send("GET", "/api/v1/topologies", headers={"Authorization": "Bearer x"})
        assert refused.status in (401, 500) and b"topologies" not in refused.body

    house.within(ask)
    assert not (tmp_path / "mark").exists()


# ---- S05: missing credentials -----------------------------------------------------------------


def test_s05_a_kernel_that_cannot_be_asked_lets_nobody_in(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def fails(*_: object) -> object:
        raise OSError("no netlink here")

    monkeypatch.setattr("socket.socket", fails)
    assert peer.uid_of(("127.0.0.1", 40000), ("127.0.0.1", 8889)) is None


# ---- S06: other sites -------------------------------------------------------------------------

FOREIGN = (
    {"host": "evil.example:8889"},
    {"host": "127.0.0.1.evil.example:8889"},
    {"host": ""},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": f"https://{HOST}"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
)


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda one: str(one))
def test_s06_every_route_and_method_refuses_another_site(foreign: dict[str, str], house: House) -> None:
    async def ask(asker: Asker) -> None:
        for path in sorted({path_of(route) for route in ROUTES} | {"/", "/health", "/static/index.html"}):
            for method in METHODS:
                answer = await asker.send(method, path, headers={**CHANGE, **foreign}, body=b"{}")
                assert answer.status in (403, 421), (method, path, answer.status)
                assert "set-cookie" not in answer.headers
                assert not any(name.startswith("access-control") for name in answer.headers)

    house.within(ask)
    assert not house.topology.asked


def test_s06_no_get_changes_anything(house: House) -> None:
    before = _records(house)

    async def ask(asker: Asker) -> None:
        for route in ROUTES:
            if route.method == "GET" and not route.path.endswith("/live"):
                await asker.send("GET", path_of(route), "cluster=local&environ=default&topology=wordy&component=count")
                await asker.send("GET", path_of(route))

    house.within(ask)
    orders = {name for name, _ in house.topology.asked}
    assert orders and all(name.startswith("get_") for name in orders), orders
    assert _records(house) == before


def _records(house: House) -> dict[str, bytes]:
    root = Path(house.topology.launch.state_root)
    return {
        str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file() and "lock" not in path.name
    }


@pytest.mark.parametrize("route", CHANGES, ids=named)
def test_s06_a_change_needs_what_a_form_cannot_send(route: Route, house: House) -> None:
    async def ask(asker: Asker) -> None:
        for kind in ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain", ""):
            headers = {"X-Heron": "1", "Content-Type": kind}
            assert (await asker.send("POST", path_of(route), headers=headers, body=b"{}")).status == 415
        headers = {"Content-Type": "application/json"}
        assert (await asker.send("POST", path_of(route), headers=headers, body=b"{}")).status == 403

    house.within(ask)
    assert not [name for name, _ in house.topology.asked if not name.startswith("get_")]


# ---- S07: addresses ---------------------------------------------------------------------------

ADDRESSES = (
    "http://127.0.0.1:1/", "http://169.254.169.254/latest/meta-data", "tcp://127.0.0.1:1", "ipc:///tmp/x", "//evil.example",
    "127.0.0.1:1", "evil.example", "file:///etc/passwd", "inproc://x", "wordy@evil.example", "wordy?x=http://evil.example",
)  # fmt: skip


def test_s07_no_text_of_a_request_becomes_an_address(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses come from the state manager and the topology master: whatever is asked, no other one is opened."""
    opened: list[str] = []
    real = rpc_loop.ControlClient.__init__

    def spy(self: rpc_loop.ControlClient, endpoint: str, *more: object, **named_: object) -> None:
        opened.append(endpoint)
        real(self, endpoint, *more, **named_)  # type: ignore[arg-type]

    monkeypatch.setattr(rpc_loop.ControlClient, "__init__", spy)

    async def ask(asker: Asker) -> None:
        await asker.send("GET", f"{WORDY}/load")
        for route in ROUTES:
            texts = [param.name for param in route.params if param.kind in (str, list)]
            for number, address in enumerate(ADDRESSES):
                names = [*PLACE, "id", "process"]
                sent = path_of(route, **{names[number % len(names)]: quote(address, safe="")})
                pairs = {"cluster": "local", "environ": "default", "topology": "wordy"} if "environ" in texts else {}
                pairs |= {texts[number % len(texts)]: address} if texts else {}
                if route.path.endswith("/live") and "topology" not in pairs:
                    continue
                query = "&".join(f"{name}={quote(value, safe='')}" for name, value in pairs.items())
                headers = {**CHANGE, "X-Original-URL": address, "Referer": address}
                body = json.dumps({"dry_run": True, "component": address}).encode() if route.method == "POST" else b""
                answer = await asker.send(route.method, sent, query, headers=headers, body=body)
                assert answer.status < 500 or answer.status == 503, (sent, query, answer.body)
                assert not answer.headers.get("location")

    house.within(ask)
    known = {one.endpoint for one in (_master(house),)}
    assert set(opened) <= known and opened, opened


def _master(house: House) -> plan_pb2.TmasterLocation:

    found = house.topology.state.get(paths.tmaster("wordy"))
    return plan_pb2.TmasterLocation.FromString(found[0])
