"""The list of faults, several in one run, and the report (3.4)."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.common.errors import ConfigError
from heronpy.common.settings import resolve
from heronpy.verify import acts
from heronpy.verify.run import Run, loss_bound, with_scenario
from heronpy.verify.scenarios import Scenario, find, scenarios, together
from heronpy.verify.stream import InputSpec
from heronpy.verify.tables import markdown, row

#: What the test plan wants on one machine, without those that have tests elsewhere.
WANTED = (*range(1, 7), *range(8, 20), 21, 23, 24, 25, 26, 34, 35, 36, 38, 42, 43, 44)


def test_every_fault_of_the_plan_is_there() -> None:
    for number in WANTED:
        assert find((f"F{number:02}",)), f"F{number:02}"
    assert find(("all",)) == list(scenarios().values())
    with pytest.raises(ConfigError, match="there is no fault 'F99'"):
        find(("F99",))


@pytest.mark.parametrize("scenario", scenarios().values(), ids=scenarios().keys())
def test_a_scenario_is_well_formed(scenario: Scenario) -> None:
    """Its input can be made, its settings exist, and it is usual only where it is defined."""
    run = with_scenario(Run(input=InputSpec(rate=100.0), settings={"heron.checkpoint.interval_s": 9}), scenario)
    assert run.settings["heron.checkpoint.interval_s"] == 9, "what the command line says wins"
    assert run.input.count == 0, "the input ends after the fault"
    assert set(scenario.usual) <= set(scenario.modes) and scenario.usual
    assert scenario.seconds(full=True, times=None) >= scenario.seconds(full=False, times=1)
    resolve("local", [], scenario.settings, {}, [])


def test_exactly_once_runs_have_checkpoints_between_their_faults() -> None:
    run = Run(mode="EFFECTIVELY_ONCE", input=InputSpec(rate=100.0))
    [scenario] = find(("F02",))
    assert with_scenario(run, scenario).settings["heron.checkpoint.interval_s"] == 1.0


def test_several_faults_in_one_run_act_in_turn_and_need_what_all_need() -> None:
    done: list[str] = []
    one = Scenario(
        "A", "a", lambda world, runs: done.append("A"), modes=("ATLEAST_ONCE",), settings={"x": 1}, proxy=True
    )
    other = Scenario("B", "b", lambda world, runs: done.append("B"), settings={"y": 2}, small_disk="state")
    [both] = together([one, other])
    both.act(None, 1)  # type: ignore[arg-type]
    assert done == ["A", "B"]
    assert (both.name, both.modes, both.proxy, both.small_disk) == ("A+B", ("ATLEAST_ONCE",), True, "state")
    assert both.settings == {"x": 1, "y": 2}


@pytest.mark.parametrize(
    "other",
    [
        Scenario("B", "b", acts.nothing, settings={"x": 2}),
        Scenario("B", "b", acts.nothing, small_disk="packages"),
        Scenario("B", "b", acts.nothing, input={"keys": 3}),
    ],
    ids=["setting", "disk", "input"],
)
def test_faults_that_need_different_things_have_a_run_each(other: Scenario) -> None:
    one = Scenario("A", "a", acts.nothing, settings={"x": 1}, small_disk="state")
    third = Scenario("C", "c", acts.nothing, settings={"x": 1})
    assert [run.name for run in together([one, other, third])] == ["A+C", "B"]


def test_each_full_disk_has_its_run() -> None:
    chosen = together(find(("F21", "F23", "F36", "F38")))
    assert [one.name for one in chosen] == [
        "F21-store+F23", "F21-logs", "F21-state", "F21-packages+F23-none",
        "F21-spark-handover", "F21-spark-table", "F21-table", "F21-ledger", "F23-empty", "F36", "F36-zipf", "F38",
        "F38-unaligned",
    ]  # fmt: skip
    disks = [one.small_disk for one in chosen[:8]]
    assert disks == ["checkpoints", "topologies", "state", "packages", "topologies", "tables", "tables", "ledger"]


def test_a_fault_that_work_units_have_as_well_is_done_in_a_run_of_each_topology() -> None:
    assert [one.name for one in together(find(("F04", "F05")))] == ["F04+F05+F05-all", "F04-units"]
    found = together(find(("F10",)))
    assert [(one.name, one.units) for one in found] == [
        ("+".join(one.name for one in find(("F10",)) if not one.units), False),
        ("F10-worker+F10-keeper", True),
    ]


def test_what_at_most_once_may_lose_is_what_is_under_way() -> None:
    run = Run(input=InputSpec(rate=1000.0, payload_bytes=1000))
    assert loss_bound(run, 0) == 0, "nothing dies, nothing is lost"
    assert 0 < loss_bound(run, 1) < 50_000
    assert loss_bound(run, 3) == 3 * loss_bound(run, 1)


@pytest.mark.parametrize("wrong", [{"mode": "NEVER"}, {"tasks": 0}, {"faults": 0}, {"input": InputSpec(rate=0.0)}])
def test_a_run_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Run(**{"input": InputSpec(rate=1.0), **wrong}).check()


def document(
    fault: str, mode: str, recovery: float, ok: bool = True, change: float = 0.01, complete: bool = True
) -> dict[str, Any]:
    verdict = {
        "mode": mode, "complete": complete, "expected": 1000, "loss": 0 if ok else 3, "duplicates": 2, "unexplained": 0, "keys": 10,
        "wrong_keys": 0, "inversions": 0, "stall_s": 0.5, "memory_max_bytes": 50 << 20,
        "recovery": [{"fault": "kill", "at_s": 1.0, "seconds": recovery, "change": change}],
        "checks": [{"name": "loss", "ok": ok, "text": "3 lost of 1,000"}],
    }  # fmt: skip
    options = {"tasks": 2, "containers": 2, "short": True, "input": {"rate": 1000.0, "partitions": 2}}
    return {
        "fault": fault, "about": f"about {fault}", "verdict": verdict, "ok": ok, "error": "", "options": options,
        "faults": [{"what": "kill", "back_s": 0.2}], "recovery_p50_s": recovery, "heronpy": "1.2.3", "python": "3.11.7",
        "host": {"cores": 2, "cpu": "a cpu"}, "date": "2026-01-01",
    }  # fmt: skip


def test_the_report_has_a_line_for_each_fault_and_mode_and_names_what_failed() -> None:
    text = markdown(
        [
            document("F01-bolt", "ATLEAST_ONCE", 0.4),
            document("F01-bolt", "ATLEAST_ONCE", 0.8),
            document("F01-bolt", "EFFECTIVELY_ONCE", 3.0, ok=False),
            document("F03", "ATLEAST_ONCE", 0.0, change=-0.02),
        ]
    )
    assert "heronpy 1.2.3, Python 3.11.7, 2 cores (a cpu), 2026-01-01." in text
    assert "| F01-bolt | about F01-bolt | ATLEAST_ONCE | 2 | 2 | 2 | 2,000 | 0 | 4 | 0 | 0 | 0.40 s | 0.80 s |" in text
    assert "| EFFECTIVELY_ONCE | p99 below 2 s | 3.00 s | **no** |" in text
    assert "| ATLEAST_ONCE | p50 below 5 % | 2.0% | yes |" in text
    assert "- F01-bolt, EFFECTIVELY_ONCE: loss: 3 lost of 1,000" in text


def test_a_row_says_when_a_run_failed() -> None:
    assert row(document("F02", "ATLEAST_ONCE", 1.0))[-1] == "ok"
    assert row(document("F02", "ATLEAST_ONCE", 1.0, ok=False))[-1] == "FAILED"


def test_what_a_run_that_was_given_up_has_lost_is_not_known() -> None:
    given_up = document("F02", "ATLEAST_ONCE", 1.0, ok=False, complete=False)
    assert row(given_up)[2:5] == ("3 of 1,000 missing", "2", "unknown")
    text = markdown([document("F02", "ATLEAST_ONCE", 1.0, ok=False), given_up])
    assert "| F02 | about F02 | ATLEAST_ONCE | 2 | 2 | 0 | 2,000 | 3 | 4 | 0 |" in text
