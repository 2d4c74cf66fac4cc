"""A submit that fails after its scheduler may have put jobs on an engine, which is a fake."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from heronpy.cli import exits
from heronpy.clusters import engines, takedown
from heronpy.engines.contract import Ended
from heronpy.launching import on_engine, submission
from tests.cli.conftest import Heron
from tests.support.fake_engine import FakeEngine, running
from tests.support.fish import __file__ as FISH


@pytest.mark.parametrize("stubborn", [True, False])
def test_a_failed_submit_keeps_the_record_of_what_may_still_run(
    heron: Heron, home: Path, tmp_path: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    """A job that does not end, or an engine that does not answer: `heron kill` finishes."""
    engine = FakeEngine([running(1)], stubborn=(1,))
    engine.away = 0 if stubborn else 10_000
    monkeypatch.setattr(engines, "engine_of", lambda submitted: engine)
    monkeypatch.setattr(takedown, "ENGINE_END_S", 0.1)
    monkeypatch.setattr(submission, "spawn_scheduler", lambda spec, launch: subprocess.Popen(["false"]))
    monkeypatch.setattr(on_engine, "settle", lambda topology, resolved, state: "slurm")
    monkeypatch.setattr(on_engine, "check_engine", lambda *given: None)
    program = tmp_path / "fish.py"
    program.write_text(Path(FISH).read_text())
    failed = heron("submit", "local", str(program), "--config-property", "heron.engine.kind=slurm")
    assert failed.code == exits.FAILED and "ended with code 1" in failed.err, failed
    what = "container 1 (7_1 on n1) may" if stubborn else "containers on engine slurm may"
    assert f"topology 'fish' is not removed: {what} still be running" in failed.err
    assert "look for it with: squeue of 7; run: heron kill local fish" in failed.err
    again = heron("submit", "local", str(program), "--config-property", "heron.engine.kind=slurm")
    assert again.code == exits.EXISTS and "submit again after heron kill local fish" in again.err
    engine.away, engine.stubborn = 0, ()
    assert heron("kill", "local", "fish").code == exits.OK
    assert all(one.ended is Ended.CONFIRMED for one in engine.seen)
    assert json.loads(heron("list", "local", "--json").out) == []
