"""Runs the demo: a topology reads real flights, and PySpark writes them to a table.

Submits topologies/flight_delays.py to the local cluster, prints the address of the topology's page, and waits until the
topology has ended. Then checks the table against the file of flights, and prints the result, the locations of page,
table and logs, and a next command to try.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from heronpy.clusters.target import unix_user
from heronpy.common.errors import HeronError
from heronpy.common.folders import make_folders, open_private
from heronpy.spark import archive
from heronpy.tracker import finding, place

ROOT = Path(__file__).resolve().parent.parent
TOPOLOGY = ROOT / "topologies" / "flight_delays.py"
NAME = "FlightDelays"


def page_of_demo(home: Path) -> str:
    """Start a tracker if none runs; print and return the address of the topology's page, "" if there is none."""
    try:
        address = finding.find_or_start(home, None).address
    except (HeronError, OSError) as error:
        print(f"the tracker's page is not available, and the demo continues without it: {error}", file=sys.stderr)
        return ""
    page = place.page_of(address, "local", unix_user(), "default", NAME)
    print(f"the page   {page}", flush=True)
    return page


def record_classes(home: Path) -> None:
    """Record Spark's classes in the background, once per installation, so that Spark starts faster next time."""
    if archive.find_archive() is not None:
        return
    log = home / "cache" / "spark" / "archive.log"
    make_folders(log.parent)
    with os.fdopen(open_private(log, os.O_WRONLY | os.O_TRUNC), "wb") as out:
        subprocess.Popen(
            ["nice", sys.executable, "-m", "heronpy.spark.archive"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    print(f"background Spark's classes are being recorded, so that Spark starts faster next time; log: {log}")


def main() -> int:
    """Run the demo; return its exit code."""
    if shutil.which("java") is None:
        print("error: the demo runs PySpark, which needs Java 17 or newer on the PATH", file=sys.stderr)
        return 1
    home = Path(os.environ.get("HERON_HOME") or Path.home() / ".herondata")
    table = home / "output" / f"{NAME}-{time.strftime('%Y%m%d-%H%M%S')}"
    heron = Path(sys.executable).with_name("heron")
    # Start the tracker while the topology and Spark start, because those take longer.
    starting = ThreadPoolExecutor(1).submit(page_of_demo, home)
    submit = [heron, "submit", "local", TOPOLOGY, NAME, "--output", table, "--wait", "--kill-on-interrupt"]
    code = subprocess.call([str(part) for part in submit])
    if code:
        return code
    print("\nHow late do flights leave New York? (minutes; from the table that Spark wrote)\n", flush=True)
    # The report checks the numbers before it prints them.
    code = subprocess.call([sys.executable, str(TOPOLOGY), "--report", str(table)])
    page = starting.result()
    logs = home / "topologies" / "local" / unix_user() / NAME / "log-files"
    if page:
        print(f"the page   {page}   (it shows the whole run; the tracker ends after half an hour without requests)")
    print(f"the table  {table}")
    print(f"the logs   {logs if logs.exists() else home / 'topologies'}")
    print(f"the code   {TOPOLOGY.relative_to(ROOT)}")
    print(f"next       {heron.parent}/heron submit local topologies/word_count.py wc   (see README.md, A tour)")
    record_classes(home)
    return code


if __name__ == "__main__":
    sys.exit(main())
