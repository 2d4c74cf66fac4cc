"""From append to visible: a writer appends at a fixed rate, and the published units are looked for each 10 ms."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil

from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.processes import Tree
from heronpy.loadtest.run import Say
from heronpy.loadtest.unit_lines import stamped_lines, stamps_of
from heronpy.loadtest.units import judge
from heronpy.loadtest.units.pipeline import Pipeline
from heronpy.loadtest.units.plan import Sizes

BYTES_PER_S, LINE_BYTES, TICK_S = 1_000_000, 100, 0.01
PATIENCE_S = 60.0
_PER_TICK = int(BYTES_PER_S * TICK_S / LINE_BYTES)


class Appender(threading.Thread):
    """Appends the lines that are due, each with the time of its append; late after a stall, it catches up."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(name="appender", daemon=True)
        self._path = path
        self.lines = 0
        self._ticks = max(1, int(seconds / TICK_S))
        self.stop = threading.Event()

    def run(self) -> None:
        began = time.monotonic()
        with open(self._path, "ab", buffering=0) as log:
            for tick in range(self._ticks):
                if self.stop.wait(max(0.0, began + tick * TICK_S - time.monotonic())):
                    return
                log.write(stamped_lines(self.lines, _PER_TICK, time.monotonic_ns(), LINE_BYTES).encode())
                self.lines += _PER_TICK


def latency(where: Cluster, sizes: Sizes, number: int, say: Say) -> tuple[dict[str, float], list[Check]]:
    """The figures of one run."""
    made = Pipeline(where, f"latency-{number}")
    # A first unit, so that all processes have started and have done their work once.
    made.log("first").write_text(stamped_lines(0, 1, 0, LINE_BYTES), encoding="ascii")
    appender = Appender(made.log("clicks"), sizes.seconds)
    with made.running("line") as topology:
        made.until(lambda: made.look() == 1, PATIENCE_S, "a first unit", topology)
        warm = set(made.seen)
        tree = Tree(psutil.Process(topology.scheduler().pid))
        tree.refresh()
        before, began = sum(tree.cpu().values()), time.monotonic()
        appender.start()
        try:
            made.until(lambda: not appender.is_alive(), sizes.seconds + PATIENCE_S, "the end of the log", topology)
            cores = (sum(tree.cpu().values()) - before) / (time.monotonic() - began)
            made.until(lambda: made.rows() == appender.lines + 1, PATIENCE_S, "all rows being visible", topology)
        finally:
            appender.stop.set()
            appender.join()
    numbers: list[int] = []
    late: list[float] = []
    for name, text in made.texts():
        if name not in warm:
            for line, at_ns in stamps_of(text):
                numbers.append(line)
                late.append((made.seen[name] - at_ns) / 1e9)
    values = {
        "visible_p50_s": judge.share(late, 50),
        "visible_p99_s": judge.share(late, 99),
        "visible_max_s": max(late, default=0.0),
        "latency_cores": cores,
    }
    say(f"latency: append to visible p50 {values['visible_p50_s']:.2f} s, p99 {values['visible_p99_s']:.2f} s")
    wrong = judge.wrong_numbers(numbers, appender.lines)
    return values, [judge.rows_check("latency", wrong, appender.lines)]
