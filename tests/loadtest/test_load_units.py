"""The load tests of work units: names and sizes, judging, and each profile once, tiny."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from heronpy.cli.measure.load_test import print_result
from heronpy.common.errors import ConfigError
from heronpy.ingest.ledger.types import File, FileState, Span, SpanState, Unit, UnitState
from heronpy.loadtest import inputs, page, results
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.histogram import quantile
from heronpy.loadtest.inputs import Began
from heronpy.loadtest.run import result_of
from heronpy.loadtest.units import pipeline, plan
from heronpy.loadtest.units.contenders import work_at_once
from heronpy.loadtest.units.ledger import UNIT_BYTES, judged
from tests.support.command import Heron

# One for all processes that are spawned here, and for as long as the tests run.
resource_tracker.ensure_running()


# ---- names, sizes, goals ----------------------------------------------------------------------
def test_profiles_run_in_their_order_and_all_when_none_is_named() -> None:
    assert plan.chosen(["bad", "throughput", "bad"]) == ("throughput", "bad")
    assert plan.chosen([]) == tuple(plan.PROFILES)


def test_an_unknown_profile_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"there is no profile 'latencies' of work units.*latency"):
        plan.chosen(["latencies"])


def test_goals_are_judged_by_the_medians_in_their_direction() -> None:
    def row(value: float) -> dict[str, float]:
        return {"median": value, "min": value, "max": value}

    summary = {"units_vs_hand": row(1.3), "ledger_rate": row(250.0), "crash_attempts": row(23.0), "check_s": row(1.0)}
    found = {one["name"]: one for one in plan.judged(summary, plan.Sizes(lines=1_000_000))}
    assert {name: one["met"] for name, one in found.items()} == {
        "units_vs_hand": False,
        "ledger_rate": True,
        "crash_attempts": True,
    }
    assert "1.30x, goal: at most 1.25x" in found["units_vs_hand"]["text"]
    assert "250.0/s, goal: at least 200.0/s" in found["ledger_rate"]["text"]
    assert not plan.judged({"crash_attempts": row(24.0)}, plan.Sizes(lines=1_000_000))[0]["met"]


def test_every_goal_is_a_known_figure() -> None:
    assert all(goal.figure in results.BY_NAME for goal in plan.goals(plan.Sizes()))


def test_a_result_says_which_goals_were_missed() -> None:
    values = {"units_vs_hand": 2.0, "rebuild_s": 1.0}
    verdict = {"loop_s_per_million": 0.04, "noisy": False, "text": "quiet machine"}
    runs = [{"values": values, "checks": [{"name": "units", "ok": True, "text": "3 rows, each once"}]}]
    result = result_of("units", "work units", "units", {"profiles": "throughput"}, runs, verdict)
    result["goals"] = plan.judged(result["summary"], plan.Sizes())
    console = Console(record=True, width=140)
    print_result(console, result)
    text = console.export_text()
    assert "missed  throughput: CPU ratio, work units vs. hand-written loop: 2.00x, goal:" in text
    assert "met     rebuild" in text and result["ok"]
    assert "missed</b> throughput: CPU ratio, work units vs. hand-written loop" in page.render(result)


# ---- rows -------------------------------------------------------------------------------------
@given(st.integers(1, 200), st.randoms(use_true_random=False))
def test_rows_in_any_order_are_right(lines: int, chance: random.Random) -> None:
    numbers = list(range(lines))
    chance.shuffle(numbers)
    assert pipeline.wrong_numbers(numbers, lines) == ""
    users = [f"user{number % inputs.USERS}" for number in numbers]
    assert pipeline.wrong_clicks(users, [inputs.BASE_MS + number for number in numbers], lines) == ""


@pytest.mark.parametrize(
    ("numbers", "left_out", "sentence"),
    [
        ([0, 1, 3], [], "3 rows of 4: 1 missing"),
        ([0, 1, 2, 3, 3, 3], [], "6 rows of 4: 2 duplicates"),
        ([0, 1, 2, 3, 4, -1], [], "6 rows of 4: 2 without a line"),
        ([0, 1, 2, 3], [2], "4 rows of 3: 1 unexpected"),
        ([], [], "0 rows of 4: 4 missing"),
    ],
)
def test_wrong_rows_are_counted(numbers: list[int], left_out: list[int], sentence: str) -> None:
    assert pipeline.wrong_numbers(numbers, 4, left_out) == sentence
    assert not pipeline.rows_check("units", sentence, 4).ok


def test_a_line_that_is_left_out_is_not_missed() -> None:
    assert pipeline.wrong_numbers([3, 0, 1], 4, [2]) == ""


def test_a_user_of_another_line_is_found() -> None:
    times = [inputs.BASE_MS, inputs.BASE_MS + 1]
    assert pipeline.wrong_clicks(["user0", "user0"], times, 2) == "1 rows have the user of another line"


def test_a_click_is_what_its_line_says() -> None:
    lines = inputs.click_lines(995, 999).splitlines()
    assert [inputs.click(line) for line in lines] == [
        ("user995", inputs.BASE_MS + 995),
        ("user996", inputs.BASE_MS + 996),
        ("user0", inputs.BASE_MS + 997),
        ("user1", inputs.BASE_MS + 998),
    ]


def test_stamped_lines_have_their_size_and_their_stamp() -> None:
    text = inputs.stamped_lines(7, 3, 123_456, 100)
    assert {len(line) for line in text.splitlines()} == {99} and len(text) == 300
    assert list(inputs.stamps_of(text)) == [(7, 123_456), (8, 123_456), (9, 123_456)]


# ---- attempts and shares ----------------------------------------------------------------------
def test_a_unit_takes_from_its_first_attempt_until_it_is_visible() -> None:
    second = 1_000_000_000
    text = "".join(
        inputs.attempt_line(*one) for one in [(1, 1, 10, second), (1, 2, 11, 6 * second), (2, 1, 11, 2 * second)]
    )
    began = inputs.attempts_of(text + "3 1 12")
    assert began == [Began(1, 1, 10, second), Began(1, 2, 11, 6 * second), Began(2, 1, 11, 2 * second)]
    assert pipeline.unit_seconds(began, {1: 8 * second, 2: 3 * second, 9: second}) == [7.0, 1.0]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.sampled_from([50.0, 99.0, 100.0]))
def test_a_share_is_not_exceeded_by_so_many_percent(values: list[float], percent: float) -> None:
    found = quantile(values, percent / 100)
    assert found in values
    assert sum(value <= found for value in values) >= len(values) * percent / 100
    assert sum(value < found for value in values) < len(values) * percent / 100


def test_a_share_of_nothing_is_nothing() -> None:
    assert quantile([], 0.99) is None


# ---- the ledger's judge -----------------------------------------------------------------------
def _rows(done_units: int, live: int = 0) -> tuple[File | Span | Unit, ...]:
    done, end = done_units * UNIT_BYTES, (done_units + live) * UNIT_BYTES
    units = [Unit(90 + n, 90 + n, UnitState.READY, UNIT_BYTES, 1.0, 1.0) for n in range(live)]
    spans = [Span(1, done + n * UNIT_BYTES, done + (n + 1) * UNIT_BYTES, SpanState.UNIT, 90 + n) for n in range(live)]
    return (
        File(1, "0.log", 1, 1.0, "", end, end, FileState.LIVE, None, None),
        Span(1, 0, done, SpanState.DONE, 0),
        *spans,
        *units,
    )


def test_a_ledger_in_which_each_commit_counts_once_is_right() -> None:
    reports = [{"committed": [1, 2], "published": 0}, {"committed": [3], "published": 3}]
    assert judged(_rows(3, live=2), reports) == (True, "3 units published once, every byte counted once")


def test_a_ledger_that_counts_twice_or_loses_is_found() -> None:
    ok, text = judged(_rows(3), [{"committed": [1, 2, 2], "published": 3}])
    assert not ok and "1 units were committed twice" in text
    ok, text = judged(_rows(2), [{"committed": [1, 2, 3], "published": 3}])
    assert not ok and "3 units published" in text
    ok, text = judged(_rows(3), [{"committed": [1, 2, 3, 4], "published": 3}])
    assert not ok and "4 commits, but 3 published and 0 waiting" in text


# ---- contenders -------------------------------------------------------------------------------
def _burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def _burner() -> Callable[[], None]:
    _burn(0.8)
    return partial(_burn, 0.2)


def _broken() -> Callable[[], None]:
    raise SystemExit("no such luck")


def test_a_contender_is_charged_for_its_work_and_not_for_its_start() -> None:
    assert (
        0.15 <= work_at_once([("burner", _burner)], 60.0)[1] < 0.7
    )  # the kernel counts in ticks of 10 ms, user and system apart


def test_a_contender_that_fails_says_why() -> None:
    with pytest.raises(LabError, match=r"'broken' has ended(.|\n)*no such luck"):
        work_at_once([("broken", _broken)], 60.0)


def test_a_contender_that_hangs_is_ended() -> None:
    with pytest.raises(LabError, match=r"'sleeper' was not done after 0\.2 s"):
        work_at_once([("sleeper", partial, time.sleep, 600)], 0.2)


# ---- all of it --------------------------------------------------------------------------------
@pytest.mark.heavy
@pytest.mark.parametrize("name", list(plan.PROFILES))
def test_each_profile_runs_and_finds_its_rows(heron: Heron, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    sizes = ("--bytes", "1MB", "--seconds", "2", "--files", "60", "--lines", "3000", "--units", "100")
    # Without Java on the path: Spark takes longer than all the others.
    env = {**heron.env, "PATH": str(tmp_path)}
    said = heron("load-test", "units", name, *sizes, "--out", out, timeout_s=300, env=env).ok().out
    result = json.loads(next(out.glob("units-*.json")).read_text("utf-8"))
    assert result["ok"] and result["options"]["profiles"] == name
    run = result["runs"][0]
    assert run["checks"] and all(check["ok"] for check in run["checks"])
    assert any(goal["name"] in run["values"] for goal in result["goals"]), said
    if name == "throughput":
        assert {"units_vs_hand", "units_vs_hands", "units_vs_lines"} <= run["values"].keys()
    if name == "bad":
        assert run["values"]["bad_attempts"] == 3
