"""Measures the tracker and its pages with simulated topologies, of which only the topology masters run.

    python scripts/ui_figures.py                    # the whole table; takes about five minutes
    python scripts/ui_figures.py page stream        # some parts: page, stream, tracker, screen, doctor, logs, start,
    hot
    python scripts/ui_figures.py page --seconds 60 --tasks 3000

The topology masters run in a separate process and answer real RPC. The browser is headless Chromium. Figures are CPU
seconds of processes and of the page's main thread, unless they are marked as wall time. The machine should be idle.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import psutil

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))
from tests.support import fake_cluster  # noqa: E402
from tests.support.tracker_address import request_to  # noqa: E402

CHROMIUM = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")


@dataclass(frozen=True)
class Row:
    what: str
    found: str
    goal: str

    def __str__(self) -> str:
        return f"| {self.what} | {self.found} | {self.goal} |"


@dataclass(frozen=True)
class World:
    """A HERON_HOME with simulated topologies, and its tracker."""

    home: Path
    #: The address of the tracker; empty if there is no tracker.
    address: str
    pid: int

    @property
    def env(self) -> dict[str, str]:
        """The environment variables for commands."""
        return env_of(self.home)

    def page(self, name: str, *parts: str) -> str:
        return "/".join([f"{self.address}/#/t/local/me/default/{name}", *parts])

    def live(self, topology: str = "", level: str = "component") -> Any:
        """Open a live stream; return the response, whose lines are the events."""
        query = f"?topology=local/me/default/{topology}&level={level}" if topology else ""
        return urllib.request.urlopen(request_to(f"{self.address}/api/v1/live{query}"), timeout=60)


def env_of(home: Path) -> dict[str, str]:
    return {**os.environ, "HERON_HOME": str(home), "HERON_CONFIG_HOME": str(home / "client"), "PYTHONPATH": str(REPO)}


def heron(home: Path, *words: str, codes: tuple[int, ...] = (0,)) -> str:
    command = [sys.executable, "-m", "heronpy.cli", *words]
    done = subprocess.run(command, env=env_of(home), cwd=REPO, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise SystemExit(f"heron {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


@contextlib.contextmanager
def world(topologies: int, components: int, tasks: int, tracker: bool = True) -> Iterator[World]:
    """Start the topologies `fake-000`, `fake-001` and so on, and a tracker."""
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        with fake_cluster.running(home, topologies, components, tasks):
            try:
                address, pid = "", 0
                if tracker:
                    address = heron(home, "ui").split()[-1]
                    pid = json.loads((home / "tracker" / "tracker.json").read_text())["pid"]
                yield World(home, address, pid)
            finally:
                if tracker:
                    heron(home, "ui", "stop")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Start Chromium with Playwright."""
    from playwright.sync_api import sync_playwright

    path = next((path for path in CHROMIUM if os.access(path, os.X_OK)), None)
    if path is None:
        raise SystemExit(f"Chromium was not found in {', '.join(CHROMIUM)}")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        started = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield started
        finally:
            started.close()


# ---- a page of many tasks ---------------------------------------------------------------------

#: Returns when the page first showed the element, in ms after the start of the navigation.
SEEN = """(selector) => new Promise((done) => {
  const look = () => document.querySelector(selector) ? requestAnimationFrame(() => done(performance.now())) : setTimeout(look, 5);
  look();
})"""
#: Counts the changes by the live stream.
COUNT = """async () => {
  const { current } = await import('/static/js/live.js');
  let seen = current().state.snapshot;
  window.updates = 0;
  current().listen(() => {
    if (current().state.snapshot !== seen) window.updates += 1;
    seen = current().state.snapshot;
  });
}"""


def page_figures(seconds: float, tasks: int, keep: Path | None = None) -> list[Row]:
    """Measure load time, script per update and longest task of the overview and of the table of tasks."""
    rows = []
    # With more tasks, the overview requests only the figures of components.
    squares = ".square.level2" if tasks <= 600 else ".node .bar"
    with world(1, 20, tasks) as here, browser() as started:
        for title, parts, seen in (("overview", (), squares), ("tasks", ("tasks",), "[data-row] .state")):
            loads = []
            for _ in range(5):
                context = started.new_context(viewport={"width": 1400, "height": 1000})
                page = context.new_page()
                page.goto(here.page("fake-000", *parts), wait_until="commit")
                loads.append(page.evaluate(SEEN, seen))
                context.close()
            rows.append(Row(f"{title} of {tasks} tasks: load", f"{statistics.median(loads) / 1000:.2f} s", "0.5 s"))
            rows += updates_of(started, here.page("fake-000", *parts), seen, f"{title} of {tasks} tasks", seconds, keep)
    return rows


def updates_of(started: Any, address: str, seen: str, title: str, seconds: float, keep: Path | None) -> list[Row]:
    """Measure the cost of updates to an open page."""
    context = started.new_context(viewport={"width": 1400, "height": 1000})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    session.send("Profiler.enable")
    session.send("Profiler.setSamplingInterval", {"interval": 250})
    page.goto(address)
    page.evaluate(SEEN, seen)
    page.wait_for_timeout(3_000)
    page.evaluate(COUNT)

    def metrics() -> dict[str, float]:
        return {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}

    trace = Path(tempfile.mkdtemp(prefix="hp-", dir="/tmp")) / "trace.json"
    # Starting and ending the profiler takes at least 45 ms of the page's thread, which is not a cost of the page.
    session.send("Profiler.start")
    started.start_tracing(
        page=page, path=trace, categories=["disabled-by-default-devtools.timeline", "devtools.timeline"]
    )
    before = metrics()
    page.wait_for_timeout(seconds * 1000)
    after = metrics()
    started.stop_tracing()
    profile = session.send("Profiler.stop")["profile"]
    updates = page.evaluate("window.updates")
    context.close()
    events = json.loads(trace.read_text())["traceEvents"]
    if keep is not None:
        shutil.copy(trace, keep / f"{title.replace(' ', '-')}.json")
        (keep / f"{title.replace(' ', '-')}.cpuprofile").write_text(json.dumps(profile))
    shutil.rmtree(trace.parent)
    mains = {(one["pid"], one["tid"]) for one in events if one.get("args", {}).get("name") == "CrRendererMain"}
    tasks = [one for one in events if one["name"] == "RunTask" and (one["pid"], one["tid"]) in mains]
    longest_ms = [max(one.get(clock, 0) for one in tasks) / 1000 for clock in ("tdur", "dur")]
    spent = {
        name: 1000 * (after[name] - before[name]) / updates
        for name in ("LayoutDuration", "RecalcStyleDuration", "TaskDuration")
    }
    # The profile counts wall time. The share of script in it is right even on a busy machine.
    script = f"{spent['TaskDuration'] * part_in_script(profile):.1f} ms ({updates} updates; style and layout {spent['LayoutDuration'] + spent['RecalcStyleDuration']:.1f} ms, all {spent['TaskDuration']:.1f} ms)"
    return [
        Row(f"{title}: script per update", script, "8 ms"),
        Row(
            f"{title}: longest task in {seconds:g} s",
            f"{longest_ms[0]:.0f} ms CPU, {longest_ms[1]:.0f} ms wall",
            "50 ms",
        ),
    ]


def part_in_script(profile: dict[str, Any]) -> float:
    """Return the share of JavaScript and garbage collection in the run time. Chromium's own count omits promises."""
    names = {one["id"]: one["callFrame"]["functionName"] for one in profile["nodes"]}
    spent = {"(idle)": 0, "(program)": 0, "(root)": 0, "": 0}
    for node, took in zip(profile["samples"], profile["timeDeltas"]):
        spent[names[node] if names[node] in spent else ""] += took
    return spent[""] / (spent[""] + spent["(program)"])


# ---- live streams -----------------------------------------------------------------------------


def stream_figures(seconds: float) -> list[Row]:
    """Measure the bytes per second of the live stream after its snapshot."""
    rows = []
    for title, tasks, level, goal in (
        ("20 components", 20, "component", "1 kB/s"),
        ("500 tasks", 500, "tasks", "8 kB/s"),
    ):
        with world(1, 20, tasks) as here, here.live("fake-000", level) as stream:
            size, updates, first, begun = 0, 0, 0, None
            for line in stream:
                if begun is None:
                    first += len(line)
                    if line == b"\n":
                        begun = time.monotonic()
                    continue
                size += len(line)
                updates += line.startswith(b"event: delta")
                if time.monotonic() - begun > seconds and line == b"\n":
                    break
            took = time.monotonic() - begun
            rows.append(
                Row(
                    f"live stream, {title}",
                    f"{size / took / 1000:.1f} kB/s (snapshot {first / 1000:.0f} kB, {updates} updates)",
                    goal,
                )
            )
    return rows


# ---- the tracker of many topologies -----------------------------------------------------------


class Viewer(threading.Thread):
    """Reads a live stream, and records how old each figure is when it arrives."""

    def __init__(self, here: World, topology: str, level: str) -> None:
        super().__init__(daemon=True)
        self._stream = here.live(topology, level)
        self.ages_ms: list[float] = []

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            for line in self._stream:
                if line.startswith(b"data: ") and b'"load.at":' in line[:2000]:
                    at = json.loads(line[6:])["fields"]["load.at"]
                    self.ages_ms.append(1000 * (time.time() - at))


def tracker_figures(seconds: float) -> list[Row]:
    """Measure CPU, memory and delay of a tracker of 100 topologies with 10,000 tasks."""
    with world(100, 20, 100) as here:
        process = psutil.Process(here.pid)

        def part_of_a_core() -> float:
            before, begun = process.cpu_times(), time.monotonic()
            time.sleep(seconds)
            after = process.cpu_times()
            return 100 * (after.user - before.user + after.system - before.system) / (time.monotonic() - begun)

        time.sleep(30.0)  # the tracker first reads all plans, and the masters' figures of the last day
        quiet = part_of_a_core()
        kinds = [("", "component")] + [(f"fake-{number:03d}", "tasks") for number in range(9)]
        viewers = [Viewer(here, topology, level) for topology, level in kinds]
        for one in viewers:
            one.start()
        time.sleep(5.0)
        for one in viewers:
            one.ages_ms.clear()
        busy = part_of_a_core()
        ages = [age for one in viewers for age in one.ages_ms]
        memory = process.memory_info().rss / 1e6
    what = "tracker of 100 topologies, 10,000 tasks"
    return [
        Row(f"{what}: nobody looks", f"{quiet:.1f} % of a core", "5 %"),
        Row(f"{what}: 10 viewers (the list, the tasks of nine)", f"{busy:.1f} % of a core", "12 %"),
        Row(f"{what}: memory", f"{memory:.0f} MB", "150 MB"),
        Row(
            "delay of a figure in the tracker, p99",
            f"{part(ages, 0.99):.0f} ms (p50 {part(ages, 0.5):.0f}, {len(ages)} figures)",
            "50 ms",
        ),
    ]


def part(values: list[float], share: float) -> float:
    """Return the quantile, by the nearest-rank method."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# ---- from a task to the screen ----------------------------------------------------------------

#: Records when the page first shows a rate for each spout.
WATCH = """() => {
  window.shown = {};
  const look = () => {
    for (const row of document.querySelectorAll('section[aria-label=components] tbody tr')) {
      const [name, out] = [row.children[0].textContent, row.children[4].textContent];
      if (!(name in shown) && /^[0-9.]+.*\\/s$/.test(out) && out !== '0/s\') shown[name] = Date.now() / 1000;
    }
  };
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
LATE = 12
LATE_APART_S = 1.3


def screen_figures() -> list[Row]:
    """Measure the time from the first tuple of a real spout until the page shows the spout's rate."""
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder, browser() as started:
        home, marks = Path(folder) / "home", Path(folder) / "marks"
        home.mkdir(mode=0o700)
        marks.mkdir()
        heron(home, "submit", "local", "scripts/ui_late.py", "-", str(marks), str(LATE))
        try:
            address = heron(home, "ui").split()[-1]
            role = next((home / "topologies" / "local").iterdir()).name
            page = started.new_context(viewport={"width": 1400, "height": 3600}).new_page()
            page.goto(f"{address}/#/t/local/{role}/default/Late")
            page.locator("section[aria-label=components] tbody tr").nth(LATE).wait_for()
            page.evaluate(WATCH)
            begin = time.time() + 5.0
            (marks / "begin.new").write_text(f"{begin} {LATE_APART_S}")
            (marks / "begin.new").rename(marks / "begin")
            while len(shown := page.evaluate("shown")) < LATE:
                if time.time() > begin + LATE * LATE_APART_S + 60.0:
                    raise SystemExit(f"the page showed a rate only for {sorted(shown)}")
                page.wait_for_timeout(200)
        finally:
            heron(home, "ui", "stop")
            heron(home, "kill", "local", "Late")
        took = [shown[path.name] - float(path.read_text()) for path in marks.glob("late-*")]
    return [
        Row(
            "time from a task's first tuple to the screen, p95",
            f"{part(took, 0.95):.1f} s (p50 {part(took, 0.5):.1f} s, {len(took)} tasks)",
            "2.5 s",
        )
    ]


# ---- commands ---------------------------------------------------------------------------------


def timed(home: Path, *words: str, codes: tuple[int, ...] = (0,)) -> float:
    """Run a command five times; return the median duration in seconds."""
    found = []
    for _ in range(5):
        begun = time.monotonic()
        heron(home, *words, codes=codes)
        found.append(time.monotonic() - begun)
    return statistics.median(found)


def doctor_figures() -> list[Row]:
    rows = []
    for title, tracker, goal in (("with a tracker", True, "1 s"), ("without", False, "7 s")):
        with world(1, 20, 100, tracker=tracker) as here:
            took = timed(here.home, "doctor", "local", "fake-000", codes=(0, 1))
            rows.append(Row(f"heron doctor, 100 tasks, {title}", f"{took:.2f} s wall", goal))
    return rows


def start_figures() -> list[Row]:
    """Measure the time from the command to a page with figures, in a browser that already runs."""
    found = []
    with browser() as started:
        for _ in range(3):
            with world(1, 20, 100, tracker=False) as here:
                begun = time.monotonic()
                address = heron(here.home, "ui").split()[-1]
                page = started.new_page()
                page.goto(f"{address}/#/t/local/me/default/fake-000", wait_until="commit")
                page.evaluate(SEEN, ".square.level2")
                found.append(time.monotonic() - begun)
                page.close()
                heron(here.home, "ui", "stop")
    return [Row("heron ui to a page with the figures of 100 tasks", f"{statistics.median(found):.2f} s wall", "1 s")]


LOG_FILES, LOG_FILE_BYTES = 8, 128 << 20


def logs_figures() -> list[Row]:
    """Measure `heron logs --find` in 1 GB of logs, for a text near the end and for a text that does not occur."""
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        heron(home, "submit", "local", "topologies/word_count.py", "Words")
        try:
            heron(home, "deactivate", "local", "Words")
            logs = next((home / "topologies").glob("*/*/Words*/log-files"))
            own = next(logs.glob("container_1_*.log"))
            line = "[2026-11-23 00:00:00 +0000] [INFO] words: {:>12} tuples so far, and nothing to say of them\n"
            block = "".join(line.format(number) for number in range(100_000)).encode()
            for number in range(1, LOG_FILES + 1):
                with open(f"{own}.{number}", "wb") as file:
                    for _ in range(LOG_FILE_BYTES // len(block)):
                        file.write(block)
                    if number == 1:
                        file.write(line.format("needle").encode())
            size = sum(path.stat().st_size for path in logs.iterdir()) / 1e9
            first = first_line_s(home, "needle")
            begun = time.monotonic()
            heron(home, "logs", "local", "Words", "--find", "not in any line", codes=(0, 1, 3))
            all_s = time.monotonic() - begun
        finally:
            heron(home, "kill", "local", "Words")
    return [
        Row(
            f"search of {size:.1f} GB of logs: first hit",
            f"{first:.2f} s wall, including the start of the command",
            "0.5 s",
        ),
        Row(f"search of {size:.1f} GB of logs: all", f"{all_s:.1f} s wall", "10 s"),
    ]


def first_line_s(home: Path, text: str) -> float:
    """Return the seconds until `heron logs --find` prints a line."""
    command = [sys.executable, "-u", "-m", "heronpy.cli", "logs", "local", "Words", "--find", text]
    begun = time.monotonic()
    process = subprocess.Popen(command, env=env_of(home), cwd=REPO, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while text not in (found := process.stdout.readline()):
        if not found:
            raise SystemExit(f"heron logs --find {text} found nothing")
    took = time.monotonic() - begun
    process.communicate()
    return took


# ---- the data path ------------------------------------------------------------------------------

NOTHING = ("heron.metrics.export_interval_s=3600", "heron.trace.per_s=0")
PAIRS, PAIR_S = 8, 5.0


def hot_figures() -> list[Row]:
    """Measure CPU-s per million words of the word count with metrics and marks, each run between two plain runs."""
    from heronpy.loadtest import profiles
    from heronpy.loadtest.cluster import cluster
    from heronpy.loadtest.run import run_once

    kinds: dict[str, tuple[str, ...]] = {
        "metrics and default marks": (),
        "100 traces a second": ("heron.trace.per_s=100",),
    }
    ratios: dict[str, list[float]] = {name: [] for name in kinds}
    plain: list[float] = []

    def cost(settings: tuple[str, ...]) -> float:
        changes = {"containers": 1, "duration_s": PAIR_S, "warmup_s": 1.0}
        load = profiles.changed(profiles.load("word_count"), changes, list(settings))
        return float(run_once(where, load, next(numbers))["figures"]["cpu_s_per_million"])

    numbers = itertools.count(1)
    with cluster() as where:
        plain.append(cost(NOTHING))
        for _ in range(PAIRS):
            for name, settings in kinds.items():
                with_it = cost(settings)
                plain.append(cost(NOTHING))
                ratios[name].append(2 * with_it / (plain[-1] + plain[-2]))
    return [
        Row(
            f"word count with {name}, compared with none",
            f"{statistics.median(found):.3f}x ({min(found):.2f} to {max(found):.2f}, {PAIRS} pairs,"
            f" {statistics.median(plain):.3f} CPU-s per million words)",
            goal,
        )
        for (name, found), goal in zip(ratios.items(), ("1.03x", "1.05x"))
    ]


# ---- the table --------------------------------------------------------------------------------


def main() -> None:
    parts: dict[str, Callable[[Any], list[Row]]] = {
        "page": lambda given: page_figures(given.seconds, given.tasks, given.keep),
        "stream": lambda given: stream_figures(given.seconds / 2),
        "tracker": lambda given: tracker_figures(given.seconds / 2),
        "screen": lambda _: screen_figures(),
        "doctor": lambda _: doctor_figures(),
        "start": lambda _: start_figures(),
        "logs": lambda _: logs_figures(),
        "hot": lambda _: hot_figures(),
    }
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds for which an open page is watched")
    parser.add_argument("--tasks", type=int, default=500, help="number of tasks of the page's topology")
    parser.add_argument("--keep", type=Path, help="folder for Chromium's traces")
    given = parser.parse_args()
    for name in given.parts or parts:
        if name not in parts:
            parser.error(f"there is no part {name}; choose from {', '.join(parts)}")
    print(
        f"{date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.release()}"
    )
    print("| what | found | goal |\n|---|---|---|")
    for name in given.parts or parts:
        for row in parts[name](given):
            print(row, flush=True)


if __name__ == "__main__":
    main()
