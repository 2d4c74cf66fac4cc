"""Every example topology, run as its docstring says, gives the right answer and leaves nothing behind."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest

from heronpy.common.hashing import stable_hash
from tests.support.command import EXAMPLES, REPO, Heron, component

TEXT = REPO / "LICENSE"
TOTAL = re.compile(r"container_1_count_(\d) \[log\] (\S+): (\d+)$", re.MULTILINE)


def example(name: str) -> str:
    return str(EXAMPLES / f"{name}.py")


def test_word_count_of_a_file_is_exact(heron: Heron) -> None:
    done = heron.submit(example("word_count"), "wc", "--file", TEXT, "--wait")
    assert "Successfully launched topology 'wc'" in done.out
    assert done.out.rstrip().endswith("Topology 'wc' has finished and is removed")
    found = TOTAL.findall(heron.log_text("wc"))
    expected = Counter(TEXT.read_text(encoding="utf-8").split())
    assert {word: int(count) for _, word, count in found} == expected
    assert len(found) == len(expected), "a word was counted by two tasks"
    assert {task for task, _, _ in found} == {"3", "4"}
    assert heron.names() == []


def test_word_count_of_two_files(heron: Heron) -> None:
    readme = REPO / "pyproject.toml"
    # Relative paths are the user's, not the tasks'.
    files = ("--file", "LICENSE", "--file", "pyproject.toml")
    heron("submit", "local", example("word_count"), "wc", *files, "--wait", cwd=REPO).ok()
    expected = Counter(TEXT.read_text(encoding="utf-8").split()) + Counter(readme.read_text(encoding="utf-8").split())
    assert {word: int(count) for _, word, count in TOTAL.findall(heron.log_text("wc"))} == expected


@pytest.mark.heavy
def test_word_count_without_a_file_counts_for_ever(heron: Heron) -> None:
    heron.submit(example("word_count"))
    pattern = r"container_1_count_(\d) \[log\] (\d+) words so far, most often \[\('(\w+)', (\d+)\)"
    found = heron.when_logged("WordCount", pattern, count=6)
    leaders: dict[str, set[str]] = {}
    for task, _, word, _ in found:
        leaders.setdefault(word, set()).add(task)
    assert all(len(tasks) == 1 for tasks in leaders.values()), "one word was counted by two tasks"
    # 'the' is in 4 of 24 words of the built-in lines; its task counts its own words only.
    assert "the" in leaders
    assert heron.names() == ["WordCount"]
    killed = heron.kill("WordCount")
    assert killed.out.startswith("Successfully killed topology 'WordCount'\n  logs stay in ")
    heron.check_clean()


def test_batch_word_count_is_exact(heron: Heron) -> None:
    heron.submit(example("batch_word_count"), "bwc", "--lines", 30_000, "--wait")
    found = TOTAL.findall(heron.log_text("bwc"))
    assert ("the", "40000") in {(word, count) for _, word, count in found}
    assert len(found) == len({word for _, word, _ in found}) == 10, "the five most frequent of each task"


@pytest.mark.heavy
def test_multi_stream(heron: Heron) -> None:
    heron.submit(example("multi_stream"), "streams")
    averages = heron.when_logged("streams", r"(s\d) is at ([\d.]+) degrees on average", "*report*", count=12)
    broken = heron.when_logged("streams", r"(s\d) is broken: no contact", "*report*", count=3)
    expected: dict[str, list[str]] = {}
    readings: dict[str, list[float]] = {}
    for count in range(1, 200):
        if count % 5:
            seen = readings.setdefault(f"s{count % 3}", [])
            seen.append(15.0 + count % 10)
            expected.setdefault(f"s{count % 3}", []).append(f"{sum(seen) / len(seen):.1f}")
    for sensor, wanted in expected.items():
        shown = [value for name, value in averages if name == sensor]
        assert shown == wanted[: len(shown)]
    assert broken[:3] == ["s2", "s1", "s0"]
    assert "WARN" in next(line for line in heron.log_text("streams").splitlines() if "is broken" in line)
    heron.kill("streams")
    heron.check_clean()


def test_custom_grouping(heron: Heron) -> None:
    heron.submit(example("custom_grouping"), "custom")
    found = heron.when_logged("custom", r"container_1_book_(\d) \[log\] (\w+) has ordered for (\d+)", count=40)
    tasks = {task for task, _, _ in found}
    reserved, *others = sorted(tasks)
    for task, customer, _ in found:
        if customer in ("acme", "globex"):
            assert task == reserved
        else:
            assert task == others[stable_hash(customer) % len(others)]
    totals: dict[str, int] = {}
    for _, customer, total in found:
        assert totals.setdefault(customer, 0) < int(total)
        totals[customer] = int(total)
    heron.kill("custom")
    heron.check_clean()


def test_ack_and_fail_books_every_payment_once(heron: Heron) -> None:
    heron.submit(example("ack_and_fail"), "payments", "--count", "1000", "--wait")
    text = heron.log_text("payments", "*book*")
    assert re.findall(r"(\d+) payments booked", text) == ["1000"]
    replayed = re.findall(r"payment (\d+) booked at attempt 2", text)
    assert sorted(map(int, replayed)) == list(range(0, 1000, 3))


def test_direct_grouping_does_each_job_once(heron: Heron) -> None:
    heron.submit(example("direct_grouping"), "jobs")
    found = heron.when_logged(
        "jobs", r"container_\d_worker_(\d) \[log\] job (\d+) of size (\d) done, (\d+) in total", count=30
    )
    by_job = {int(job): int(size) for _, job, size, _ in found}
    assert len(by_job) == len(found), "a job was done twice"
    assert all(size == job * 7 % 5 + 1 for job, size in by_job.items())
    totals: dict[str, int] = {}
    for task, _, size, total in found:
        totals[task] = totals.get(task, 0) + int(size)
        assert totals[task] == int(total)
    assert len(totals) == 3, "the dispatcher left a worker idle"
    assert max(totals.values()) - min(totals.values()) <= 6, "the load is not even"
    heron.kill("jobs")
    heron.check_clean()


def test_async_bolt_waits_for_many_things_at_once(heron: Heron) -> None:
    heron.submit(example("async_bolt"), "weather", "--count", "300")
    status = heron.when_state("weather", "FINISHED")
    assert [component(status, name)["executed"] for name in ("look_up", "report")] == [300, 300]
    assert component(status, "cities")["emitted"] == 300
    # One at a time this takes half a minute.
    assert status["uptime_s"] < 25
    assert len(heron.when_logged("weather", r"0: rainy in Athens")) == 1
    heron.kill("weather")
    heron.check_clean()


def test_windowed(heron: Heron) -> None:
    heron.submit(example("windowed"), "windows")
    averages = heron.when_logged("windows", r"average of (\d+) readings: ([\d.]+)", count=2)
    values = [20.0 + 5.0 * math.sin(count / 50.0) for count in range(1, 200)]
    for count, average in averages:
        assert average == f"{sum(values[: int(count)]) / int(count):.2f}", "the window does not begin with the input"
    first, second = int(averages[0][0]), int(averages[1][0])
    assert 10 <= first <= 22 and 12 <= second - first <= 24
    [readings, *_] = map(int, heron.when_logged("windows", r"(\d+) readings in this window"))
    assert 35 <= readings <= 52
    heron.kill("windows")
    heron.check_clean()


def test_streamlet_word_count(heron: Heron) -> None:
    heron.submit(example("streamlet_word_count"), "functional", "--window", "2")
    heron.when_logged("functional", r"\{key: mary, .*, \d+\)", "*log*", count=2)
    heron.when_logged("functional", r"\{key: snow, .*, \d+\)", "*log*", count=2)
    found = re.findall(r"\{key: (\w+), .*\}, (\d+)\)", heron.log_text("functional", "*log*"))
    windows: dict[str, list[int]] = {}
    for word, count in found:
        windows.setdefault(word, []).append(int(count))
    # Twenty lines in each window, the same four again and again.
    assert 8 <= windows["mary"][1] <= 11 and 4 <= windows["snow"][1] <= 6
    assert set(windows) >= {"mary", "had", "a", "little", "lamb", "its", "fleece"}
    heron.kill("functional")
    heron.check_clean()


def test_logs_have_the_documented_format(heron: Heron) -> None:
    heron.submit(example("word_count"), "wc", "--file", TEXT, "--wait")
    stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+0000 (?:INFO |WARN |ERROR) (\S+) \[[^\]]+\] ")
    names = {path.stem for path in heron.log_dir("wc").iterdir()}
    tasks = {"container_1_line_1", "container_1_split_2", "container_1_count_3", "container_1_count_4"}
    assert names == {"scheduler", "executor-0", "executor-1", "tmaster", "stmgr-1", *tasks}
    for path in heron.log_dir("wc").iterdir():
        for line in path.read_text().splitlines():
            match = stamp.match(line)
            assert match or line.startswith("  | "), f"{path.name}: {line}"
            assert not match or match[1] == path.stem, f"{path.name}: {line}"


def test_stateful_word_count(heron: Heron, tmp_path: Path) -> None:
    out = tmp_path / "counts"
    heron.submit(example("stateful_word_count"), "Counts", "--file", TEXT, "--out", out, "--times", 3, "--wait")
    lines = [json.loads(line) for path in out.glob("*.jsonl") for line in path.read_text().splitlines()]
    words = Counter(Path(TEXT).read_text().split())
    assert {line["word"]: line["count"] for line in lines} == {word: 3 * count for word, count in words.items()}
    assert len(lines) == len(words)


def test_all_examples_are_tested() -> None:
    tested = set(re.findall(r'example\("(\w+)"\)', open(__file__, encoding="utf-8").read()))
    elsewhere = {"flight_delays", "spark_sink", "sick", "log_table"}  # with Spark, test_doctor.py, test_log_table.py
    assert {path.stem for path in EXAMPLES.glob("*.py")} - elsewhere == tested
