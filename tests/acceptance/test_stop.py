"""`heron stop`: nothing is killed before all is processed, or saved; what cannot be done leaves the topology as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_checkpoints import counts, submit, when_checkpoints
from tests.acceptance.test_operations import counting, stored
from tests.support.command import Heron, component

USAGE, TIMED_OUT = 2, 5


def flowing(heron: Heron, **options: object) -> Any:
    return heron.when("count", lambda status: component(status, "store")["executed"] > 200, "numbers that are stored")


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
@pytest.mark.heavy
def test_a_drain_processes_everything_and_finishes_the_bolts(heron: Heron, out: Path, mode: str) -> None:
    counting(heron, out, guarantee=mode, containers=2, stores=2, spout_pause_ms=1, work_pause_ms=3)
    flowing(heron)
    done = heron("stop", "local", "count", "--drain", "--timeout", "60", "--json").json()
    assert (done["stopped"], done["complete"], done["discarded_tuples"]) == (True, True, 0)
    assert heron.names() == []
    numbers = stored(out)
    missing = [number for number in range(max(numbers) + 1) if number not in numbers]
    assert not missing and set(numbers.values()) == {1}, f"{len(missing)} missing: {missing[:10]}"
    assert heron.log_text("count").count("stored everything") == 2


@pytest.mark.heavy
def test_a_drain_that_is_late_leaves_the_topology_as_it_was(heron: Heron, out: Path) -> None:
    counting(heron, out, work_pause_ms=1000, works=1)
    heron.when("count", lambda status: component(status, "work")["executed"] >= 1, "work")
    late = heron("stop", "local", "count", "--drain", "--timeout", "2")
    said = late.refused(TIMED_OUT, "was not stopped within 2 s", "tuples are in flight")
    assert "nothing was killed, and its spouts are active again" in said
    before = component(heron.when_state("count", "RUNNING"), "work")["executed"]
    heron.when("count", lambda status: component(status, "work")["executed"] > before, "work going on")

    heron("deactivate", "local", "count").ok()
    said = heron("stop", "local", "count", "--drain", "--timeout", "1").refused(
        TIMED_OUT, "the topology stays deactivated"
    )
    assert heron.status("count")["lifecycle"] == "PAUSED"
    forced = heron("stop", "local", "count", "--drain", "--timeout", "1", "--force").ok()
    assert "killing the topology because of --force" in forced.err and "not gracefully" in forced.out
    assert heron.names() == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.heavy
def test_a_stop_with_a_savepoint_comes_back_where_it_was(heron: Heron, tmp_path: Path) -> None:
    out = tmp_path / "published"
    submit(heron, out)
    when_checkpoints(heron, 1)
    done = heron("stop", "local", "Counts", "--savepoint").ok().out
    [savepoint] = [line.rsplit(" ", 1)[1] for line in done.splitlines() if "to resume:" in line]
    assert heron.names() == [] and Path(savepoint, "metadata").is_file()
    shown = heron("checkpoints", "show", "local", "Counts", savepoint, "--json").json()
    assert shown["kind"] == "savepoint"
    submit(heron, out, "--restore", savepoint)
    # In this mode a drain ends with a last checkpoint, so what the sinks hold is committed.
    when_checkpoints(heron, 1)
    heron("stop", "local", "Counts", "--drain").ok()
    assert counts(out)
