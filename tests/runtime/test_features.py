"""What users see of the runtime: timeouts, bounds, ticks, hooks, metrics, hangs, asynchronous bolts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Heron
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "features.py"


def samples(heron: Heron, name: str, metric: str) -> dict[tuple[str, str], float]:
    """(component, label) -> value"""
    found = heron("metrics", "local", name, "--name", metric, "--json").ok().json()
    return {
        (process["component"], sample["label"]): sample["value"]
        for process in found["processes"]
        for sample in process["metrics"]
        if sample["name"] == metric
    }


def when_metric(heron: Heron, name: str, metric: str, component: str, least: float, label: str | None = None) -> Any:
    def look() -> Any:
        for (owner, found), value in samples(heron, name, metric).items():
            if owner == component and (label is None or found == label) and value >= least:
                return value
        return None

    return wait_for(look, 30, f"{metric} of {component}")


@pytest.mark.heavy
def test_with_acking(heron: Heron, out: Path) -> None:
    heron.submit(PROGRAM, "f", "--out", out, "--mode", "ATLEAST_ONCE")

    # Message timeout: fail() reaches the spout, and the tuples that were acked were acked.
    heron.when_logged("f", r"failed \d+", "*patient*", count=2)
    text = heron.log_text("f", "*patient*")
    assert set(re.findall(r"failed (\d+)", text)) == {"1", "3"}
    assert set(re.findall(r"acked (\d+)", text)) == {"0", "2", "4", "100"}
    assert when_metric(heron, "f", "__timeout-count", "patient", 2) == 2

    # Max spout pending holds, while acks come in bursts only.
    heron.when_logged("f", "tick 5", "*batcher*")
    most = [int(n) for n in re.findall(r"most pending (\d+)", heron.log_text("f", "*held*"))]
    assert max(most) == 7

    # The asynchronous bolt: bound, exception fails the tuple and restarts the task, ticks.
    heron.when_logged("f", "all calls acked", "*calls*")
    heron.when_logged("f", "async tick 3", "*caller*")
    most = [int(n) for n in re.findall(r"most at once (\d+)", heron.log_text("f", "*caller*"))]
    assert max(most) == 16
    assert "ValueError: the call failed" in heron("exceptions", "local", "f").ok().out
    assert when_metric(heron, "f", "__ack-count", "caller", 1, "calls/default") > 0


@pytest.mark.heavy
def test_without_acking(heron: Heron, out: Path) -> None:
    heron.submit(PROGRAM, "f", "--out", out, "--mode", "ATMOST_ONCE")

    # Acks come at once, and hooks are called on both sides.
    heron.when_logged("f", "acked 10$|acked 10\n", "*ids*")
    for what in ("prepare 1", "emit 20", "spout_ack 20"):
        heron.when_logged("f", f"hook {what}", "*ids*")
    for what in ("prepare 1", "bolt_execute 20", "bolt_ack 20", "bolt_fail 20"):
        heron.when_logged("f", f"hook {what}", "*hooked*")

    # A hung task is named, its stacks are in its log, and it is restarted.
    heron.when_logged("f", "fifty tuples", "*hanging*")
    text = heron.log_text("f", "*hanging*")
    assert "hang_here" in text
    [hung] = [t for t in heron.status("f")["tasks"] if t["component"] == "hanging"]
    process = next(
        p for c in heron.status("f")["containers"] for p in c["processes"] if p["name"] == hung["instance_id"]
    )
    assert process["restarts"] == 1
    assert process["exit_reason"] == "hung"
    assert re.search(rf"{hung['instance_id']}.*its loop has not turned", heron.log_text("f", "executor-1"))

    # Ticks by seconds; prints and logs; metrics of the user and of any code.
    heron.when_logged("f", "tick 1", "*seconds*")
    text = heron.log_text("f", "*ids*")
    assert re.search(r"INFO .* \[stdout\] printed by a spout", text)
    assert re.search(r"WARN .* logged by a spout", text)
    assert "logged the old way" in text
    assert when_metric(heron, "f", "my_count", "ids", 20) >= 20
    assert 0 <= when_metric(heron, "f", "my_mean", "ids", 0) <= 10
    assert when_metric(heron, "f", "__auto__", "ids", 20, "everywhere") >= 20
    assert when_metric(heron, "f", "__execute-count", "hooked", 20, "ids/default") >= 20
    assert when_metric(heron, "f", "__ack-count", "hooked", 10, "ids/default") >= 10
    assert when_metric(heron, "f", "__fail-count", "hooked", 10, "ids/default") >= 10
