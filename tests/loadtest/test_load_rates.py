"""Cost by rate: the list of rates, context switches from /proc, perf's output, frames, the table and its figures."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from heronpy.cli.main import main
from heronpy.cli.measure import load_test
from heronpy.cli.measure.load_test import print_result
from heronpy.common.errors import ConfigError
from heronpy.loadtest import measure, page, processes, profiles, rates, results
from heronpy.loadtest.processes import (
    CallCounter,
    Counted,
    Seen,
    Tree,
    ran_by_thread,
    voluntary_by_thread,
    voluntary_of,
)
from heronpy.loadtest.watch import CpuLook, Frames, frames_of
from heronpy.proto import control_pb2

STATUS = "Name:\tpython\nThreads:\t3\nvoluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t7\n"


def test_rates_are_a_list_in_its_order() -> None:
    assert rates.rates_of("100, 5_000,max") == (100.0, 5000.0, 0.0)
    assert rates.rates_of("0.5") == (0.5,)


def test_every_mode_is_measured_unless_some_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []

    def run(where: object, rates_: object, modes: tuple[str, ...], *more: object) -> None:
        asked.append(modes)
        raise ConfigError("enough")

    monkeypatch.setattr(load_test, "run_rates", run)
    for words in ((), ("--mode", "EFFECTIVELY_ONCE")):
        assert main(["load-test", "rates", *words, "--out", str(tmp_path)]) == 2
    assert asked == [profiles.MODES, ("EFFECTIVELY_ONCE",)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' is not a rate; give tuples per second, such as 100,5000,max"),
        ("100,fast", "'fast' is not a rate"),
        ("-1", "between 0 and 10,000,000 tuples per second, not -1"),
        ("nan", "between 0 and"),
        ("inf", "between 0 and"),
        ("max,0", "the rate 0 is in the list twice"),
    ],
)
def test_what_is_no_rate_is_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        rates.rates_of(text)


@given(st.integers(0, 2**63))
def test_voluntary_switches_are_read_from_a_status(count: int) -> None:
    assert voluntary_of(STATUS.format(count)) == count


@pytest.mark.parametrize("text", ["", "nonvoluntary_ctxt_switches:\t7\n", "voluntary_ctxt_switches:\tmany\n"])
def test_a_status_without_switches_has_none(text: str) -> None:
    assert voluntary_of(text) is None


def fake_threads(proc: Path, pid: int, counts: dict[int, int]) -> None:
    for thread, count in counts.items():
        folder = proc / str(pid) / "task" / str(thread)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "status").write_text(STATUS.format(count))


def test_all_threads_are_summed_and_those_that_ended_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_threads(tmp_path, 7, {7: 100, 8: 20})
    assert voluntary_by_thread(7, tmp_path) == {7: 100, 8: 20} and voluntary_by_thread(9, tmp_path) == {}
    monkeypatch.setattr(processes, "voluntary_by_thread", lambda pid: voluntary_by_thread(pid, tmp_path))
    tree = Tree(None, {7: Seen(None, "a", "task a")})  # type: ignore[arg-type]
    assert tree.switches() == 120
    (tmp_path / "7/task/8/status").unlink()
    fake_threads(tmp_path, 7, {7: 130})
    assert tree.switches() == 150, "the 20 of the thread that ended still count"
    tree._bury(7)
    assert tree.switches() == 150


def test_the_cpu_of_all_threads_is_read_to_the_nanosecond(tmp_path: Path) -> None:
    for thread, text in {7: "1500000001 2 3\n", 8: "500000000 2 3\n", 9: "", 10: "much 2 3\n"}.items():
        folder = tmp_path / "7/task" / str(thread)
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(text)
    (tmp_path / "7/task/11").mkdir()
    assert ran_by_thread(7, tmp_path) == pytest.approx({7: 1.500000001, 8: 0.5})
    assert ran_by_thread(12, tmp_path) == {}


def test_the_switches_of_this_process_grow() -> None:
    before = sum(voluntary_by_thread(os.getpid()).values())
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        # Writes only once the parent has gone to sleep in its read.
        while "S" not in (Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[0]):
            pass
        os.write(write, b"x")
        os._exit(0)
    os.read(read, 1)
    os.waitpid(pid, 0)
    assert sum(voluntary_by_thread(os.getpid()).values()) > before
    os.close(read)
    os.close(write)


def test_switches_per_tuple_are_those_of_the_window() -> None:
    def at(moment: float, switches: int | None) -> CpuLook:
        return CpuLook(moment, {}, {}, 0.0, 0.0, switches)

    window = measure.Window(at(1.0, 500), at(2.0, 1500), True)
    assert measure.switches_per_tuple(window, 100.0) == 10.0
    assert measure.switches_per_tuple(measure.Window(at(1.0, None), at(2.0, None), True), 100.0) is None


@pytest.mark.parametrize(
    ("report", "calls"),
    [
        ("29,,raw_syscalls:sys_enter,1650542,100.00,,\n", 29),
        ("# started\n\n<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n", 0),
        ("<not supported>,,raw_syscalls:sys_enter,0,100.00,,\n", None),
        ("5,,other:event,1,100.00,,\n", None),
        ("", None),
    ],
)
def test_perfs_output(report: str, calls: int | None) -> None:
    assert processes.parse_calls(report) == calls


@pytest.mark.parametrize(
    ("script", "counted"),
    [
        ("echo '4000,,raw_syscalls:sys_enter,9,100.00,,' >&$fd", Counted(4000, 2.0)),
        ("echo 'no permission' >&2; exit 129", "needs root, or kernel.perf_event_paranoid=-1"),
        ("exit 0", "needs root"),
    ],
)
def test_perf_is_run_and_its_refusal_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, counted: Counted | str
) -> None:
    perf = tmp_path / "perf"
    perf.write_text(
        f'#!/bin/bash\necho "$@" > {tmp_path}/words\nwhile [ "$1" != --log-fd ]; do shift; done\nfd=$2\n{script}\n'
    )
    perf.chmod(perf.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert processes.no_counter() == ""
    counter = CallCounter([5, 6], 1.5, 2.0)
    found = counter.result()
    counter.close()
    if isinstance(counted, Counted):
        assert found == counted and found.per_s == 2000.0
        assert measure.calls(found, 500.0) == {"per_tuple": 4.0, "reason": ""}
    else:
        assert counted in found.reason and found.per_s is None
    words = (tmp_path / "words").read_text().split()
    assert words[words.index("-p") + 1] == "5,6" and words[words.index("-D") + 1] == "1500"
    assert words[-2:] == ["sleep", "3.500"]


def test_without_perf_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert processes.no_counter() == "perf is not installed"


def test_frames_are_summed_over_tasks_only() -> None:
    reply = control_pb2.MetricsReply()
    for task, sent, tuples, out, back in ((1, 100, 500, 110, 10), (2, 0, 0, 20, 100)):
        report = reply.reports.add(process=f"t{task}", task_id=task)
        for name, value in (
            ("sent-packets-count", sent), ("sent-tuples-count", tuples), ("sent-messages-count", out),
            ("received-messages-count", back),
        ):  # fmt: skip
            report.samples.add(name=f"__gateway-{name}", value=value)
    reply.reports.add(process="stmgr-1").samples.add(name="__gateway-sent-packets-count", value=9)
    found = frames_of(reply)
    assert found == Frames(100, 500, 240) and found.tuples_per_frame() == 5.0
    reports = measure.Reports([{"role": "sink", "tuples": 500}])
    assert measure.frames(found, reports) == {"tuples_per_frame": 5.0, "frames_per_tuple": 0.48}
    assert measure.frames(None, reports) is None and measure.frames(Frames(0, 0, 4), reports) is None


def run_of(rate: float, held: bool = True, calls: float | None = 12.5) -> dict[str, Any]:
    return {
        "figures": {"rate": rate, "cpu_cores": 0.25, "switches_per_tuple": 3.5, "seconds": 4.0},
        "frames": {"tuples_per_frame": 5.0, "frames_per_tuple": 0.48},
        "latency": {"end_to_end": {"p50": 0.5, "p99": 1.25, "p99.9": 123.4}},
        "system_calls": {"per_tuple": calls, "reason": "" if calls else "perf has no leave"},
        "tuples": 1000,
        "checks": [{"name": "counts", "ok": True, "text": "exact"}, {"name": "rate", "ok": held, "text": "slow"}],
    }


def document(*taken: tuple[str, float, dict[str, Any]], reason: str = "") -> dict[str, Any]:
    rows = [rates.step_of(mode, rate, run, reason) for mode, rate, run in taken]
    checks = [check for mode, rate, run in taken for check in rates.checks_of(mode, rate, run)]
    runs = [{"values": rates.values_of_steps(rows), "checks": checks, "steps": rows}]
    return {
        "kind": "load-test", "schema": results.SCHEMA, "profile": "rates", "about": "1 spout", "unit": "tuples",
        "options": {"rates": "100,max"}, "date": "today", "heronpy": "1", "python": "3",
        "host": {"cores": 2, "cpu": "some"}, "runs": runs, "summary": results.summary_of(runs, 0.05),
        "calibration": {"noisy": False, "text": "quiet", "loop_s_per_million": 0.05},
    }  # fmt: skip


def test_a_row_per_step_that_fits_100_columns() -> None:
    made = document(
        ("ATMOST_ONCE", 100_000.0, run_of(99_999.7)), ("EFFECTIVELY_ONCE", 0.0, run_of(3_456_789.0, calls=None))
    )
    screen = Console(width=100, file=open(os.devnull, "w"), record=True)
    print_result(screen, made)
    lines = [line.split() for line in screen.export_text().splitlines()]
    assert [
        "ATMOST_ONCE",
        "100,000",
        "100,000",
        "0.25",
        "5.00",
        "0.480",
        "3.50",
        "12.50",
        "0.500",
        "1.25",
        "123",
    ] in lines
    assert [
        "EFFECTIVELY_ONCE",
        "max",
        "3,456,789",
        "0.25",
        "5.00",
        "0.480",
        "3.50",
        "-",
        "0.500",
        "1.25",
        "123",
    ] in lines
    assert "calls/tuple: not measured: perf has no leave" in " ".join(word for line in lines for word in line)
    html = page.render(made, made)
    assert "Cost by rate" in html and "ATMOST_ONCE 100,000/s: frames per tuple, all kinds" in html


def test_figures_of_steps_are_compared_by_mode_and_rate() -> None:
    before = document(("ATMOST_ONCE", 5000.0, run_of(5000.0)), ("ATLEAST_ONCE", 0.0, run_of(90_000.0)))
    now = document(("ATMOST_ONCE", 5000.0, run_of(5000.0, calls=25.0)))
    changes = {change.figure.label: change for change in results.compare(now, before)}
    assert changes["ATMOST_ONCE 5,000/s: system calls per tuple"].ratio == 2.0
    assert changes["ATMOST_ONCE 5,000/s: system calls per tuple"].verdict == "worse"
    assert len(changes) == len(results.STEP_FIGURES)
    assert results.figure_of("ATMOST_ONCE/max/rate").label == "ATMOST_ONCE at full speed: rate"  # type: ignore[union-attr]
    assert results.figure_of("ATMOST_ONCE/max/unknown") is None


def test_the_rate_is_judged_as_far_as_it_is_promised() -> None:
    slow = run_of(1.0, held=False)
    assert [check["ok"] for check in rates.checks_of("ATMOST_ONCE", 20_000.0, slow)] == [True, False]
    assert [check["name"] for check in rates.checks_of("ATMOST_ONCE", 100_000.0, slow)] == [
        "ATMOST_ONCE 100,000/s, counts"
    ]


def test_a_step_emits_for_its_seconds_and_for_the_counting() -> None:
    plain = rates.load_of("ATLEAST_ONCE", 5000.0, 4.0, ["heron.instance.batch_tuples=7"], counting=False)
    assert (plain.mode, plain.rate, plain.duration_s, plain.warmup_s) == ("ATLEAST_ONCE", 5000.0, 5.0, 1.0)
    assert plain.settings == {"heron.instance.batch_tuples": "7"} and plain.payload_bytes == 100
    assert rates.load_of("ATLEAST_ONCE", 5000.0, 4.0, [], counting=True).duration_s == 7.0
