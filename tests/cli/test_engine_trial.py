"""The throw-away container of `heron cluster check`, which a thread runs here."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heronpy.clusters import trial, trial_container
from heronpy.engines.contract import EngineFullError, EnginePhase, Request, Untried
from tests.support.fake_engine import FakeEngine, running


class Host(FakeEngine):
    """Runs the container of a trial in a thread, with the real program."""

    def __init__(self, change: Callable[[dict[str, Any]], None] = lambda asked: None, starts_s: float = 0.0) -> None:
        super().__init__()
        self._change = change
        #: How long its host prepares it; it calls as long after its start.
        self._starts_s = starts_s

    def submit(self, requests: Sequence[Request]) -> dict[tuple[int, int], str]:
        [one] = requests
        asked = json.loads(one.token)
        self._change(asked)
        self.seen = [replace(running(0), phase=EnginePhase.STARTING) if self._starts_s else running(0)]

        def call() -> None:
            time.sleep(self._starts_s)
            self.seen = [running(0)]
            time.sleep(self._starts_s)
            with socket.create_connection(tuple(asked["addresses"][0])) as link:
                link.sendall(json.dumps(trial_container.report(asked)).encode() + b"\n")

        threading.Thread(target=call, daemon=True).start()
        return {(0, 1): "7_0"}


def test_a_trial_tells_what_the_host_is_like_and_leaves_nothing(tmp_path: Path) -> None:
    engine = Host()
    found = trial.Trial(engine, "heron-check-1", [tmp_path], str(tmp_path / "home"), "").run(["127.0.0.1"])
    assert all(one.ok for one in found) and [one.what for one in found] == [
        "container",
        "python there",
        "heronpy there",
    ]
    assert engine.cancelled == ["7_0"] and list(tmp_path.iterdir()) == []


def test_a_trial_finds_another_folder_and_ignores_strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(asked: dict[str, Any]) -> None:
        asked["shared"] = dict.fromkeys(asked["shared"], "another nonce")

    [*_, wrong] = trial.Trial(Host(elsewhere), "t", [tmp_path], "", "").run(["127.0.0.1"])
    assert (wrong.ok, "is not the same folder" in wrong.detail) == (False, True)
    monkeypatch.setattr(trial, "TRIAL_S", 0.5)
    [late] = trial.Trial(Host(lambda asked: asked.update(secret="x")), "t", [], "", "").run(["127.0.0.1"])
    assert not late.ok and "it is running, but did not report" in late.detail


def test_what_its_host_prepares_for_long_has_its_time_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM starts first where Spark runs the containers, which took the time that the container was given."""
    monkeypatch.setattr(trial, "TRIAL_S", 1.5)
    monkeypatch.setattr(trial, "LIST_EVERY_S", 0.05)
    assert all(one.ok for one in trial.Trial(Host(starts_s=0.8), "t", [], "", "").run(["127.0.0.1"]))


@pytest.mark.parametrize(("hopeless", "ok"), [(False, True), (True, False)])
def test_a_trial_in_a_full_queue_waits_and_one_that_never_starts_fails(
    hopeless: bool, ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "TRIAL_S", 0.5)

    class Full(FakeEngine):
        def submit(self, requests: Sequence[Request]) -> dict[tuple[int, int], str]:
            self.seen = [replace(running(0), phase=EnginePhase.QUEUED, host="", hopeless=hopeless)]
            return {(0, 1): "7_0"}

    engine = Full()
    [found] = trial.Trial(engine, "t", [], "", "").run(["127.0.0.1"])
    assert found.ok is ok and "Resources" in found.detail and found.fix
    assert found.untried is (Untried.WAITS if ok else None)
    assert engine.cancelled == ["7_0"]


def test_a_trial_beyond_a_limit_of_submissions_waits() -> None:
    class Full(FakeEngine):
        def submit(self, requests: Sequence[Request]) -> dict[tuple[int, int], str]:
            raise EngineFullError("sbatch refuses: QOSMaxSubmitJobPerUserLimit")

    [found] = trial.Trial(Full(), "t", [], "", "").run(["127.0.0.1"])
    assert (found.untried, found.detail) == (Untried.WAITS, "sbatch refuses: QOSMaxSubmitJobPerUserLimit")


@pytest.mark.parametrize(
    ("code", "words"),
    [(trial_container.UNREACHED, "cannot reach any address"), (127, "cannot be run"), (1, "before it reported")],
)
def test_the_end_of_a_trial_is_explained(code: int, words: str) -> None:
    found = trial.ended(code, "FAILED", "n1")
    assert words in found.detail and not found.ok and found.fix


def test_reports_of_other_releases_and_of_nonsense_fail() -> None:
    old = trial.judge({"host": "n1", "python": [3, 6, 8], "release": "0.0.1"}, 1.0, "x")
    assert [one.what for one in old if not one.ok] == ["python there", "heronpy there"]
    assert len([one for one in trial.judge({"python": "x", "shared": 7}, 1.0, "x") if not one.ok]) == 2
