"""The access of a user's commands: made once, private, brought whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import zmq

from heronpy.common.errors import ConfigError
from heronpy.net import access
from heronpy.net.access import EndpointPlace
from heronpy.net.access_place import folder_of, origin_of

KEY = b"x" * 40
PLACE = EndpointPlace("wc-1", ("tcp://10.0.0.1:20000", "tcp://login:20000"), zmq.curve_keypair()[0])


@pytest.fixture(autouse=True)
def _home(home: Path) -> None:
    """A HERON_HOME of its own."""


def text_of_another_host(**changes: Any) -> str:
    access.make_client("hpc")
    access.write_endpoint("hpc", "wc", PLACE)
    found = {**json.loads(access.to_text("hpc", "login")), **changes}
    for file in folder_of("hpc").iterdir():
        file.unlink()
    folder_of("hpc").rmdir()
    return json.dumps(found)


def test_the_key_is_made_once_and_endpoints_come_and_go() -> None:
    made = access.make_client("hpc")
    assert access.make_client("hpc") == made == access.client_of("hpc") and access.client_of("other") is None
    access.write_endpoint("hpc", "wc", PLACE)
    assert access.known_endpoint("hpc", "wc") == PLACE and access.topologies_of("hpc") == ["wc"]
    access.forget_endpoint("hpc", "wc", "wc-of-earlier")
    assert access.topologies_of("hpc") == ["wc"], "a later topology of that name keeps its own"
    access.forget_endpoint("hpc", "wc", "wc-1")
    access.forget_endpoint("hpc", "wc", "wc-1")
    assert access.topologies_of("hpc") == [] and access.known_endpoint("hpc", "wc") is None
    assert access.known_endpoint("hpc", "../hpc/wc") is None
    assert origin_of("hpc") == ""
    assert {path.stat().st_mode & 0o777 for path in folder_of("hpc").iterdir()} == {0o600}
    assert folder_of("hpc").stat().st_mode & 0o777 == 0o700


def test_what_is_brought_replaces_what_was_brought_before() -> None:
    text = text_of_another_host()
    for _ in range(2):
        assert access.bring("hpc", text) == 1
        assert access.known_endpoint("hpc", "wc") == PLACE and origin_of("hpc") == "login"
        found = access.client_of("hpc")
        assert found is not None and [found.public.decode(), found.secret.decode()] == json.loads(text)["client"]
    access.bring("hpc", json.dumps({**json.loads(text), "endpoints": {}}))
    assert access.topologies_of("hpc") == []
    assert {path.stat().st_mode & 0o777 for path in folder_of("hpc").iterdir()} == {0o600}
    assert os.listdir(folder_of("hpc").parent) == ["hpc"], "no draft stays"


@pytest.mark.parametrize(
    "changes",
    [
        {"client": ["a", "b"]},
        {"client": [KEY.decode(), KEY.decode()]},
        {"client": None},
        {"origin": ""},
        {"endpoints": []},
        {"endpoints": {"../../x": {"topology_id": "x", "addresses": ["tcp://a:1"], "server": KEY.decode()}}},
        {"endpoints": {".hidden": {"topology_id": "x", "addresses": ["tcp://a:1"], "server": KEY.decode()}}},
        {"endpoints": {"wc": {"topology_id": "x", "addresses": ["ipc:///tmp/x"], "server": KEY.decode()}}},
        {"endpoints": {"wc": {"topology_id": "x", "addresses": [], "server": KEY.decode()}}},
        {"endpoints": {"wc": {"addresses": ["tcp://a:1"], "server": KEY.decode()}}},
        {"endpoints": {"wc": {"topology_id": "x", "addresses": ["tcp://a:1"], "server": "short"}}},
        {"cluster": "other"},
    ],
)
def test_what_is_no_access_is_refused_and_changes_nothing(changes: dict[str, Any]) -> None:
    text = text_of_another_host(**changes)
    secret = json.loads(text)["client"][1] if changes.get("client", ...) is ... else "b" * 8
    with pytest.raises(ConfigError) as found:
        access.bring("hpc", text)
    assert secret not in str(found.value)
    assert not folder_of("hpc").exists() and os.listdir(folder_of("hpc").parent) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "x", '{"cluster": "hpc"}'])
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="this is not the output of 'heron cluster access' on another host"):
        access.bring("hpc", text)


@pytest.mark.parametrize(
    "content", ["", "{", "{}", '{"topology_id": "wc-1", "addresses": ["nowhere"], "server": "short"}']
)
def test_a_damaged_endpoint_file_is_named_with_what_helps(content: str) -> None:
    access.bring("hpc", text_of_another_host())
    file = folder_of("hpc") / "wc.endpoint.json"
    file.write_text(content)
    with pytest.raises(ConfigError) as brought:
        access.known_endpoint("hpc", "wc")
    assert str(brought.value) == (
        f"the file {file} with the control endpoint of topology 'wc' is damaged; remove it,"
        " and run 'heron cluster access hpc' on host login and 'heron cluster access hpc --install' here"
    )
    (folder_of("hpc") / ".origin").unlink()
    with pytest.raises(ConfigError, match="the topology's scheduler writes a new one when it starts"):
        access.known_endpoint("hpc", "wc")


def test_an_endpoint_that_was_damaged_on_its_way_is_named() -> None:
    text = text_of_another_host(endpoints={"wc": {"topology_id": "wc-1", "addresses": [], "server": "short"}})
    with pytest.raises(
        ConfigError, match="on another host: the control endpoint of topology 'wc' is damaged; run both commands"
    ):
        access.bring("hpc", text)


def test_the_key_of_this_host_is_not_replaced() -> None:
    text = text_of_another_host()
    mine = access.make_client("hpc")
    with pytest.raises(ConfigError, match="topologies are submitted to cluster hpc from this host"):
        access.bring("hpc", text)
    assert access.client_of("hpc") == mine


def test_a_key_that_others_can_read_or_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no key for clients"):
        access.to_text("hpc", "login")
    access.make_client("hpc")
    file = folder_of("hpc") / "client.key"
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="must be readable by you alone"):
        access.client_of("hpc")
    file.chmod(0o600)
    os.rename(file, tmp_path / "key")
    file.symlink_to(tmp_path / "key")
    with pytest.raises(ConfigError):
        access.client_of("hpc")
    file.unlink()
    folder_of("hpc").chmod(0o755)
    with pytest.raises(ConfigError, match="other users can enter it"):
        access.make_client("hpc")
