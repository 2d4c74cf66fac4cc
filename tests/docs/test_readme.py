"""The README's first program, done as a reader does it."""

from __future__ import annotations

import subprocess

from tests.support.command import REPO, Heron
from tests.support.pages import blocks_of


def test_hello_gives_both_counters_work(heron: Heron) -> None:
    [hello] = [block for block in blocks_of(REPO / "README.md") if block.text.startswith("# hello.py")]
    program = heron.cwd / "hello.py"
    program.write_text(hello.text, encoding="utf-8")
    heron.submit(program)

    def both_work(status: object) -> bool:
        tasks = heron("metrics", "local", "Hello", "count", "--name", "__execute-count", "--json").json()["processes"]
        counts = [sum(metric["value"] for metric in task["metrics"]) for task in tasks]
        return len(counts) == 2 and min(counts) > 1000

    heron.when("Hello", both_work, "two busy counters")


def test_make_help_is_aligned() -> None:
    # Below another make it would print the folder that it enters.
    command = ["make", "--no-print-directory", "help"]
    lines = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) > 8
    names = [line.split()[1] for line in lines]
    starts = {line.index(line.split(maxsplit=2)[2]) for line in lines}
    assert len(starts) == 1 and max(len(name) for name in names) < starts.pop() - len("  make ")
