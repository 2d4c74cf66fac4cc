"""Sources that rewind and files as a sink, in a whole topology: exact after kill -9 of any task (F01)."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import Heron

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PROGRAM = Path(__file__).parent / "programs" / "rewound_sources.py"
ROWS = 30_000
#: Little on its way, so that the sources are at work for long and barriers are not behind all of it.
SETTINGS = {
    "heron.checkpoint.interval_s": "0.3",
    "heron.instance.batch_bytes": "4KB",
    "heron.instance.in_queue_bytes_max": "32768",
    "heron.instance.out_queue_bytes_max": "32768",
    "heron.stmgr.instance_out_window_bytes": "32KB",
}
NAME = "Rewound"


def kill(heron: Heron, component: str) -> None:
    """Kill a task of a component that has a checkpoint to go back to, and wait for its restore."""
    status = heron.when(NAME, lambda now: now["checkpoints"] and now["checkpoints"]["last"], "a checkpoint")
    pid = next(task["pid"] for task in status["tasks"] if task["component"] == component)
    before = status["checkpoints"]["restores"]
    os.kill(pid, signal.SIGKILL)
    heron.when(
        NAME,
        lambda now: (now["checkpoints"] or status["checkpoints"])["restores"] > before,
        f"a restore after the end of {component}",
    )


@pytest.mark.heavy
def test_every_line_is_published_once(heron: Heron, user: Path) -> None:
    file, out = user / "numbers.txt", user / "out"
    file.write_text("".join(f"{number:0200d}\n" for number in range(ROWS)))
    settings = [word for item in SETTINGS.items() for word in ("--config-property", "=".join(item))]
    heron.submit(PROGRAM, NAME, "--file", file, "--out", out, *settings)
    for component in ("text", "generator", "function", "text-files", "generator-files", "function-files"):
        kill(heron, component)
    heron.when_state(NAME, "RUNNING")  # the input was long enough for all of this
    (user / "fast").touch()
    heron.when_state(NAME, "FINISHED", 120.0)
    for source in ("text", "generator", "function"):
        lines = Counter(line for part in (out / source).glob("part-*") for line in part.read_text().splitlines())
        assert (len(lines), lines.total()) == (ROWS, ROWS), source
        assert [name for name in os.listdir(out / source) if name.startswith(".")] == [], source
