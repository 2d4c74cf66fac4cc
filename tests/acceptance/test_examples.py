"""Every example topology runs as its docstring says and leaves nothing behind; `test_examples_simulated.py` checks the answers
of those that are in `SIMULATED`."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import EXAMPLES, REPO, Heron

#: With words that end them, where they have any.
SIMULATED = {
    "ack_and_fail": ("--count", "1000"), "async_bolt": ("--count", "300"), "batch_word_count": ("--lines", "30000"),
    "custom_grouping": (), "direct_grouping": (), "multi_stream": (), "streamlet_word_count": (), "windowed": (),
}  # fmt: skip
TEXT = REPO / "LICENSE"
TOTAL = re.compile(r"container_1_count_(\d) \[log\] (\S+): (\d+)$", re.MULTILINE)
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+0000 (?:INFO |WARN |ERROR) (\S+) \[[^\]]+\] ")


def example(name: str) -> str:
    return str(EXAMPLES / f"{name}.py")


def test_word_count_of_files_is_exact_and_logs_have_the_documented_format(heron: Heron) -> None:
    # Relative paths are the user's, not the tasks'.
    files = ("LICENSE", "pyproject.toml")
    flags = [word for file in files for word in ("--file", file)]
    done = heron("submit", "local", example("word_count"), "wc", *flags, "--wait", cwd=REPO).ok()
    assert "Successfully launched topology 'wc'" in done.out
    assert done.out.rstrip().endswith("Topology 'wc' has finished and is removed")
    found = TOTAL.findall(heron.log_text("wc"))
    expected = Counter(word for file in files for word in (REPO / file).read_text(encoding="utf-8").split())
    assert {word: int(count) for _, word, count in found} == expected
    assert len(found) == len(expected), "a word was counted by two tasks"
    assert {task for task, _, _ in found} == {"3", "4"}
    assert heron.names() == []

    names = {path.stem for path in heron.log_dir("wc").iterdir()}
    tasks = {"container_1_line_1", "container_1_split_2", "container_1_count_3", "container_1_count_4"}
    assert names == {"scheduler", "executor-0", "executor-1", "tmaster", "stmgr-1", *tasks}
    for path in heron.log_dir("wc").iterdir():
        for line in path.read_text().splitlines():
            match = STAMP.match(line)
            assert match or line.startswith("  | "), f"{path.name}: {line}"
            assert not match or match[1] == path.stem, f"{path.name}: {line}"


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.heavy) for name in SIMULATED])
def test_the_example_runs(heron: Heron, name: str) -> None:
    heron.submit(example(name), "run", *SIMULATED[name])
    bolts = heron.when("run", lambda now: all(row["executed"] or row["emitted"] for row in now["components"]), "tuples")
    assert not [task for task in bolts["tasks"] if task["state"] == "FAILED"]
    assert heron.kill("run").out.startswith("Successfully killed topology 'run'\n  logs are kept in ")
    heron.check_clean()


def test_stateful_word_count(heron: Heron, tmp_path: Path) -> None:
    out = tmp_path / "counts"
    heron.submit(example("stateful_word_count"), "Counts", "--file", TEXT, "--out", out, "--times", 3, "--wait")
    lines = [json.loads(line) for path in out.glob("*.jsonl") for line in path.read_text().splitlines()]
    words = Counter(Path(TEXT).read_text().split())
    assert {line["word"]: line["count"] for line in lines} == {word: 3 * count for word, count in words.items()}
    assert len(lines) == len(words)


def test_all_examples_are_tested() -> None:
    # With Spark, in test_doctor.py, in test_log_table.py, and in test_jobs.py.
    elsewhere = {"word_count", "stateful_word_count", "flight_delays", "spark_sink", "sick", "log_table", "day"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} - elsewhere == set(SIMULATED)
