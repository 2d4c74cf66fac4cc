"""activate, deactivate, restart, update and kill against a fake topology master."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api.api_constants import TOPOLOGY_COMPONENT_PARALLELISM
from heronpy.cli.change import kill
from heronpy.clusters import records, takedown
from heronpy.clusters.errors import RequestError
from heronpy.clusters.records import Doing
from heronpy.clusters.restarting import target_of
from heronpy.clusters.session import Session
from heronpy.clusters.target import Target
from heronpy.common.errors import ConfigError, RpcError
from heronpy.plan.component_config import set_key, split_setting
from heronpy.proto import control_pb2, plan_pb2
from heronpy.scheduler import teardown
from heronpy.statemgr import paths
from tests.cli.conftest import FakeTopology, Heron, word_count


def test_activate_and_deactivate(heron: Heron, wordy: FakeTopology) -> None:
    assert heron("deactivate", "local", "wordy").out == "Successfully deactivated topology 'wordy'\n"
    assert heron("activate", "local", "wordy").out == "Successfully activated topology 'wordy'\n"
    assert [body.active for name, body in wordy.asked] == [False, True]  # type: ignore[attr-defined]


def test_a_refusal_of_the_master_is_one_sentence(heron: Heron, wordy: FakeTopology) -> None:
    wordy.answers["set_state"] = RpcError("an update is under way; try again when it is done")
    result = heron("activate", "local", "wordy")
    assert (result.code, result.err) == (1, "error: an update is under way; try again when it is done\n")


def test_restart_targets(heron: Heron, wordy: FakeTopology) -> None:
    for words, expected in (
        ((), (-1, 0)),
        (("-1",), (-1, 0)),
        (("1",), (1, 0)),
        (("0",), (0, 0)),
        (("container_1_count_3",), (-1, 3)),
        (("count-3",), (-1, 3)),
        (("count_3",), (-1, 3)),
        (("--task", "2"), (-1, 2)),
        (("count",), (-1, 0, "count")),
        (("--component", "word"), (-1, 0, "word")),
    ):
        result = heron("restart", "local", "wordy", *words)
        assert result.code == 0, result.err
        body = wordy.asked[-1][1]
        assert isinstance(body, control_pb2.RestartTarget)
        assert (body.container, body.task_id, body.component) == (*expected, "")[:3]
    assert heron("restart", "local", "wordy", "7").code == 2
    wrong = heron("restart", "local", "wordy", "container_1_count_9")
    assert wrong.code == 2 and "did you mean 'container_1_count_" in wrong.err
    wrong = heron("restart", "local", "wordy", "coumt")
    assert wrong.code == 2 and "did you mean 'count'?" in wrong.err
    assert heron("restart", "local", "wordy", "--component", "coumt").code == 2
    assert heron("restart", "local", "wordy", "count", "--task", "2").code == 2


def test_a_name_of_a_component_and_a_task_is_refused() -> None:
    """On the pages `count-3` is task 3 of `count`; another component may be called so."""
    plan = plan_pb2.PackingPlan()
    container = plan.containers.add(id=1)
    for number, component in ((3, "count"), (4, "count-3"), (5, "count-3")):
        container.instances.add(task_id=number, component=component)
    session: Any = SimpleNamespace(packing_plan=lambda _: plan, check_component=lambda *_: None)
    with pytest.raises(RequestError, match="a component and container_1_count_3 with the name 'count-3'; select one"):
        target_of(session, "wordy", "count-3", None, None)
    assert target_of(session, "wordy", None, 3, None) == (-1, 3, None)
    assert target_of(session, "wordy", "count-3_5", None, None) == (-1, 5, None)


def test_what_a_master_answers_to_a_restart_forges_no_line(heron: Heron, wordy: FakeTopology) -> None:
    wordy.answers["restart_target"] = control_pb2.Ok(text="restarted it\nSuccessfully killed topology 'other'\x1b[2J")
    done = heron("restart", "local", "wordy")
    assert done.code == 0 and done.out.count("\n") == 1 and "\x1b" not in done.out, done.out


def test_without_a_master_the_scheduler_restarts_a_container(heron: Heron, wordy: FakeTopology) -> None:
    wordy.state.delete(paths.tmaster("wordy"))
    assert heron("restart", "local", "wordy", "0").code == 0
    assert wordy.asked[-1][0] == "restart_container"


VERBS = (
    ("update", "--component-parallelism", "count:3"),
    ("update", "--runtime-config", "count:limit:10"),
    ("activate",),
    ("deactivate",),
    ("restart",),
    ("restart", "0"),
    ("restart", "count"),
    ("stop", "--drain"),
    ("top",),
    ("checkpoints", "trigger"),
    ("checkpoints", "restore"),
)


def local(words: tuple[str, ...]) -> tuple[str, ...]:
    """The verb of the topology 'wordy'."""
    at = 2 if words[0] == "checkpoints" else 1
    return (*words[:at], "local", "wordy", *words[at:])


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_what_is_being_submitted_is_not_to_be_killed(heron: Heron, wordy: FakeTopology, words: tuple[str, ...]) -> None:
    wordy.answers["get_containers"] = control_pb2.ContainersReply()
    for node in (paths.tmaster("wordy"), paths.physical_plan("wordy")):
        wordy.state.delete(node)
    result = heron(*local(words))
    assert result.code == 1 and "still being submitted: its topology master has not started yet" in result.err, result
    assert "restart_container" not in [name for name, _ in wordy.asked]
    for node in (paths.scheduler("wordy"), paths.topology("wordy"), paths.packing_plan("wordy")):
        wordy.state.delete(node)
    Path(wordy.record.launch_file).unlink()
    wordy.state.create(paths.submission("wordy"), b"", ephemeral=True)
    result = heron(*local(words))
    assert (result.code, result.err) == (
        1,
        "error: topology 'wordy' is still being submitted: its scheduler has not started yet;"
        " try again when 'heron status local wordy' shows RUNNING\n",
    )


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
@pytest.mark.parametrize("removed", [1, 3, 5])
def test_what_another_command_removes_is_not_to_be_killed_again(
    heron: Heron, wordy: FakeTopology, words: tuple[str, ...], removed: int
) -> None:
    name = "wordy"
    nodes = (paths.tmaster, paths.packing_plan, paths.physical_plan, paths.topology, paths.scheduler)
    for node in nodes[:removed]:
        wordy.state.delete(node(name))
    with wordy.state.lock(f"operations/{name}"):
        result = heron(*local(words))
    assert result.code == 1, result
    assert "another command, such as heron kill, is running on topology 'wordy'" in result.err
    assert "'heron kill" not in result.err and "submitted" not in result.err


@pytest.mark.parametrize(
    ("doing", "told"),
    [
        (Doing.KILLING, "topology 'wordy' is being killed by another command; try again if 'heron list local' still"),
        (Doing.CLEANING_UP, "topology 'wordy' is being removed by the submit that started it; try again"),
        (Doing.FINISHING, "topology 'wordy' has ended and is being removed by the submit that waited for it"),
        (None, "another command, such as heron kill, is running on topology 'wordy'"),
    ],
)
def test_what_another_command_does_is_told(heron: Heron, wordy: FakeTopology, doing: Doing | None, told: str) -> None:
    for node in (paths.tmaster, paths.packing_plan, paths.physical_plan, paths.topology, paths.scheduler):
        wordy.state.delete(node("wordy"))
    session = Session(Target.parse("local"))
    with closing(session.state), session.operation("wordy", doing=doing):
        assert told in heron("status", "local", "wordy").err
    assert wordy.state.get(paths.operation("wordy")) is None, "it is told only meanwhile"


def test_what_is_removed_while_it_is_looked_at_is_gone(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Session.tmaster_location

    def removed(self: Session, name: str) -> plan_pb2.TmasterLocation | None:
        if wordy.state.exists(paths.tmaster(name)):
            teardown.remove_state(wordy.state, name)
        return original(self, name)

    monkeypatch.setattr(Session, "tmaster_location", removed)
    result = heron("deactivate", "local", "wordy")
    assert result.code == 3 and "has no topology 'wordy' now" in result.err


def test_update_sends_the_new_plan_with_the_old_version(heron: Heron, wordy: FakeTopology) -> None:
    wordy.answers["update_topology"] = control_pb2.UpdateReply(added=[4, 5], discarded_tuples=0, plan_version=4)
    result = heron("update", "local", "wordy", "--component-parallelism", "count:4", "--drain-timeout", "3")
    assert result.code == 0, result.err
    assert "+ container_1_count_4" in result.out and "2 tasks added, 0 removed" in result.out
    body = wordy.asked[-1][1]
    assert isinstance(body, control_pb2.UpdateTopology)
    assert (body.expected_version, body.drain_timeout_s, body.packing_plan.version) == (1, 3.0, 2)
    assert sum(len(container.instances) for container in body.packing_plan.containers) == 5
    count = next(bolt for bolt in body.topology.bolts if bolt.comp.name == "count")
    assert [kv.value for kv in count.comp.config.kvs] == ["4"]


def test_update_that_removes_says_what_was_lost(heron: Heron, wordy: FakeTopology) -> None:
    wordy.answers["update_topology"] = control_pb2.UpdateReply(removed=[3], discarded_tuples=12, plan_version=4)
    result = heron("update", "local", "wordy", "--component-parallelism", "count:1")
    assert (
        "- container_1_count_3" in result.out and "discarded 12 tuples that were queued in removed tasks" in result.out
    )


def test_update_dry_run_asks_nobody(heron: Heron, wordy: FakeTopology) -> None:
    result = heron("update", "local", "wordy", "--component-parallelism", "count:3", "--dry-run")
    assert result.code == 0 and "+ container_1_count_4" in result.out
    words = ("update", "local", "wordy", "--container-number", "2", "--dry-run", "--dry-run-format", "json")
    assert len(json.loads(heron(*words).out)["packing_plan"]["container_plans"]) == 2
    assert wordy.asked == []


def test_update_that_changes_nothing_asks_nobody(heron: Heron, wordy: FakeTopology) -> None:
    result = heron("update", "local", "wordy", "--component-parallelism", "count:2")
    assert result.code == 0 and "nothing changed" in result.out
    assert wordy.asked == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to change"),
        (("--component-parallelism", "count"), "is not NAME:N"),
        (("--component-parallelism", "count:0"), "is not NAME:N"),
        (("--component-parallelism", "coun:2"), "did you mean 'count'?"),
        (("--component-parallelism", "count:2", "--component-parallelism", "count:3"), "is given both 2 and 3"),
        (("--runtime-config", "a:1", "--container-number", "2"), "cannot be used with"),
        (("--runtime-config", "a"), "does not have the form [component:]key:value"),
        (("--runtime-config", "coun:limit:1"), "did you mean 'count'?"),
    ],
)
def test_wrong_updates(heron: Heron, wordy: FakeTopology, words: tuple[str, ...], said: str) -> None:
    result = heron("update", "local", "wordy", *words)
    assert (result.code, said in result.err) == (2, True), result.err
    assert wordy.asked == []


def test_runtime_config(heron: Heron, wordy: FakeTopology) -> None:
    result = heron("update", "local", "wordy", "--runtime-config", "count:limit:10", "--runtime-config", "a.b:x:y")
    assert result.code == 0
    assert "set limit of component 'count' to 10" in result.out and "set a.b of the topology to x:y" in result.out
    body = wordy.asked[-1][1]
    assert isinstance(body, control_pb2.RuntimeConfig)
    assert list(body.settings) == ["count:limit:10", "a.b:x:y"]


@given(st.text(min_size=1, max_size=30))
def test_settings_split_or_are_refused(text: str) -> None:
    try:
        component, key, value = split_setting(text, ["count"])
    except ConfigError:
        return
    assert key and ":" not in key
    assert text == (f"{component}:" if component else "") + f"{key}:{value}"


def test_a_key_is_replaced_not_repeated() -> None:
    config = word_count().bolts[0].comp.config
    set_key(config, TOPOLOGY_COMPONENT_PARALLELISM, "7")
    set_key(config, "other", "1")
    assert [(item.key, item.value) for item in config.kvs] == [(TOPOLOGY_COMPONENT_PARALLELISM, "7"), ("other", "1")]


def test_kill_asks_the_scheduler_and_removes_the_nodes(heron: Heron, wordy: FakeTopology) -> None:
    shown = json.loads(heron("kill", "local", "wordy", "--json").out)
    assert shown["killed"] and shown["by_scheduler"]
    assert [name for name, _ in wordy.asked] == ["kill_topology"]
    assert heron("kill", "local", "wordy").code == 3


# ---- stop -----------------------------------------------------------------------------------


def test_kill_says_that_it_waits_for_another_command(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(records, "TOLD_AFTER_S", 0.05)
    with ExitStack() as other:
        session = Session(Target.parse("local"))
        other.enter_context(closing(session.state))
        other.enter_context(session.operation("wordy", doing=Doing.CLEANING_UP))
        monkeypatch.setattr(kill, "warn", lambda text: (said.append(text), other.close()))
        assert heron("kill", "local", "wordy").code == 0
    what = "topology 'wordy' is being removed by the submit that started it"
    assert said == [f"{what}; waiting up to 60 s for it"]


def test_kill_says_that_it_waits_for_a_scheduler_that_does_not_answer(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takedown, "ASK_AGAIN_S", 0.2)
    wordy.on_ask = lambda name: time.sleep(0.5 if len(wordy.asked) == 1 else 0.0)
    result = heron("kill", "local", "wordy", "--timeout", "20")
    assert result.code == 0 and "Successfully killed topology 'wordy'" in result.out
    told = "waiting for the scheduler of 'wordy', which has not yet ended all of its processes; in 20 s this command"
    assert result.err.count(told) == 1


def test_a_drain_in_which_tuples_fail_kills_nothing(heron: Heron, wordy: FakeTopology) -> None:
    def work(name: str) -> None:
        if name == "set_state":
            wordy.status.lifecycle, wordy.status.drained = control_pb2.LIFE_PAUSED, True
            wordy.status.tasks[0].failed = 3

    wordy.on_ask = work
    result = heron("stop", "local", "wordy", "--drain")
    assert result.code == 1 and "3 tuples of 'wordy' failed while it was drained" in result.err
    assert "nothing was killed, and its spouts are active again" in result.err
    states = [(body.active, body.end_input) for name, body in wordy.asked if name == "set_state"]  # type: ignore[attr-defined]
    assert states == [(False, False), (True, False)]
    assert "kill_topology" not in [name for name, _ in wordy.asked]


def test_a_new_master_is_told_once_more_that_the_input_has_ended(heron: Heron, wordy: FakeTopology) -> None:
    ends = 0

    def work(name: str) -> None:
        nonlocal ends
        if name == "set_state":
            wordy.status.lifecycle, wordy.status.drained = control_pb2.LIFE_PAUSED, True
            ends += wordy.asked[-1][1].end_input  # type: ignore[attr-defined]
        if ends == 2:  # the first one was forgotten
            wordy.status.lifecycle = control_pb2.LIFE_FINISHED

    wordy.on_ask = work
    result = heron("stop", "local", "wordy", "--drain", "--json")
    assert result.code == 0 and json.loads(result.out)["complete"]
    assert wordy.asked[-1][0] == "kill_topology"


def test_a_refused_deactivation_stops_nothing(heron: Heron, wordy: FakeTopology) -> None:
    wordy.answers["set_state"] = RpcError("an update is under way; try again when it is done")
    result = heron("stop", "local", "wordy", "--drain")
    assert result.code == 1 and "an update is under way" in result.err and "nothing was killed" in result.err
    wordy.status.lifecycle = control_pb2.LIFE_STARTING
    refused = heron("stop", "local", "wordy", "--drain")
    assert refused.code == 1 and "'wordy' is STARTING" in refused.err
    assert "kill_topology" not in [name for name, _ in wordy.asked]


def test_the_value_of_a_topologys_key_may_be_an_address() -> None:
    assert split_setting("broker:amqp://host:5672", ["count"]) == ("", "broker", "amqp://host:5672")
