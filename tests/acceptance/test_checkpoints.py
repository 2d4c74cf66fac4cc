"""Effectively once, as a user sees it: the example counts exactly through kills, restores and updates."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import EXAMPLES, REPO, Heron
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TEXT = REPO / "LICENSE"
EXAMPLE = EXAMPLES / "stateful_word_count.py"
#: At the rate of the tests this takes minutes: they interfere first, and then let the rest pass at once.
TIMES = 1000
RATE = 500


def submit(heron: Heron, out: Path, *words: object, times: int = TIMES) -> str:
    config = "--config-property", "heron.checkpoint.interval_s=0.5"
    arguments = "--file", TEXT, "--out", out, "--times", times, "--rate", RATE
    return heron("submit", "local", EXAMPLE, "Counts", *arguments, *config, *words).ok().out


def checkpoints(heron: Heron) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = heron("checkpoints", "list", "local", "Counts", "--json").json()["checkpoints"]
    return rows


def when_checkpoints(heron: Heron, count: int) -> list[dict[str, Any]]:
    """The checkpoints of the current run, once it has this number of them."""
    return wait_for(
        lambda: (rows := [row for row in checkpoints(heron) if row["current"]])[count - 1 :] and rows,
        60.0,
        f"{count} checkpoints",
    )


def counts(out: Path) -> Counter[str]:
    """What is published; a word that is there twice would show."""
    rows = [json.loads(line) for file in out.glob("part-*.jsonl") for line in file.read_text().splitlines()]
    found = Counter({row["word"]: row["count"] for row in rows})
    assert len(found) == len(rows), "a word was published twice"
    return found


def expected(times: int = TIMES) -> Counter[str]:
    return Counter({word: times * count for word, count in Counter(TEXT.read_text(encoding="utf-8").split()).items()})


def finished(heron: Heron, out: Path) -> None:
    """Let it come to its end; every word was counted exactly."""
    heron("update", "local", "Counts", "--runtime-config", "line:counts.rate:0").ok()
    heron.when_state("Counts", "FINISHED", 180.0)
    assert counts(out) == expected()


@pytest.mark.heavy
def test_a_killed_topology_goes_on_from_its_newest_checkpoint(heron: Heron, tmp_path: Path) -> None:
    """Retained, self-contained after the first own checkpoint, ids go on."""
    out = tmp_path / "out"
    submit(heron, out)
    when_checkpoints(heron, 2)
    newest = heron("kill", "local", "Counts", "--json").json()["checkpoint"]
    assert heron.names() == [] and Path(newest, "metadata").is_file() and counts(out) == Counter()
    shown = heron("checkpoints", "list", "local", "Counts").ok().out
    assert newest in shown and "earlier run" in shown
    heron("checkpoints", "verify", "local", "Counts").ok()

    again = submit(heron, out, "--restore", "latest")
    assert f"of checkpoint {newest.rsplit('-', 1)[1]}, {newest}" in again
    assert when_checkpoints(heron, 1)[-1]["checkpoint"] > int(newest.rsplit("-", 1)[1])
    shutil.rmtree(Path(newest).parent)
    os.kill(heron.pid("Counts", "container_1_split_2"), signal.SIGKILL)
    finished(heron, out)


@pytest.mark.heavy
def test_a_savepoint_restores_at_another_place_with_more_tasks(heron: Heron, tmp_path: Path) -> None:
    out = tmp_path / "out"
    submit(heron, out)
    when_checkpoints(heron, 1)
    saved = heron("checkpoints", "savepoint", "local", "Counts", "--json").json()
    assert saved["kind"] == "savepoint" and saved["total_bytes"] > 0
    shown = heron("checkpoints", "show", "local", "Counts", saved["checkpoint"], "--json").json()
    heron.kill("Counts")
    source, copy = Path(saved["location"]).parent, tmp_path / "site-2" / "copied"
    for file in shown["files"]:
        (copy / file["path"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / file["path"], copy / file["path"])
    heron("checkpoints", "delete", "local", "Counts", "--all").ok()
    assert not source.exists()

    submit(heron, out, "--restore", copy)
    heron("update", "local", "Counts", "--component-parallelism", "count:4").ok()
    assert sum(task["component"] == "count" for task in heron.status("Counts")["tasks"]) == 4
    finished(heron, out)


@pytest.mark.heavy
def test_a_running_topology_is_rewound(heron: Heron, tmp_path: Path) -> None:
    out = tmp_path / "out"
    submit(heron, out, "--config-property", "heron.checkpoint.retained=1000")
    shown = when_checkpoints(heron, 3)
    first = shown[-1]["checkpoint"]
    other, last = shown[-2]["checkpoint"], shown[0]["checkpoint"]
    Path(shown[-2]["location"], "metadata").write_bytes(b"spoiled")
    refused = heron("checkpoints", "restore", "local", "Counts", "--checkpoint", other)
    refused.refused(1, "is damaged", f"chk-{other}")
    done = heron("checkpoints", "restore", "local", "Counts", "--checkpoint", first).ok().out
    assert done == f"Topology 'Counts' has resumed from checkpoint {first}\n"
    forward = heron("checkpoints", "restore", "local", "Counts", "--checkpoint", last)
    forward.refused(1, f"checkpoint {last} cannot be restored", "sinks may have removed the output")
    marked = {row["checkpoint"] for row in checkpoints(heron) if row["abandoned"]}
    assert last in marked and first not in marked
    heron("checkpoints", "trigger", "local", "Counts").ok()
    finished(heron, out)
