"""An update whose answer is lost: what the stored plans say about it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from heronpy.cli import exits
from heronpy.clusters.session import Session
from heronpy.clusters.update_outcome import Outcome, outcome_of
from heronpy.common.errors import LostReplyError, RpcError
from heronpy.net import rpc
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from tests.cli.conftest import FakeTopology, Heron, packing
from tests.support.wires import new_endpoint

SET = ("update", "local", "wordy", "--runtime-config", "limit:10")
SCALE = ("update", "local", "wordy", "--component-parallelism", "count:3")


def plan(version: int, *counts: int) -> plan_pb2.PackingPlan:
    found = packing()
    found.version = version
    for task in counts:
        found.containers[0].instances.add(component="count", task_id=task, component_index=task - 2)
    return found


def intent(old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan) -> plan_pb2.UpdateIntent:
    return plan_pb2.UpdateIntent(old_packing_plan=old, new_packing_plan=new)


OLD, NEW = plan(1), plan(1, 4)


@pytest.mark.parametrize(
    ("stored", "found", "outcome"),
    [
        (plan(1), None, Outcome.NOT_BEGUN),
        (plan(1), intent(OLD, plan(3, 4)), Outcome.UNDER_WAY),
        (plan(2, 4), intent(OLD, plan(3, 4)), Outcome.UNDER_WAY),
        (plan(3, 4), intent(OLD, plan(3, 4)), Outcome.UNDER_WAY),
        (plan(2, 4), None, Outcome.UNDER_WAY),
        (plan(3, 4), None, Outcome.DONE),
        (plan(3), None, Outcome.ROLLED_BACK),
        (plan(3, 4, 5), None, Outcome.OVERTAKEN),
        (plan(5, 4), None, Outcome.OVERTAKEN),
        (plan(1), intent(OLD, plan(3, 4, 5)), Outcome.OVERTAKEN),
        (plan(3), intent(plan(3), plan(5, 4)), Outcome.OVERTAKEN),
    ],
)
def test_the_stored_plans_tell(
    stored: plan_pb2.PackingPlan, found: plan_pb2.UpdateIntent | None, outcome: Outcome
) -> None:
    assert outcome_of(OLD, NEW, stored, found) is outcome


def losing(monkeypatch: pytest.MonkeyPatch, error: Exception, meanwhile: Any = None) -> list[Any]:
    """The first answer to an update is lost, and something happens meanwhile; later ones arrive."""
    asked: list[Any] = []
    original, turns = Session.ask, itertools.count()

    def ask(self: Session, name: str, body: Any, timeout_s: float = 5.0) -> Any:
        if isinstance(body, (control_pb2.UpdateTopology, control_pb2.RuntimeConfig)):
            asked.append(body.expected_version if isinstance(body, control_pb2.UpdateTopology) else body.settings)
            if next(turns) == 0:
                if meanwhile is not None:
                    meanwhile(body)
                raise error
        return original(self, name, body, timeout_s)

    monkeypatch.setattr(Session, "ask", ask)
    return asked


LOST = LostReplyError("the topology master of 'wordy' ended before it answered")


def test_what_was_not_begun_is_asked_for_again(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    wordy.answers["update_topology"] = control_pb2.UpdateReply(added=[4], plan_version=4)
    asked = losing(monkeypatch, LOST)
    result = heron(*SCALE)
    assert result.code == 0 and "1 task added" in result.out and "checking the outcome" in result.err
    assert asked == [1, 1]


@pytest.mark.parametrize("error", [LOST, RpcError("the topology master of wordy is stopping; try again")])
def test_what_a_successor_finished_is_reported_as_done(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def finished(body: control_pb2.UpdateTopology) -> None:
        done = plan_pb2.PackingPlan()
        done.CopyFrom(body.packing_plan)
        done.version = 3
        wordy.state.set(paths.packing_plan("wordy"), done.SerializeToString())

    def under_way(body: control_pb2.UpdateTopology) -> None:
        wordy.state.set(paths.update_intent("wordy"), intent(OLD, body.packing_plan).SerializeToString())
        looks = itertools.count()
        original = Session.packing_plan

        def packing_plan(self: Session, name: str) -> plan_pb2.PackingPlan:
            if next(looks) == 3:
                finished(body)
                wordy.state.delete(paths.update_intent("wordy"))
            return original(self, name)

        monkeypatch.setattr(Session, "packing_plan", packing_plan)

    asked = losing(monkeypatch, error, under_way)
    result = heron(*SCALE)
    assert result.code == 0, result.err
    assert "container_1_count_4" in result.out and "1 task added, 0 removed" in result.out
    assert asked == [1]


def test_what_was_rolled_back_fails_and_says_so(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rolled_back(body: control_pb2.UpdateTopology) -> None:
        wordy.state.set(paths.packing_plan("wordy"), plan(3).SerializeToString())

    losing(monkeypatch, LOST, rolled_back)
    result = heron(*SCALE)
    assert result.code == 1
    assert "the update was rolled back and the topology runs as before" in result.err
    assert "heron logs local wordy tmaster" in result.err


def test_settings_are_sent_again_to_the_successor(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = losing(monkeypatch, LOST)
    result = heron(*SET)
    assert result.code == 0 and result.out.endswith("Successfully updated topology 'wordy'\n")
    assert result.err == "the topology master of 'wordy' ended before it answered; sending the request again\n"
    assert asked == [["limit:10"]] * 2 and wordy.asked[-1][1] == control_pb2.RuntimeConfig(settings=["limit:10"])


def test_settings_are_not_sent_to_another_topology_of_that_name(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(body: Any) -> None:
        found = wordy.state.get(paths.execution_state("wordy"))
        assert found is not None
        record = plan_pb2.ExecutionState.FromString(found[0])
        record.topology_id = "another"
        wordy.state.set(paths.execution_state("wordy"), record.SerializeToString())

    monkeypatch.setattr(Session, "check_endpoint", lambda *_: None)  # stands for a socket of the other one
    asked = losing(monkeypatch, LOST, replaced)
    result = heron(*SET)
    assert (result.code, len(asked)) == (exits.NOT_FOUND, 1)
    assert "another topology with this name was submitted; its settings were not changed" in result.err


def test_settings_without_a_successor_end_in_one_sentence(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = losing(monkeypatch, LOST, lambda _: wordy.state.delete(paths.tmaster("wordy")))
    result = heron(*SET, "--timeout", "1")
    assert (result.code, len(asked)) == (exits.TIMED_OUT, 1)
    assert "may or may not have been changed" in result.err and "run this command again, which is safe" in result.err


def test_a_refusal_stays_one(heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch) -> None:
    losing(monkeypatch, RpcError("restart of all containers of wordy is running; try again when it is done"))
    result = heron(*SCALE)
    assert (result.code, "is running; try again" in result.err) == (1, True)


def test_a_master_that_ends_while_it_is_asked_ends_the_waiting(
    heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topology is removed between the look for its master and the connection to it."""
    monkeypatch.setattr(rpc, "LOOK_S", 0.05)
    nowhere = plan_pb2.TmasterLocation(topology="wordy", endpoint=new_endpoint("wordy-1"))
    wordy.state.delete(paths.tmaster("wordy"))
    wordy.state.create(paths.tmaster("wordy"), nowhere.SerializeToString(), ephemeral=True)
    original = Session.keys

    def removed(self: Session, record: plan_pb2.ExecutionState) -> Any:
        keys = original(self, record)
        for path in (paths.tmaster("wordy"), paths.execution_state("wordy")):
            wordy.state.delete(path)
        return keys

    monkeypatch.setattr(Session, "keys", removed)
    result = heron(*SCALE, "--timeout", "60")
    assert result.code == 3 and "has no topology 'wordy' now" in result.err, result.err
    assert "ended before it answered" in result.err and wordy.asked == []
