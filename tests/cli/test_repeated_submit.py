"""What a submit does with a topology of its name that is starting, running or dead."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from heronpy.batch.topology import run_topology
from heronpy.clusters.records import Doing
from heronpy.clusters.session import Session
from heronpy.clusters.target import Target
from heronpy.common.errors import NodeExistsError
from heronpy.launching import on_batch
from heronpy.launching.on_batch import remove_dead
from heronpy.launching.submission import refuse_taken
from heronpy.plan.launch import LAUNCH_VARIABLE
from heronpy.statemgr import paths
from tests.cli.conftest import FakeTopology, word_count


@pytest.fixture
def dead(wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch) -> FakeTopology:
    """wordy, a batch topology of this user whose processes were all killed."""
    monkeypatch.setattr(on_batch, "unix_user", lambda: wordy.record.submission_user)
    made = run_topology(word_count(), "/runs/wordy/1", 2)
    wordy.state.set(paths.topology("wordy"), made.SerializeToString())
    wordy.state.delete(paths.tmaster("wordy"))
    wordy.state.delete(paths.scheduler("wordy"))
    return wordy


@pytest.fixture
def session(dead: FakeTopology) -> Iterator[Session]:
    found = Session(Target.parse("local"))
    yield found
    found.state.close()


def test_a_topology_that_another_command_starts_is_not_said_to_be_dead(session: Session, dead: FakeTopology) -> None:
    dead.state.create(paths.submission("wordy"), b"", ephemeral=True)
    with pytest.raises(NodeExistsError, match="'wordy' in cluster local is being started by another command; wait"):
        refuse_taken(session, "wordy")
    dead.state.delete(paths.submission("wordy"))
    with pytest.raises(NodeExistsError, match="dead but not removed; submit again after heron kill local wordy"):
        refuse_taken(session, "wordy")


def test_a_topology_that_another_command_removes_is_not_said_to_be_dead(session: Session) -> None:
    other = Session(Target.parse("local"))
    with closing(other.state), other.operation("wordy", doing=Doing.FINISHING):
        with pytest.raises(NodeExistsError, match="has ended and is being removed by the submit that waited for it"):
            refuse_taken(session, "wordy")


def test_a_dead_batch_topology_is_removed_before_its_command_is_repeated(session: Session) -> None:
    said: list[str] = []
    remove_dead(session, "wordy", said.append)
    assert said == ["no process of topology 'wordy' was running; its remains were removed"]
    assert session.record("wordy") is None
    remove_dead(session, "wordy", said.append)
    refuse_taken(session, "wordy")
    assert len(said) == 1


@pytest.mark.parametrize("why", ["submit", "scheduler", "master", "process", "host", "user", "engine", "stream"])
def test_a_topology_that_may_work_is_not_removed(
    session: Session, dead: FakeTopology, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Nor is a stream, which does not go on by itself."""
    said: list[str] = []
    child = None
    match why:
        case "stream":
            dead.state.set(paths.topology("wordy"), word_count().SerializeToString())
        case "host":
            dead.record.host = "other 1 2"
            dead.state.set(paths.execution_state("wordy"), dead.record.SerializeToString())
            assert session.elsewhere(dead.record)
        case "user":
            dead.record.submission_user = "somebody"
            dead.state.set(paths.execution_state("wordy"), dead.record.SerializeToString())
            monkeypatch.setattr(on_batch, "unix_user", lambda: "me")
        case "engine":
            monkeypatch.setattr(session, "engine_of", lambda name: "slurm")
        case "process":
            words = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
            child = subprocess.Popen(
                words,
                env={LAUNCH_VARIABLE: dead.record.launch_file},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # a process with a terminal is a person's
            )
            assert child.stdout is not None and child.stdout.readline()
        case _:
            node = {"submit": paths.submission, "scheduler": paths.scheduler, "master": paths.tmaster}[why]
            dead.state.create(node("wordy"), b"", ephemeral=True)
    remove_dead(session, "wordy", said.append)
    assert not said and session.record("wordy") is not None
    if child is not None:
        assert child.poll() is None
        child.communicate(timeout=10)
