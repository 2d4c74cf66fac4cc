"""The load tests of batch runs: the judges, the processes by hand, and scenes once, tiny."""

from __future__ import annotations

import json
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from heronpy.loadtest.batch.contenders import HANDS, by_hand
from heronpy.loadtest.batch.count import right_counts
from heronpy.loadtest.batch.run import GOALS, judged
from heronpy.loadtest.results import BY_NAME
from heronpy.loadtest.units.contenders import work_at_once
from heronpy.loadtest.units.throughput import write_logs
from tests.support.command import Heron

# One for all processes that are spawned here, and for as long as the tests run.
resource_tracker.ensure_running()


def test_a_goal_is_missed_by_what_exceeds_it() -> None:
    assert BY_NAME.keys() >= GOALS.keys()
    found = judged({"batch_vs_stream": 0.9, "batch_charged": 1.0, "batch_vs_sql": 100.0})
    assert [one.ok for one in found] == [True, False]
    assert "0.900x, limit 0.900x" in found[0].text


def test_two_processes_by_hand_count_each_line_once(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    lines, _ = write_logs(tmp_path / "logs", 200_000, users=50)
    logs = sorted((tmp_path / "logs").glob("*.log"))
    work_at_once([("hand", by_hand, logs, tmp_path, place) for place in range(HANDS)], 60.0)
    result = tmp_path / "result"
    assert right_counts("hands", result, lines, 50).ok
    with (result / "part-0").open("a") as out:
        out.write('{"user": "user1", "count": 1}\n')
    assert not right_counts("hands", result, lines, 50).ok
    (result / "part-0").unlink()
    assert not right_counts("hands", result, lines, 50).ok


@pytest.mark.heavy
@pytest.mark.parametrize("words", [
    ("batch", "cost", "kills", "failed", "--bytes", "1MB"),
    ("batch", "small", "preempted", "history", "--bytes", "100KB", "--preemptions", "3"),
    ("batch", "preempted", "--bytes", "100KB", "--preemptions", "100"),
    ("batch", "exchange", "--bytes", "100KB", "--exchange", "300MB"),
    ("batch_handover", "--keys", "2000"),
])  # fmt: skip
def test_each_scene_runs_and_is_exact(heron: Heron, tmp_path: Path, words: tuple[str, ...]) -> None:
    out = tmp_path / "out"
    # Without Java on the path: Spark takes longer than all the others. A busy machine may miss goals.
    heron("load-test", *words, "--out", out, timeout_s=400, env={**heron.env, "PATH": str(tmp_path)})
    run = json.loads(next(out.glob("batch*.json")).read_text("utf-8"))["runs"][0]
    goals = {BY_NAME[name].label for name in run["values"].keys() & GOALS.keys()}
    assert [one for one in run["checks"] if not one["ok"] and one["name"] not in goals] == []
    assert goals and run["values"].get("batch_charged", 0) == 0
