"""Who may not see values of users sees none: a value is planted wherever one may be quoted, and looked for everywhere."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.cli.verbs.look import KINDS
from heronpy.health.diagnose import diagnose
from heronpy.health.doctor import finding_of
from heronpy.health.signals import Signals, TaskSignals
from heronpy.health.texts import sentence
from heronpy.proto import control_pb2, topology_pb2
from heronpy.statemgr import paths
from heronpy.tracker.app import routes
from heronpy.tracker.calls import Route
from heronpy.tracker.guard import Scope
from heronpy.tracker.reading import TOPOLOGY
from heronpy.tracker.tokens import Tokens
from heronpy.tracker.tracker import Tracker
from heronpy.views.findings import Finding, Verdict
from heronpy.views.load import LoadAnswer
from heronpy.views.quotes import UNSEEN, without_values
from tests.cli.conftest import FakeTopology
from tests.health.diagnose_cases import CASES
from tests.support.views import event, events, traces
from tests.tracker.conftest import WORDY, Asking, load_reply
from tests.tracker.test_ended import end_of

SECRET = "Ada-4711"
SAID = f"ValueError: order of {SECRET} cannot be booked"
#: Answered by what is planted for a topology, so they must quote it for those who may see it.
QUOTES = ("", "/load", "/tasks", "/doctor", "/events", "/checkpoints", "/plan")
VIEWS = [route for route in routes() if route.scope is Scope.VIEW]


def finding(verdict: Verdict) -> Finding:
    """One of this kind that quotes the value, where such a one quotes anything that user code has said."""
    signals = next(signals for signals, found, _ in CASES.values() if found is verdict)
    found = diagnose(signals)[0]
    code = verdict in (Verdict.HUNG, Verdict.DEPENDENCY, Verdict.SLOW_TASK)
    figures = {**found.figures, "of_key": 0.97} if verdict is Verdict.SKEW else found.figures
    return Finding(verdict, found.component, found.task, figures, found.quote if code else SAID, found.names)


@pytest.mark.parametrize("verdict", Verdict)
def test_a_sentence_without_values_is_whole(verdict: Verdict) -> None:
    found = finding_of(finding(verdict), "local", "wordy")
    plain = without_values(found)
    assert SECRET not in repr(plain) and not plain.unquoted
    assert plain.sentence and not plain.sentence.endswith((": ", ":", "()")) and "()" not in plain.sentence
    assert (SECRET in found.sentence) is (plain.sentence != found.sentence)
    assert plain.figures == found.figures and plain.next == found.next


def test_what_is_said_instead() -> None:
    crashing = Finding(Verdict.CRASHING, task="c-2", figures={"times": 8}, quote=SAID, names=("process (sick.py:62)",))
    assert without_values(finding_of(crashing, "local", "wordy")).sentence == (
        f"c-2 was restarted 8 times, in process (sick.py:62); {UNSEEN}"
    )
    assert sentence(crashing, "wordy") == f"c-2 was restarted 8 times: {SAID}, in process (sick.py:62)"


@pytest.fixture
def telling(busy: FakeTopology, monkeypatch: pytest.MonkeyPatch) -> FakeTopology:
    """wordy, in which whatever can quote a value does so."""
    found = [finding(verdict) for verdict in (Verdict.CRASHING, Verdict.DOWN, Verdict.MEMORY, Verdict.SKEW)]
    load = load_reply()
    load.load.state, load.load.cause, load.last_event, load.findings = "DEGRADED", SAID, 40, found
    busy.answers["get_load"] = load
    busy.status.lifecycle, busy.status.cause = control_pb2.LIFE_DEGRADED, SAID
    busy.status.tasks[1].error = busy.status.tasks[2].waiting_for = SAID
    executor = busy.status.executors.add(container=1, host="here")
    for name, task in (("container_1_count_2", 2), ("stmgr-1", 0), ("spark-gateway", 0)):
        executor.processes.add(name=name, task_id=task, exit_reason="user_exception", exit_detail=SAID, restarts=3)
    told = events(last=40)
    for number, kind in enumerate(KINDS, 20):
        reasons = {"checkpoint": "aborted", "update": "rolled_back"}
        heads = {
            "master": "topology master 3 took over", "silent": "no heartbeat from x",
            "backpressure": "the spouts were held back for 3s",
        }  # fmt: skip
        told.events.append(
            event(
                number, at=time.time(), first_at=5.0, kind=kind, subject="count-2", warning=True, detail=SAID,
                reason=reasons.get(kind, "user_exception"), text=heads.get(kind, f"it happened: {SAID}"),
            )
        )  # fmt: skip
    busy.answers["get_events"] = told
    busy.answers["get_checkpoints"] = control_pb2.CheckpointsReply(last_failure=SAID, last_restore=SAID)
    busy.answers["get_metrics"] = control_pb2.MetricsReply(interval_s=10.0)
    busy.answers["get_traces"] = traces()
    busy.answers["get_exceptions"] = control_pb2.ExceptionsReply()
    topology = topology_pb2.Topology()
    topology.CopyFrom(busy.status.plan.topology)
    topology.topology_config.kvs.add(
        key="topology.reliability.mode", value="EFFECTIVELY_ONCE", type=topology_pb2.STRING_VALUE
    )
    topology.bolts[0].comp.config.kvs.add(key="my.note", value=SECRET, type=topology_pb2.STRING_VALUE)
    busy.state.set(paths.topology("wordy"), topology.SerializeToString())
    signals = Signals("wordy", control_pb2.LIFE_DEGRADED, SAID, 60.0, [TaskSignals("count-2", "count", False, True)])
    monkeypatch.setattr("heronpy.tracker.sources._look", lambda session, name: (signals, found))
    return busy


@pytest.fixture
def tokens(asking: Asking) -> dict[str, dict[str, str]]:
    """The header of a token of each scope."""
    made = Tokens(asking.folder)
    return {scope.value: {"Authorization": f"Bearer {made.create(scope)}"} for scope in (Scope.VIEW, Scope.ALL)}


def address(route: Route) -> str:
    """That of wordy, with what the route needs."""
    path = route.path
    for name, value in (
        ("cluster", "local"),
        ("role", "me"),
        ("environ", "default"),
        ("name", "wordy"),
        ("number", "1"),
    ):
        path = path.replace(f"{{{name}}}", value)
    values = {"cluster": "local", "environ": "default", "topology": "wordy", "query": "TS(count,*,__execute-count)",
              "component": "count", "starttime": "1", "endtime": "2"}  # fmt: skip
    needed = [f"{param.name}={values.get(param.name, '1')}" for param in route.params if param.required]
    return f"{path}?{'&'.join(needed)}"


@pytest.mark.parametrize("route", VIEWS, ids=lambda route: route.path)
def test_no_route_of_the_scope_view_tells_a_value(
    route: Route, asking: Asking, telling: FakeTopology, tokens: dict[str, dict[str, str]]
) -> None:
    if route.path.endswith("/live"):
        return  # never ends: see below
    answer = asking.ask("GET", address(route), headers=tokens["view"])
    assert answer.status_code != 403 and SECRET not in answer.text
    if route.path.removeprefix(TOPOLOGY) in QUOTES:
        assert answer.status_code == 200, answer.text
        assert SECRET in asking.ask("GET", address(route), headers=tokens["all"]).text, "else nothing is proven"


def test_words_of_the_runtime_stay(asking: Asking, telling: FakeTopology, tokens: dict[str, dict[str, str]]) -> None:
    shown = asking.get(f"{WORDY}/events", headers=tokens["view"])["events"]
    texts = {event["kind"]: event["text"] for event in shown}
    assert texts["backpressure"] == "the spouts were held back for 3s"
    assert texts["restart"] == "it happened: user exception" and texts["update"] == "it happened"
    assert all(event["detail"] == UNSEEN for event in shown)
    assert asking.get(WORDY, headers=tokens["view"])["cause"] == UNSEEN


def test_a_live_stream_tells_no_value(asking: Asking, telling: FakeTopology, tokens: dict[str, dict[str, str]]) -> None:
    """In its snapshot, its deltas and its events; two viewers of one feed get each their own."""

    async def read(client: Any, tracker: Tracker) -> dict[bool, str]:
        cluster = await tracker.cluster("local")
        watched = await tracker.topology("local", "me", "default", "wordy")
        feed = tracker.feeds.of_topology(cluster, watched, "tasks")
        streams = {values: feed.stream("", values=values) for values in (False, True)}
        found = {False: "", True: ""}
        for values, stream in streams.items():
            found[values] += (await next_of(stream)).decode()
        load = telling.answers["get_load"]
        assert isinstance(load, LoadAnswer)
        load = replace(load, load=replace(load.load, cause=f"{SAID} again"), last_event=41)
        more = event(41, kind="oom", text=f"x: {SAID}", detail=SAID)
        telling.answers["get_events"].events.append(more)  # type: ignore[union-attr]
        telling.answers["get_load"] = load
        for values, stream in streams.items():
            while not ("event: delta" in found[values] and "event: event" in found[values]):
                found[values] += (await next_of(stream)).decode()
            await stream.aclose()  # type: ignore[attr-defined]
        return found

    found = asking.within(read)
    assert SECRET in found[True] and "again" in found[True]
    assert SECRET not in found[False] and UNSEEN in found[False]


async def next_of(stream: AsyncIterator[bytes]) -> bytes:
    return await asyncio.wait_for(anext(stream), 60.0)


@pytest.mark.parametrize("topology", ["", "?topology=local/me/default/wordy&level=tasks"])
def test_the_address_of_the_live_stream_knows_who_asks(
    topology: str, asking: Asking, telling: FakeTopology, tokens: dict[str, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("heronpy.tracker.feeds.Feed.gone", "it is over")  # ends the stream after its snapshot
    for scope, quoted in (("view", False), ("all", True)):
        text = asking.ask("GET", f"/api/v1/live{topology}", headers=tokens[scope]).text
        assert "event: snapshot" in text and (SECRET in text) is quoted, scope


def test_what_is_kept_of_an_ended_topology_tells_no_value(
    asking: Asking, telling: FakeTopology, tokens: dict[str, dict[str, str]]
) -> None:
    telling.answers["get_load"].load.state = "FAILED"  # type: ignore[union-attr]
    end_of(asking, telling, "failed")
    assert SECRET in asking.ask("GET", f"{WORDY}/doctor", headers=tokens["all"]).text
    for route in VIEWS:
        if not route.path.endswith("/live"):
            assert SECRET not in asking.ask("GET", address(route), headers=tokens["view"]).text, route.path
    refused = asking.ask("GET", f"{WORDY}/slow", headers=tokens["all"])
    assert refused.status_code >= 400 and SECRET not in refused.text, "an error may be logged by anybody"
    assert json.loads(asking.ask("GET", "/api/v1/history", headers=tokens["view"]).text)["topologies"]
