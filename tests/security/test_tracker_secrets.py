"""S12 and S17 at the tracker: tokens, limits and the log; secrets in no answer and no file."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat

import pytest
from msgspec.structs import replace

from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.statemgr import paths
from heronpy.tracker import tokens as tokens_module
from heronpy.tracker.guard import Scope
from heronpy.tracker.tokens import Tokens
from heronpy.views.load import LoadAnswer
from tests.security.tracker_house import CANARY, CHANGE, ROUTES, Asker, House, house, path_of
from tests.tracker.conftest import WORDY, asking, busy, home, wordy

__all__ = ["asking", "busy", "home", "house", "wordy"]


# ---- S12: transport, tokens, limits, log -----------------------------------------------------


def test_s12_a_token_is_hashed_at_rest_and_compared_in_constant_time(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(house.asking.folder)
    secret = tokens.create(Scope.VIEW)
    kept = tokens.path.read_text()
    assert secret not in kept and hashlib.sha256(secret.encode()).hexdigest() in kept
    assert len(secret) >= 43, "256 bits"
    assert stat.S_IMODE(tokens.path.stat().st_mode) == 0o600
    compared: list[object] = []
    real = hmac.compare_digest

    def spy(first: str, second: str) -> bool:
        compared.append((first, second))
        return real(first, second)

    monkeypatch.setattr(tokens_module.hmac, "compare_digest", spy)
    assert tokens.holder(secret) is not None and compared
    count = len(compared)
    assert tokens.holder("x") is None and len(compared) > count, "a wrong one takes the same way"


def test_s12_a_token_in_the_address_is_no_token_and_is_written_nowhere(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = Tokens(house.asking.folder).create(Scope.ALL)
    monkeypatch.setattr("heronpy.tracker.peer.uid_of", lambda client, server: None)

    async def ask(asker: Asker) -> None:
        for name in ("token", "access_token", "authorization"):
            assert (await asker.send("GET", "/api/v1/me", f"{name}={secret}")).status == 401
        assert (await asker.send("GET", "/api/v1/me", headers={"Cookie": f"token={secret}"})).status == 401
        assert (await asker.send("GET", "/api/v1/me", headers={"Authorization": f"Bearer {secret}"})).status == 200
        assert (await asker.send("GET", "/api/v1/nothing", headers={"Authorization": f"Bearer {secret}"})).status == 404

    house.within(ask)
    assert secret not in caplog.text
    for path in house.asking.folder.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


def test_s12_the_log_says_who_changed_what_and_no_value(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "heronpy.tracker")
    house.topology.answers["set_state"] = control_pb2.Ok(text="done")

    async def ask(asker: Asker) -> None:
        await asker.send("POST", f"{WORDY}/actions/deactivate", headers=CHANGE, body=b"{}")
        body = json.dumps({"settings": {"count:db.password": CANARY}}).encode()
        await asker.send("POST", f"{WORDY}/actions/update", headers={**CHANGE, "If-Match": "1"}, body=body)
        await asker.send("POST", f"{WORDY}/actions/kill", headers={**CHANGE, "Authorization": "Bearer no"}, body=b"{}")

    house.within(ask)
    said = [record.getMessage() for record in caplog.records if record.name == "heronpy.tracker"]
    changes = [text.partition(": ")[0] for text in said if "requested" in text]
    who = f"uid {os.getuid()}"
    assert changes == [f"{who} requested {action} of local/me/default/wordy" for action in ("deactivate", "update")]
    assert any("1 request refused so far" in text for text in said) and CANARY not in caplog.text


# ---- S17: secrets ------------------------------------------------------------------------------


def test_s17_no_answer_and_no_file_of_the_tracker_has_a_secret(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """Under names that say so: in settings, in configurations, in addresses; in all routes that may be asked for."""
    topology = house.topology
    for definition in (topology.status.plan.topology, _definition(house)):
        kvs = definition.topology_config.kvs
        kvs.add(key="db.password", value=CANARY)
        kvs.add(key="api_token", value=CANARY)
        kvs.add(key="broker", value=f"amqp://me:{CANARY}@host/x")
        for one in definition.spouts:
            one.comp.config.kvs.add(key="spout.secret", value=CANARY)
        for one in definition.bolts:
            one.comp.config.kvs.add(key="aws_secret_access_key", value=CANARY)
        topology.state.set(paths.topology("wordy"), definition.SerializeToString())
    topology.state.set(paths.physical_plan("wordy"), topology.status.plan.SerializeToString())
    reply = topology.answers["get_load"]
    assert isinstance(reply, LoadAnswer)
    plan = plan_pb2.PhysicalPlan.FromString(reply.plan or b"")
    plan.topology.CopyFrom(topology.status.plan.topology)
    reply.plan = plan.SerializeToString()
    settings = {
        **topology.launch.settings,
        "logging": {**topology.launch.settings["logging"], "archive": f"s3://k:{CANARY}@b"},
    }
    submitted = replace(topology.launch.submitted, settings=settings)
    topology.state.set(paths.launch("wordy"), submitted.to_bytes())
    # What was raised and logged may quote anything; what follows such a name is hidden there as well.
    seen = 0

    async def ask(asker: Asker) -> None:
        nonlocal seen
        for route in ROUTES:
            if route.method == "GET" and not route.path.endswith("/live"):
                query = ""
                if any(param.name == "environ" and param.required for param in route.params):
                    wanted = {param.name: "1" for param in route.params if param.required}
                    wanted |= {"cluster": "local", "environ": "default", "topology": "wordy"}
                    wanted |= {"component": "count"} if "component" in wanted else {}
                    wanted |= (
                        {"query": "TS(count,*,busy)", "starttime": "0", "endtime": "60"} if "query" in wanted else {}
                    )
                    query = "&".join(f"{name}={value}" for name, value in wanted.items())
                answer = await asker.send("GET", path_of(route), query)
                seen += answer.status == 200
                if "/logs" not in route.path:
                    assert CANARY.encode() not in answer.body, (route.path, answer.body)

    house.within(ask)
    assert seen > 30, "most of them answer"
    assert CANARY not in caplog.text
    for path in house.asking.folder.rglob("*"):
        if path.is_file():
            assert CANARY.encode() not in path.read_bytes(), path


def _definition(house: House) -> topology_pb2.Topology:

    found = house.topology.state.get(paths.topology("wordy"))
    return topology_pb2.Topology.FromString(found[0])
