"""User code that forks: what the children do stays out of the topology, and the tasks go on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.command import Heron

PROGRAM = Path(__file__).parent / "programs" / "forking.py"


def test_children_leave_the_runtime_and_their_parents_go_on(heron: Heron, out: Path) -> None:
    heron("submit", "local", PROGRAM, "f", "--out", out, "--wait").ok()
    assert (out / "acked").read_text() == "200 0"
    assert ast.literal_eval((out / "seen").read_text()) == list(range(1, 201))

    log = heron.log_text("f", "*_forks_*")
    ends = dict(re.findall(r"child that (\w+) ended with (-?\d+)", log))
    assert ends == {"ends": "3", "comes_back": "0", "raises": "1", "exits": "5", "emits": ends["emits"]}
    assert int(ends["emits"]) >= 0
    assert "multiprocessing ended with -15" in log
    # The traceback of a child is whole, and is not taken for one of the task's.
    assert re.search(r"a child process forked by user code ends: Traceback.*\n(.*\n)*.*ValueError: in a child", log)
    assert "task ends with exit code 0" in log
    for process in ("numbers", "forks"):
        text = heron.log_text("f", f"*_{process}_*")
        assert len(re.findall("user code forked a child process that returned", text)) >= 1
        assert text.count(" starts\n") == 1, "it was restarted"
