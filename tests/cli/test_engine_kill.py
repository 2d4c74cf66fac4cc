"""`heron kill` of a topology that an engine runs; the engine and the masters are fakes."""

from __future__ import annotations

import pytest

from heronpy.cli import exits
from heronpy.clusters import engines, takedown
from heronpy.clusters.session import Session
from heronpy.clusters.target import Target
from heronpy.engines.contract import (
    Ended,
    EngineAwayError,
)
from heronpy.proto import control_pb2
from heronpy.statemgr import paths
from tests.cli.conftest import FakeTopology, Heron
from tests.support.fake_engine import FakeEngine, running


def test_all_containers_are_ended_without_a_scheduler() -> None:
    engine = FakeEngine([running(1), running(2), running(3, Ended.CONFIRMED)])
    engine.away = 1
    assert engines.end_all(engine, 5.0, sleep=lambda _: None) == engines.Ends(2, hosts=("n1", "n2"))
    assert engine.cancelled == ["7_1", "7_2"]


def test_who_waits_for_an_engine_is_told_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "QUIET_S", 0.0)
    said, engine = list[str](), FakeEngine([running(1)], stubborn=(1,))
    engines.end_all(engine, 0.1, waits=said.append)
    assert said == ["waiting for container 1 (7_1 on n1) to end"]
    engine.away = 10_000
    with pytest.raises(EngineAwayError):
        engines.end_all(engine, 0.1, waits=said.append)
    assert said[1:] == ["waiting for the engine, which does not answer"]


def test_what_remains_is_named() -> None:
    engine = FakeEngine([running(1), running(2, Ended.UNCONFIRMED)], stubborn=(1, 2))
    ends = engines.end_all(engine, 0.0, sleep=lambda _: None)
    assert ends.left == ("container 1 (7_1 on n1)",)
    assert ends.unconfirmed == ("container 2 (7_2 on n2)",)


def test_kill_without_a_scheduler_asks_the_engine(
    placed: FakeTopology, heron: Heron, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed.state.delete(paths.scheduler("wordy"))
    engine = FakeEngine([running(1)], stubborn=(1,))
    monkeypatch.setattr(engines, "engine_of", lambda submitted: engine)
    stays = heron("kill", "local", "wordy", "--timeout", "0.1")
    assert stays.code == exits.PARTIAL and "container 1 (7_1 on n1) may still be running; look for it with" in stays.err
    engine.away = 10_000
    stays = heron("kill", "local", "wordy", "--timeout", "0.1")
    assert stays.code == exits.PARTIAL and "the engine does not answer: the engine sleeps" in stays.err
    engine.away, engine.stubborn = 0, ()
    killed = heron("kill", "local", "wordy")
    assert killed.code == exits.OK and "1 container" in killed.out, killed
    assert "its folder remains on its host (n1) until your next container on that host removes the folder" in killed.out
    assert placed.state.get(paths.execution_state("wordy")) is None


def test_kill_names_what_a_silent_host_may_still_run(
    placed: FakeTopology, heron: Heron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a scheduler; the engine has given the host up."""
    placed.state.delete(paths.scheduler("wordy"))
    engine = FakeEngine([running(1, Ended.UNCONFIRMED)], stubborn=(1,))
    monkeypatch.setattr(engines, "engine_of", lambda submitted: engine)
    stays = heron("kill", "local", "wordy")
    assert stays.code == exits.PARTIAL and "container 1 (7_1 on n1) may still be running" in stays.err, stays
    assert placed.state.get(paths.execution_state("wordy")) is not None
    forced = heron("kill", "local", "wordy", "--force")
    assert forced.code == exits.OK and "the end of container 1 (7_1 on n1) could not be confirmed" in forced.err
    assert placed.state.get(paths.execution_state("wordy")) is None


def test_kill_waits_for_the_engine_and_finishes_the_next_time(
    placed: FakeTopology, heron: Heron, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "engine_of", lambda submitted: FakeEngine())
    placed.answers["kill_topology"] = control_pb2.KillUnderWay(
        left=["container 1, submission 2 (812_1 on n1)"], engine_away="squeue has not answered within 10 s"
    )
    stays = heron("kill", "local", "wordy", "--timeout", "0.3")
    assert stays.code == exits.PARTIAL, stays
    assert "waiting for container 1, submission 2 (812_1 on n1) to end; the engine does not answer" in stays.err
    for words in ("look for it with: squeue of 7", "the scheduler continues to end the containers", "with --force"):
        assert words in stays.err
    for path in (paths.execution_state, paths.scheduler, paths.launch):
        assert placed.state.get(path("wordy")) is not None, "what the next kill needs"
    placed.answers["kill_topology"] = control_pb2.Ok(text="killed")
    assert heron("kill", "local", "wordy").code == exits.OK
    assert not placed.asked[-1][1].force  # type: ignore[attr-defined]


def test_a_kill_by_force_tells_the_scheduler_so_in_the_end(
    placed: FakeTopology, heron: Heron, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "engine_of", lambda submitted: FakeEngine())
    placed.answers["kill_topology"] = control_pb2.KillUnderWay(left=["container 1, submission 2 (812_1)"])

    def change(name: str) -> None:
        if placed.asked[-1][1].force:  # type: ignore[attr-defined]
            placed.answers["kill_topology"] = control_pb2.Ok(text="killed")

    placed.on_ask = change
    killed = heron("kill", "local", "wordy", "--timeout", "0.3", "--force")
    assert killed.code == exits.OK and "the end of container 1, submission 2" in killed.err, killed


def test_the_limit_of_a_kill_follows_from_the_engine(placed: FakeTopology) -> None:
    session = Session(Target("local", None, None))
    times = engines.lease_times(session.submitted("wordy"))  # type: ignore[arg-type]
    assert takedown.limit_s(session, "wordy") == times.stop_grace_s + times.lost_s + takedown.ENGINE_SLACK_S
    placed.state.delete(paths.launch("wordy"))
    assert takedown.limit_s(session, "wordy") == takedown.LIMIT_S
