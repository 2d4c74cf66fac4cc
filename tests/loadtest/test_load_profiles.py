"""Every profile runs for a moment on real processes, with exact counts; so do `startup` and `profile`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from heronpy.cli.main import main
from heronpy.loadtest import control_plane, page, profiles, results, run, startup
from heronpy.loadtest.cluster import Cluster, cluster, submitted
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.rates import run_rates
from heronpy.loadtest.run import Calibration, run_once, run_profile
from heronpy.proto import control_pb2
from tests.support.waiting import wait_for

#: Heartbeats decide how soon a topology knows that it has finished.
QUICK = ["heron.stmgr.heartbeat_interval_s=0.1", "heron.instance.heartbeat_interval_s=0.1"]
#: Small counts; what a profile promises beyond exactness needs longer runs.
SMALL: dict[str, tuple[dict[str, Any], list[str]]] = {
    "word_count": ({"tuples": 25_003}, []),
    "aggregate": ({"tuples": 15_001}, ["hold=500", "lines=1000"]),
    "sentences": ({"tuples": 3_001}, []),
    "passthrough": ({"tuples": 500, "rate": 2000.0}, []),
    "wide": ({"tuples": 20_001}, ["spouts=3", "counters=3"]),
    "deep": ({"tuples": 300, "rate": 1000.0}, ["relays=2"]),
    "fan_out": ({"tuples": 2_000}, []),
    "big_tuples": ({"tuples": 60}, []),
    "slow_bolt": ({"duration_s": 2.0}, ["fast_s=1.0"]),
    "stall": ({"duration_s": 2.5}, ["stall_at_s=0.5", "stall_s=0.5"]),
    "burst": ({"duration_s": 0.6, "rate": 1000.0}, ["burst_at_s=0.2", "burst_s=0.2"]),
    "skew": ({"tuples": 30_000}, []),
}
#: They take their time by their shape.
LONG = {"burst", "deep", "fan_out", "skew", "slow_bolt", "stall", "wide"}
NOT_JUDGED = ("memory flat", "burst", "rate", "culprit", "no toggling", "recovery")


@pytest.fixture
def where(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster of its own, and a calibration that costs nothing."""
    monkeypatch.setattr(run, "calibrate", lambda rounds=1: Calibration(0.04, 0.04))
    with cluster("local") as made:
        yield made
    assert not made.scratch.exists()


def small(name: str, **more: Any) -> profiles.Load:
    changes, parameters = SMALL[name]
    return profiles.changed(profiles.load(name), {**changes, **more}, [*parameters, *QUICK])


def test_all_profiles_are_tried() -> None:
    assert set(SMALL) | {"spark_sink", "spark_arrow"} == set(profiles.names())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.heavy) if name in LONG else name for name in sorted(SMALL)]
)
def test_profile_counts_exactly(where: Cluster, name: str) -> None:
    found = run_once(where, small(name), 1)
    wrong = [check for check in found["checks"] if not check["ok"] and check["name"] not in NOT_JUDGED]
    assert not wrong
    assert found["checks"][0]["text"].startswith("exact: ")
    assert found["tuples"] >= found["sent"] > 0 and found["figures"]["rate"] > 0


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name",
    [
        "word_count",
        *(pytest.param(name, marks=pytest.mark.heavy) for name in ("sentences", "deep", "fan_out", "big_tuples")),
    ],
)
def test_profile_counts_exactly_with_acks_over_two_containers(where: Cluster, name: str) -> None:
    load = small(name, mode="ATLEAST_ONCE", containers=2)
    found = run_once(where, load, 1)
    assert found["checks"][0]["ok"] and found["checks"][1]["ok"], found["checks"]
    assert found["tuples"] >= found["sent"] > 0


@pytest.mark.spark
@pytest.mark.heavy
@pytest.mark.parametrize(("name", "measured"), [("spark_sink", 2000), ("spark_arrow", 4)])
def test_spark_gets_every_row(where: Cluster, name: str, measured: int) -> None:
    pytest.importorskip("pyspark")
    load = profiles.changed(profiles.load(name), {"tuples": 2000, "rate": 2000.0}, ["batch_rows=500", *QUICK])
    found = run_once(where, load, 1)
    assert found["checks"][0]["ok"], found["checks"]
    assert found["latency"]["until_acked"]["count"] == measured


@pytest.mark.heavy
def test_document_page_and_comparison(where: Cluster, tmp_path: Path) -> None:
    said: list[str] = []
    result = json.loads(json.dumps(run_profile(where, small("passthrough"), 2, said.append)))
    assert len(said) == 2 and "exact: 500 of 500 tuples" in said[1]
    assert result["ok"] and result["schema"] == results.SCHEMA and len(result["runs"]) == 2
    assert result["summary"]["latency_p99_ms"]["min"] > 0
    assert {"rate", "cpu_s_per_million", "uss_bytes", "submit_s"} <= set(result["summary"])
    assert result["runs"][0]["latency"]["end_to_end"]["count"] == 500
    roles = result["runs"][0]["memory"]
    assert {"stream managers", "executors", "fork servers", "scheduler", "topology master", "task sink"} <= set(roles)
    assert all(role["uss"] > 1 << 20 for role in roles.values())
    assert str(where.home) not in json.dumps(result) and str(Path.home()) not in json.dumps(result)

    path = tmp_path / "r.json"
    path.write_text(json.dumps(result))
    html = page.render(result, results.read(path))
    plots = [json.loads(unescape(plot)) for plot in re.findall("data-plot='(.*?)'", html)]
    assert len(plots) >= 6 and all(
        len(plot["times"]) == len(line) for plot in plots for line in plot["series"].values()
    )
    assert len({tuple(plot["span"]) for plot in plots}) == 1, "every plot covers the same seconds"
    assert all(
        title in html
        for title in ("Rate at the sinks", "End-to-end latency", "Queued tuples", "CPU", "Memory", "Backpressure")
    )
    assert html.count("http") == 1 and "https://github.com/leeoniya/uPlot" in html and "1.000" in html


@pytest.mark.slow
@pytest.mark.heavy
def test_scenes_are_rows_of_one_result_and_their_floors_are_judged(where: Cluster) -> None:
    result = json.loads(json.dumps(run_profile(where, small("slow_bolt"), 1, lambda text: None)))
    [measured] = result["runs"]
    names = [check["name"] for check in measured["checks"]]
    for scene, floors in profiles.load("slow_bolt").scenes.items():
        row = measured["scenes"][scene]
        assert row["rate"] > 0 and 0 < row["share"] < 1.1 and 0 < row["latency_p50_ms"] <= row["latency_p99_ms"]
        assert result["summary"][f"{scene}/share"]["median"] == row["share"]
        assert {f"{scene}, {results.label_of(name)}" for name in floors["floors"]} <= set(names)
    wrong = [c for c in measured["checks"] if not c["ok"] and c["name"].endswith(("counts", "nothing lost"))]
    assert not wrong
    assert "<h2>Scenes</h2>" in page.render(result)


@pytest.mark.slow
@pytest.mark.heavy
def test_rates_measure_each_step_on_real_processes(where: Cluster) -> None:
    said: list[str] = []
    result = run_rates(where, (500.0, 0.0), ("ATLEAST_ONCE",), 1.0, QUICK, 1, said.append)
    wrong = [check for check in result["runs"][0]["checks"] if not check["ok"] and not check["name"].endswith("rate")]
    assert not wrong and len(said) == 2
    paced, fast = result["runs"][0]["steps"]
    assert paced["asked"] == 500.0 and fast["rate"] > paced["rate"] > 0
    for step in (paced, fast):
        assert step["cpu_cores"] > 0 and step["latency_p50_ms"] > 0 and step["switches_per_tuple"] > 0
    # A tuple passes two links of tasks; its ack comes back over both.
    assert 1 <= paced["tuples_per_frame"] < fast["tuples_per_frame"] and fast["frames_per_tuple"] < 1
    assert 2 / paced["tuples_per_frame"] <= paced["frames_per_tuple"] < 10
    for step in (paced, fast):
        assert (step["calls_per_tuple"] is None) == bool(step["calls_reason"])
    assert f"{results.step_name('ATLEAST_ONCE', 500.0, 'cpu_cores')}" in result["summary"]
    assert "Cost by rate" in page.render(json.loads(json.dumps(result)))


@pytest.mark.heavy
def test_command_writes_and_compares(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setattr(run, "calibrate", lambda rounds=1: Calibration(0.04, 0.04))
    sets = [word for setting in QUICK for word in ("--set", setting)]
    command = ["load-test", "word_count", "--tuples", "5000", "--out", str(tmp_path), *sets]
    assert main(command) == 0
    first = next(tmp_path.glob("word_count-*.json"))
    assert first.with_suffix(".html").is_file()
    out = capsys.readouterr().out
    assert "exact: 5,000 of 5,000 words" in out and "CPU-s per million" in out
    assert main([*command, "--against", str(first), "--mode", "ATLEAST_ONCE"]) == 0
    out = capsys.readouterr().out
    assert "mode ATMOST_ONCE before, ATLEAST_ONCE now" in out and "ratio" in out


@pytest.mark.heavy
def test_wrong_counts_fail_the_command(where: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from heronpy.loadtest import checks

    monkeypatch.setattr(checks, "word_list", lambda *args: ["other"] * 10_000)
    result = run_profile(where, small("word_count"), 1, lambda text: None)
    assert not result["ok"]
    assert result["runs"][0]["checks"][0]["text"].startswith("WRONG: 25,003 instead of 25,003 words")


def test_mistakes_are_sentences(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for words, sentence in (
        (["wordcount"], "there is no load profile 'wordcount'"),
        (["word_count", "--duration", "1", "--tuples", "5"], "give --duration or --tuples, not both"),
        (["word_count", "--against", str(tmp_path / "x.json")], "x.json cannot be read"),
        (["word_count", "--set", "counter=3"], "has no parameter 'counter' (did you mean 'counters'?)"),
        (["rates", "--rates", "100,quick"], "'quick' is not a rate"),
    ):
        assert main(["load-test", *words]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["load-test", "list"]) == 0
    assert "slow_bolt" in capsys.readouterr().out


def test_a_topology_that_fails_is_removed(where: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text("raise SystemExit('no topology today')\n")
    with pytest.raises(LabError, match="no topology today"):
        with submitted(where, program, {"name": "broken", "out": str(where.scratch / "broken")}):
            pass
    assert where.state.children("executionstate") == []


@pytest.mark.heavy
def test_startup_and_idle(where: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "SETTLE_S", 0.2)
    monkeypatch.setattr(startup, "IDLE_S", 0.5)
    result = startup.run_startup(where, 4, 2, 1, lambda text: None)
    assert result["ok"], result["runs"]
    row = result["summary"]
    assert row["first_tuple_s"]["median"] > 0 and row["restart_bolt_s"]["median"] > 0
    assert 1 << 20 < row["uss_per_task_bytes"]["median"] < 100 << 20
    assert "startup" in page.render(result)


def test_control_plane_of_many_containers() -> None:
    result = control_plane.run_control_plane(50, 400, 1, lambda text: None)
    assert result["ok"], result["runs"]
    assert "50 plans sent, 1 written" in str(result["runs"][0]["checks"])
    assert "control-plane" in page.render(result)


@pytest.mark.heavy
def test_profile_of_a_running_task(where: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = small("word_count", tuples=0, duration_s=60.0)
    spec = load.spec("busy", str(where.scratch / "busy"))
    with submitted(where, profiles.program_of(load), spec) as topology:
        wait_for(lambda: topology.ask(control_pb2.GetStatus()).executors, what="the executors")
        words = ["profile", "local", "busy", "1", "--duration", "1", "--out", str(tmp_path)]
        code = main(words)
        out = capsys.readouterr()
        assert code == 0, out.err
        assert "next_tuple" in (tmp_path / "busy-container_1_words_1.svg").read_text()
        frames = json.loads((tmp_path / "busy-container_1_words_1.speedscope.json").read_text())["shared"]["frames"]
        assert any(frame["name"].endswith("next_tuple") for frame in frames)
        assert main(["profile", "local", "busy", "container_1_word_1"]) == 2
        assert "did you mean 'container_1_words_1'?" in capsys.readouterr().err
        assert main(["profile", "local", "busy", "stmgr-1", "--duration", "1", "--out", str(tmp_path)]) == 0
        assert "stmgr/" in (tmp_path / "busy-stmgr-1.svg").read_text()
        topology.kill()
