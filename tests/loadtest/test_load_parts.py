"""Pacing, profiles, steady windows, comparisons: what can be checked without a topology."""

from __future__ import annotations

import copy
import json
import time
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heronpy.api.state.keyed_state import KeyedStates
from heronpy.common.errors import ConfigError
from heronpy.loadtest import checks, measure, profiles, results
from heronpy.loadtest.inputs import expected_counts, sentences, word_list
from heronpy.loadtest.processes import Memory, role_of
from heronpy.loadtest.run import Calibration, noise_of
from heronpy.loadtest.topologies import passthrough
from heronpy.loadtest.topologies.parts import KEY, Pace, Report
from heronpy.loadtest.topologies.passthrough import PacedSpout
from heronpy.loadtest.watch import CpuLook, StatusLook
from tests.api.source_fakes import Context, Kept

SECOND = 1_000_000_000


@given(st.integers(1, 50), st.lists(st.integers(0, 500), max_size=4))
def test_expected_counts_are_those_of_cycling(length: int, emitted: list[int]) -> None:
    words = word_list(min(7, length), length)
    counted: Counter[str] = Counter()
    for number in emitted:
        counted.update(words[at % length] for at in range(number))
    assert expected_counts(words, emitted) == counted


def test_words_are_the_same_everywhere_and_zipf_is_skewed() -> None:
    words = word_list(100, 1000)
    assert words == word_list(100, 1000)
    assert set(Counter(words).values()) == {10}
    ranks = [count for _, count in Counter(word_list(100, 10_000, 1.2)).most_common()]
    assert ranks[0] > 20 * ranks[50]
    assert " ".join(sentences(words)).split() == words


def test_pace_is_even_and_has_its_burst() -> None:
    plain = Pace(1000)
    assert plain.total(3) == 3000
    assert [plain.due_ns(number) for number in (0, 1, 2000)] == [0, SECOND // 1000, 2 * SECOND]
    burst = Pace(1000, 10.0, 2.0, 1.0)
    assert burst.total(5) == 4000 + 10_000
    dues = [burst.due_ns(number) for number in range(burst.total(5))]
    assert dues == sorted(dues)
    per_second = Counter(due // SECOND for due in dues)
    assert [per_second[second] for second in range(5)] == pytest.approx([1000, 1000, 10_000, 1000, 1000], abs=2)


def test_every_profile_is_valid_and_takes_changes() -> None:
    assert {"word_count", "passthrough", "slow_bolt", "spark_sink"} <= set(profiles.names())
    for name in profiles.names():
        load = profiles.load(name)
        assert load.name == name and load.about
        assert profiles.changed(load, {"containers": 2, "rate": None}, []).containers == 2
    load = profiles.changed(profiles.load("skew"), {}, ["zipf=2", "heron.instance.batch_tuples=10"])
    assert load.parameters["zipf"] == 2.0 and load.settings == {"heron.instance.batch_tuples": "10"}


@pytest.mark.parametrize(
    ("parameters", "changes", "sentence"),
    [
        (["counter=3"], {}, r"no parameter 'counter' \(did you mean 'counters'"),
        (["counters"], {}, "must be KEY=VALUE"),
        (["counters=many"], {}, "must be of type int, not 'many'"),
        ([], {"containers": 0}, "containers of load profile 'word_count' must be above 0"),
        ([], {"mode": "EXACTLY_ONCE"}, "mode 'EXACTLY_ONCE' cannot be measured"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(parameters: list[str], changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        profiles.changed(profiles.load("word_count"), changes, parameters)
    with pytest.raises(ConfigError, match=r"no load profile 'word_cont' \(did you mean 'word_count'"):
        profiles.load("word_cont")


@pytest.mark.parametrize("name", ["passthrough", "burst", "deep", "fan_out", "spark_sink", "spark_arrow"])
def test_profiles_have_every_parameter_of_their_paced_spout(name: str) -> None:
    spout = PacedSpout.__new__(PacedSpout)
    context = SimpleNamespace(
        get_component_id=str,
        get_task_id=int,
        get_component_tasks=lambda _: [0],
        partitioned_state=KeyedStates().partitioned,
    )
    spout.initialize({KEY: profiles.load(name).spec(name, "out")}, context)
    assert not spout.polled and (spout.pace is not None) == bool(spout.report.spec["rate"])


@given(st.integers(1, 1000), st.lists(st.integers(0, 400), min_size=1, max_size=4))
@example(1000, [100, 0, 50])
def test_the_lanes_of_a_load_spout_move_with_what_they_have_emitted(tuples: int, chunks: list[int]) -> None:
    """1 -> 3 -> 7 -> 2 tasks, each emits some more, until all tuples are emitted once."""
    load = profiles.changed(profiles.load("passthrough"), {"tuples": tuples}, [])
    kept: Kept = {}
    emitted = 0
    for tasks in (1, 3, 7, 2):
        merged: Kept = {}
        for index in range(tasks):
            spout, context = PacedSpout.__new__(PacedSpout), Context(index, tasks, kept=kept)
            spout.initialize({KEY: load.spec("name", "out")}, context)
            before = spout.sent
            # The last ones emit all that is left.
            spout.sent = spout.limit if tasks == 2 else min(spout.limit, before + chunks[index % len(chunks)])
            spout.pre_save("1")
            assert spout.kept_position() == spout.sent >= before
            emitted += spout.sent - before
            for name, entries in context.kept().items():
                merged.setdefault(name, {}).update(entries)
        kept = merged
    assert emitted == tuples


class FakePaced(PacedSpout):
    """The paced spout without a topology."""

    def __init__(self, rate: float, left: int, tracked: bool = False) -> None:
        self.pace = Pace(rate)
        self.limit, self.tracked = left, tracked
        self.payload, self.due, self.first, self.started_ns = b"", {}, 0, 0
        self.duration_s = 60.0
        self.again = []
        self.polled = False
        self.waits: list[float] = []
        self.emitted: list[tuple[int, int]] = []
        self.report = SimpleNamespace(mark=lambda count, now=0.0: None)  # type: ignore[assignment]

    def emit(self, tup: Any, tup_id: Any = None, *args: Any, **kwargs: Any) -> None:
        self.emitted.append((tup[0], tup[1]))

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)

    def finish_when_acked(self, **facts: Any) -> None:
        """The end is not part of this."""

    def facts(self) -> dict[str, Any]:
        return {}


@given(st.integers(1, 2_000_000), st.lists(st.integers(0, 50_000_000), min_size=1, max_size=20))
def test_a_paced_spout_has_emitted_all_that_is_due_however_rarely_it_is_called(rate: int, pauses: list[int]) -> None:
    now, limit = 10 * SECOND, 1200
    spout = FakePaced(rate, limit)
    dues = [now + pauses[0] + Pace(rate).due_ns(number) for number in range(limit)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic_ns", lambda: now)
        for pause in pauses:
            now += pause
            for _ in range(limit // passthrough.DUE_MAX + 1):
                before = len(spout.emitted)
                spout.next_tuple()
                assert len(spout.emitted) - before <= passthrough.DUE_MAX + 1, "acks and barriers get their turn"
            assert spout.sent == len(spout.emitted) == bisect_right(dues, now)
            if spout.sent < limit:
                assert spout.waits[-1] == (dues[spout.sent] - now) / 1e9 > 0
    assert spout.emitted == list(enumerate(dues[: spout.sent]))


def test_the_last_arrival_is_known_though_ticks_are_held_at_the_end(tmp_path: Path) -> None:
    context = SimpleNamespace(
        get_component_id=lambda: "sink", get_task_id=lambda: 1, get_component_tasks=lambda name: [1]
    )
    report = Report({"load_test": {"out": str(tmp_path)}}, context, "sink")
    for at, count in ((1.0, 10), (1.1, 20), (1.2, 25)):
        report.mark(count, at)
    report.arrived(25, 1.15)
    report.write(25)
    [path] = tmp_path.glob("*.json")
    reports = measure.Reports([json.loads(path.read_text())])
    assert reports.last_arrival() == 1.15
    assert reports.counted_at(1.1) == 20 and reports.counted_at(1.15) == 25


def test_the_rate_is_judged_by_when_the_last_tuple_came() -> None:
    load = profiles.changed(profiles.load("passthrough"), {"rate": 5000.0}, [])

    def held(last: float) -> bool:
        rows = [report("spout", 5000, 10, 14), report("sink", 5000, 10, 14)]
        rows[1]["timeline"] = [(10, 0), (13.9, 19_500), (last, 20_000), (16.5, 20_000)]
        return checks.rate_held(load, measure.Reports(rows)).ok

    assert held(14.01) and held(14.1), "a second or two until the topology has finished are not the rate's"
    assert not held(14.2)


def look(at: float, **cpu: float) -> CpuLook:
    return CpuLook(at, dict(cpu), dict(cpu), machine_s=at, driver_s=0.0)


def report(role: str, rate: float, start: float, end: float, **more: Any) -> dict[str, Any]:
    steps = [start + step * (end - start) / 100 for step in range(101)]
    timeline = [(at, round((at - start) * rate)) for at in steps]
    return {"role": role, "tuples": timeline[-1][1], "timeline": timeline, "ended_at": end, **more}


def test_steady_figures_leave_the_warmup_and_the_drain_out() -> None:
    reports = measure.Reports([report("spout", 1000, 10, 20), report("sink", 600, 10, 20), report("sink", 400, 10, 20)])
    looks = [
        look(at, **{"stream managers": at * 0.1, "other": at * 0.01})
        for at in (9.5, 12.9, 13.5, 16.0, 19.5, 21.0, 30.0)
    ]
    window = measure.window_of(looks, reports.start(), reports.end(), warmup_s=3.0)
    assert (window.first.at, window.last.at, window.steady) == (13.5, 19.5, True)
    figures = measure.figures(window, reports)
    assert figures["tuples"] == pytest.approx(6000, abs=5) and figures["rate"] == pytest.approx(1000, rel=0.01)
    assert figures["cpu_s_per_million"] == pytest.approx(0.66 / 0.006, rel=0.01)
    assert figures["cpu_s_per_million_data_path"] == pytest.approx(0.6 / 0.006, rel=0.01)
    assert figures["others_cores"] == pytest.approx(1 - 0.11)


def test_short_runs_are_measured_as_a_whole() -> None:
    reports = measure.Reports([report("spout", 1000, 10, 10.5), report("sink", 1000, 10, 10.5)])
    window = measure.window_of([look(9.9, a=0), look(12.0, a=1)], 10, 10.5, 3.0)
    figures = measure.figures(window, reports)
    assert not figures["steady"] and figures["rate"] == pytest.approx(1000, rel=0.05)


def test_growth_names_the_role_that_grows() -> None:
    memory = [(float(at), {"still": Memory(uss=100), "leaky": Memory(uss=10 * at)}) for at in range(10)]
    growth = measure.growth_of(memory, 0, 9, 0)
    assert growth is not None and growth.role == "leaky"
    assert growth.bytes / growth.seconds == pytest.approx(10)
    assert measure.growth_of(memory[:2], 0, 9, 0) is None


def test_episodes_have_a_beginning_and_an_end() -> None:
    seen = [
        StatusLook(float(at), {}, 0, 0, culprits, False)
        for at, culprits in enumerate([(), ("a",), ("a", "b"), ("b",), ()])
    ]
    assert measure.episodes(seen) == [
        {"culprit": "a", "from": 1.0, "to": 3.0},
        {"culprit": "b", "from": 2.0, "to": 4.0},
    ]


def test_roles_by_title() -> None:
    assert role_of("heron: container_1_by_word_12") == "task by_word"
    assert role_of("heron: stmgr-2\0") == "stream managers"
    assert role_of("heron: fork-server-1") == "fork servers"
    assert role_of("/usr/bin/python3 -P -m heronpy.scheduler --launch x") == "scheduler"
    assert role_of("java -cp x") == "spark gateway"


def test_noise_is_said() -> None:
    quiet = Calibration(0.040, 0.041)
    assert not noise_of([quiet, quiet], [0.1])["noisy"]
    assert "15% longer" in noise_of([quiet, Calibration(0.045, 0.046)], [])["text"]
    assert "0.50 cores" in noise_of([quiet], [0.5])["text"]


def document(rate: float, low: float, high: float) -> dict[str, Any]:
    row = {"median": rate, "min": low, "max": high}
    summary = {"rate": row, "cpu_s_per_million": {"median": 1 / rate, "min": 1 / high, "max": 1 / low}}
    return {
        "kind": "load-test",
        "schema": 1,
        "profile": "p",
        "options": {"rate": 1},
        "runs": [{}, {}],
        "summary": summary,
    }


def test_comparison_says_better_only_when_ranges_are_apart() -> None:
    changes = {
        change.figure.name: change for change in results.compare(document(200, 190, 210), document(100, 90, 110))
    }
    assert (changes["rate"].ratio, changes["rate"].verdict) == (2.0, "better")
    assert changes["cpu_s_per_million"].verdict == "better"
    assert {c.verdict for c in results.compare(document(110, 95, 130), document(100, 90, 120))} == {"same"}
    assert {c.verdict for c in results.compare(document(50, 45, 55), document(100, 90, 120))} == {"worse"}
    other = copy.deepcopy(document(1, 1, 1))
    other["options"]["rate"] = 2
    assert results.different_options(document(1, 1, 1), other) == ["rate 2 before, 1 now"]


def test_files_that_are_no_results_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        results.read(path)
    path.write_text("{}")
    with pytest.raises(ConfigError, match="is not the result of a load test"):
        results.read(path)
    path.write_text(json.dumps({**document(1, 1, 1), "schema": 99}))
    with pytest.raises(ConfigError, match="has schema 99, but this heronpy reads 1"):
        results.read(path)
    with pytest.raises(ConfigError, match="is for profile 'q', not 'p'"):
        results.compare(document(1, 1, 1), {**document(1, 1, 1), "profile": "q"})
