"""`compare_peers.py --rates` and `--slow`: sources, steps, figures from result files, the table; one run by hand."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from heronpy.loadtest.watch import CpuLook

SCRIPTS = Path(__file__).parents[2] / "scripts"
VERDICT = {"text": "quiet machine", "loop_s_per_million": 0.05}


@pytest.fixture
def peer_rates(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import peer_rates

    return peer_rates


def test_a_paced_source_hands_over_all_that_is_due(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS / "peers"))
    import pacing

    now = 5_000_000_000
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    pace, arrivals = pacing.Pace(1000, 2.0), pacing.Arrivals()
    assert [number for number, _, _ in pace.take()] == [0] and pace.take() == []
    now += 3_500_000
    late = pace.take()
    assert [(number, now - due) for number, due, _ in late] == [(1, 2_500_000), (2, 1_500_000), (3, 500_000)]
    assert pace.due_ns() - now == 500_000
    now += 10_000_000_000
    assert len(pace.take()) == pacing.BATCH
    while found := pace.take():
        late += found
    assert pace.done() and pace.sent == 2000
    for number, due, _ in late:
        arrivals.take(number, due)
    arrivals.write(tmp_path / "r", "-0")
    [path] = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["received"] == len(late)
    assert np.fromfile(path.with_suffix(".latencies"), dtype=np.int64)[0] == now - late[0][1]


def write_result(folder: Path, sent: int, received: list[int]) -> None:
    (folder / "result.source.json").write_text(json.dumps({"started_at": 10.0, "ended_at": 16.0, "sent": sent}))
    for place, part in enumerate((received[::2], received[1::2])):
        path = folder / f"result.sink-{place}.json"
        path.write_text(json.dumps({"received": len(part), "numbers": sum(part), "last_at": 16.0}))
        np.full(len(part), 2_000_000, dtype=np.int64).tofile(path.with_suffix(".latencies"))


def test_figures_are_of_the_steady_part_and_of_all_processes(peer_rates: ModuleType, tmp_path: Path) -> None:
    write_result(tmp_path, 6000, list(range(6000)))
    looks = [CpuLook(at, {"a": at * 0.1, "b": at * 0.05}, {}, 0, 0, round(at * 3000)) for at in (9.0, 12.5, 15.5, 20.0)]
    sample = peer_rates.sample_of(tmp_path, looks)
    assert (sample.rate, sample.p50_ms, sample.p999_ms) == (1000.0, 2.0, 2.0)
    assert sample.cores == pytest.approx(0.15) and sample.switches == pytest.approx(3.0)


@pytest.mark.parametrize("received", [list(range(99)), [*range(99), 98], [*range(100), 99]])
def test_tuples_that_do_not_arrive_once_are_no_figure(
    peer_rates: ModuleType, tmp_path: Path, received: list[int]
) -> None:
    write_result(tmp_path, 100, received)
    with pytest.raises(peer_rates.Unavailable, match="of 100 tuples arrived, or some arrived more than once"):
        peer_rates.sample_of(tmp_path, [])


def test_what_was_not_measured_gets_a_line_and_no_figure(peer_rates: ModuleType) -> None:
    def broken(rate: float, seconds: float) -> Any:
        raise peer_rates.Unavailable("cannot be installed: no such version")

    def made(cores: float) -> Any:
        return lambda rate, seconds: peer_rates.Sample(rate, cores, 2.5, 0.2, 1.5, 9.0)

    found = [
        peer_rates.RateContender("pipe", "by hand", made(0.1)),
        peer_rates.RateContender("heronpy", "heronpy", made(0.25), "0.1.0"),
        peer_rates.RateContender("other", "Other, 2 processes", broken, "9"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peer_rates.run, "calibrate", lambda: None)
        patch.setattr(peer_rates.run, "noise_of", lambda calibrations, others: VERDICT)
        verdict = peer_rates.compete(found, (1000.0, 5000.0), 3.0, 2)
    table = peer_rates.markdown(found, (1000.0, 5000.0), verdict, 2, 3.0)
    rows = [line for line in table.splitlines() if line.startswith("| 1,000") or line.startswith("| 5,000")]
    assert len(rows) == 4
    assert rows[1] == "| 1,000 | heronpy | 0.1.0 | 1,000 | 0.25 | 2.5x | 2.50 | 0.20 ms | 1.50 ms | 9.00 ms |"
    assert table.endswith("Not measured: Other, 2 processes: cannot be installed: no such version\n")
    [pipe, _, other] = peer_rates.as_json(found, verdict, 3.0)["contenders"]
    assert len(pipe["rates"]["5000"]) == 2 and not other["rates"] and other["reason"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--rates", "100,max"], "--rates needs rates above 0"),
        (["--rates", "fast"], "'fast' is not a rate"),
        (["--rates", "100", "--seconds", "1"], "--seconds must be at least 2"),
        (["--rates", "100", "--only", "bytewx"], "there is no contender 'bytewx'"),
        (["--slow", "--rates", "100"], "leave out --rates or --slow"),
    ],
)
def test_mistakes_are_sentences(tmp_path: Path, words: list[str], sentence: str) -> None:
    command = [sys.executable, str(SCRIPTS / "compare_peers.py"), "--cache", str(tmp_path), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and sentence in done.stderr


def test_a_slow_step_takes_a_tenth_of_the_rate_and_a_stop_counts_up_to_the_end_of_the_slow_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.syspath_prepend(str(SCRIPTS / "peers"))
    import peer_slow
    import serving

    now = 1_000_000_000
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    monkeypatch.setattr(time, "monotonic", lambda: now / 1e9)

    def sleep(seconds: float) -> None:
        nonlocal now
        now += round(seconds * 1e9)

    monkeypatch.setattr(time, "sleep", sleep)
    prefix, emits = tmp_path / "result", serving.Emits(2.0, tmp_path / "result")
    for number in range(serving.STEPS):
        with pytest.raises(peer_slow.Unavailable, match=f"{number} of 4 steps"):
            peer_slow.figures_of(tmp_path, 0)
        step, now = serving.Step(2.0, prefix, number, slow=not number), 1_000_000_000
        while not step.fast_at:
            step.serve(now - 3_000_000)
    now = 1_500_000_000
    for wait_s in (0.0, 0.005, 0.25, 9.0):
        now += round(wait_s * 1e9)
        emits.note()
    assert emits.done
    figures = peer_slow.figures_of(tmp_path, 7)
    # The last stop began at 1.755 s; the slow time ended at 3.0 s.
    assert figures.stop_s == pytest.approx(1.245, abs=0.002) and figures.share == pytest.approx(1.0, abs=0.002)
    assert (figures.p50_ms, figures.p99_ms, figures.uss_bytes) == (3.0, 3.0, 7)


@pytest.mark.slow
def test_the_pipe_by_hand_runs_and_is_measured(peer_rates: ModuleType, tmp_path: Path) -> None:
    pipe = peer_rates.contenders(tmp_path)[0]
    sample = pipe.run(500.0, 2.0)
    assert pipe.name == peer_rates.PIPE and sample.rate > 0
    # Three processes that sleep and wake up for about each tuple.
    assert sample.switches > 0.5 and sample.cores > 0 and 0 < sample.p50_ms <= sample.p99_ms <= sample.p999_ms
