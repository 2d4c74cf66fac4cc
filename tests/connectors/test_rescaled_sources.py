"""TextFileSpout while `heron update` changes its number of tasks, 3 -> 7 -> 2, under load."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import Heron, component
from tests.support.waiting import wait_for

PROGRAM = """
import os
import sys
import time

from heronpy import Bolt, Grouping, TopologyBuilder
from heronpy.connectors.files import FileSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout

name, files, out, mode = sys.argv[1:]


class Pace(Bolt):
    outputs = ["line"]
    pause_s = 0.002

    def process(self, tup):
        if self.pause_s:
            time.sleep(self.pause_s)
            self.pause_s *= not os.path.exists(files + "/fast")
        self.emit([tup.values[0]], anchors=[tup])
        self.ack(tup)


builder = TopologyBuilder(name)
text = {"textfile.paths": files + "/*.txt", "textfile.block_bytes": 4096, "textfile.lines_per_call": 20}
lines = builder.add_spout("lines", TextFileSpout, par=3, config=text)
paced = builder.add_bolt("pace", Pace, par=2, inputs={lines: Grouping.SHUFFLE})
builder.add_spec(FileSink.spec("store", {paced: Grouping.SHUFFLE}, folder=out, format="text"))
builder.set_config({"topology.reliability.mode": mode, "topology.max.spout.pending": 2000})
builder.build_and_submit()
"""
NAME = "Rescaled"
#: Little on its way, so that the source is at work for long and barriers are not behind all of it.
SETTINGS = {
    "heron.checkpoint.interval_s": "0.5",
    "heron.instance.batch_bytes": "4KB",
    "heron.instance.in_queue_bytes_max": "32768",
    "heron.instance.out_queue_bytes_max": "32768",
    "heron.stmgr.instance_out_window_bytes": "32KB",
}
FILES, LINES = 5, 6_000


def rows_in(folder: Path) -> Counter[str]:
    return Counter(line for part in folder.glob("part-*") for line in part.read_text().splitlines())


def backlog(heron: Heron) -> float:
    """Bytes, as `heron metrics` shows them."""
    shown = heron("metrics", "local", NAME, "lines", "--name", "__backlog-bytes", "--json").json()
    return sum(sample["value"] for process in shown["processes"] for sample in process["metrics"])


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["EFFECTIVELY_ONCE", pytest.param("ATLEAST_ONCE", marks=pytest.mark.heavy)])
def test_no_line_is_lost_and_none_is_doubled_with_checkpoints(heron: Heron, user: Path, mode: str) -> None:
    files, out, program = user / "files", user / "out", user / "rescaled.py"
    files.mkdir()
    program.write_text(PROGRAM)
    for number in range(FILES):
        (files / f"{number}.txt").write_text("".join(f"{number} {line:080d}\n" for line in range(LINES)))
    total = sum(file.stat().st_size for file in files.iterdir())
    settings = [word for item in SETTINGS.items() for word in ("--config-property", "=".join(item))]
    heron.submit(program, NAME, files, out, mode, *settings)
    heron.when(NAME, lambda now: component(now, "store")["executed"] > 500, "some lines")
    for tasks in (7, 2):
        # Until the earlier tasks have reported again, some lanes count twice.
        wait_for(lambda: 0 < backlog(heron) < total, 30.0, "the backlog of a source under load")
        heron("update", "local", NAME, "--component-parallelism", f"lines:{tasks}").ok()
        seen = component(heron.status(NAME), "store")["executed"]
        status = heron.when(NAME, lambda now: component(now, "store")["executed"] > seen + 300, "lines after it")  # noqa: B023
        assert component(status, "lines")["tasks"] == tasks and status["lifecycle"] == "RUNNING"
    (files / "fast").touch()
    heron.when_state(NAME, "FINISHED", 120.0)
    rows = rows_in(out)
    assert rows.keys() == {f"{number} {line:080d}" for number in range(FILES) for line in range(LINES)}
    if mode == "EFFECTIVELY_ONCE":
        assert rows.total() == FILES * LINES
    assert "Traceback" not in heron("exceptions", "local", NAME).ok().out
