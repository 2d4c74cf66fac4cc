"""The topology of `heron verify run` for work units: lines of rotating logs into a table.

heron submit local topology.py - --spec spec.json
"""

from __future__ import annotations

from heronpy.api import api_constants
from heronpy.api.topology import TopologyBuilder
from heronpy.ingest import LineFiles, LogUnits
from heronpy.loadtest.topologies.parts import read_spec
from heronpy.verify.units.points import KEY, Lines, PointedKeeper, PointedWorker

PIPELINE = "lines"


def main() -> None:
    """Describe the topology and submit it."""
    run = read_spec(__doc__)
    made = TopologyBuilder(run["name"])
    made.set_config(
        {
            api_constants.TOPOLOGY_STMGRS: run["containers"],
            api_constants.TOPOLOGY_RELIABILITY_MODE: run["mode"],
            **run["settings"],
        }
    )
    worker, keeper = LogUnits.specs(
        PIPELINE,
        logs=run["logs"],
        rows=Lines(run["points"], run["whole"]),
        output=LineFiles(run["table"]),
        workers=run["tasks"],
        ledger=run["ledger"],
        unit_bytes=run["unit_bytes"],
        unit_wait_s=run["unit_wait_s"],
        until=run["until"],
        site=run["site"],
    )
    for spec, kind in ((worker, PointedWorker), (keeper, PointedKeeper)):
        made.add_spec(
            kind.spec(name=spec.name, par=spec.parallelism, config={**(spec.custom_config or {}), KEY: run["points"]})
        )
    made.build_and_submit()


if __name__ == "__main__":
    main()
