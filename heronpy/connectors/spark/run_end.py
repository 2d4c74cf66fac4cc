"""Ends a batch run with SparkSinks: hands the rows of all sinks to Spark in one dispatch.

    <run>/spark/dispatches/    the dispatch, in the format of dispatches.py
    <run>/spark-plan.txt       the dispatch's final query plans, written by the gateway

Any keeper may make the dispatch, repeatedly and at any time, because the dispatch's name is derived from its rows, and
the gateway decides its fate once. After a failure, the next submission makes a dispatch with the next number and the
same batch ids.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from heronpy.common.errors import HeronError
from heronpy.common.folders import make_folders
from heronpy.common.setting_types import SparkSettings
from heronpy.common.settings import settings_for
from heronpy.connectors.durable_files import run_token, safe_name
from heronpy.connectors.spark.dispatches import DispatchFolder
from heronpy.connectors.spark.handover import Manifest, Outcome
from heronpy.connectors.spark.link import GatewayLink, link_to_gateway
from heronpy.connectors.spark.options import SinkOptions
from heronpy.connectors.spark.requirements import RUN_HOME, RUN_PLAN
from heronpy.plan.launch import LaunchSpec

#: The function that the gateway calls.
FUNCTION: Final = "import:heronpy.spark.run_sinks.aggregate_all"
_PARTITIONS = "spark.sql.shuffle.partitions"
#: Number of bytes on disk per partition of a shuffle, and limits for the number of partitions. Spark merges small
#: partitions.
PARTITION_BYTES, PARTITIONS_MIN, PARTITIONS_MAX = 16 << 20, 2, 2000
LOOK_S, REMIND_S = 0.1, 5.0


class DispatchFailedError(HeronError):
    """Spark has failed to process the dispatch of a run, and does not retry it."""


class SinkRows(Struct, frozen=True):
    options: SinkOptions
    #: The Parquet files, in the order of the input.
    files: Sequence[Path]


def shuffle_partitions(size_bytes: int) -> int:
    """Return the initial number of partitions of a shuffle in a dispatch of this size (pure)."""
    return min(PARTITIONS_MAX, max(PARTITIONS_MIN, math.ceil(size_bytes / PARTITION_BYTES)))


def hand_over(
    folder: Path,
    run: str,
    launch: LaunchSpec,
    component: str,
    sinks: Mapping[str, SinkRows],
    wait: Callable[[float], None],
) -> dict[str, str]:
    """Hand the rows of all sinks to Spark, wait until their output is published, and return the tables of each sink.

    `folder`: the folder of the run. `run`: its id. `component`: the component that hands over. `wait(seconds)` is
    called during the wait. Raises DispatchFailedError if a function of a sink fails; then nothing is published.
    """
    given = {name: one for name, one in sinks.items() if one.files}
    if not given:
        return dict.fromkeys(sinks, "")
    units = folder / RUN_HOME
    make_folders(units)
    dispatches = DispatchFolder(units, component, safe_name(component), run_token(launch.topology_id))
    names = {name: f"{safe_name(name)}-run-{run_token(run)}" for name in given}
    rows = {name: _rows_of(one.files) for name, one in given.items()}
    sizes = {name: sum(file.stat().st_size for file in one.files) for name, one in given.items()}
    token = _token(folder, given, rows)
    number, outcome = 0, None
    while number == 0 or (outcome is not None and not outcome.committed):
        number += 1
        totals = sum(rows.values()), sum(sizes.values())
        manifest = dispatches.manifest(f"run-{run_token(run)}", number, token, *totals, [])
        outcome = dispatches.outcome(manifest.stem)
    if outcome is None:
        about = [
            {"component": name, "id": names[name], "rows": rows[name], "files": [str(file) for file in one.files],
             "schema": one.options.schema, "aggregate": one.options.aggregate, "options": one.options.options}
            for name, one in given.items()
        ]  # fmt: skip
        conf = settings_for(launch, SparkSettings).conf
        partitions = {} if _PARTITIONS in conf else {_PARTITIONS: str(shuffle_partitions(sum(sizes.values())))}
        options: dict[str, Any] = {"sinks": about, "conf": partitions, "plan": str(folder / RUN_PLAN)}
        dispatches.write_function(FUNCTION, options)
        if not dispatches.is_handed_over(manifest.stem):
            dispatches.hand_over_run(manifest)
        link = link_to_gateway(launch, safe_name(component), 0, 0)
        try:
            outcome = _outcome(dispatches, manifest, link, wait)
        finally:
            link.close()
    if not outcome.committed:
        raise DispatchFailedError(f"Spark has failed: {outcome.error}")
    # A table may be a URL, which is not a Path.
    published = [table.rpartition("/") for _, table in dispatches.tables(manifest.stem)]
    return {
        name: ", ".join(folder for folder, _, batch in published if batch == f"batch={names.get(name)}")
        for name in sinks
    }  # fmt: skip


def _outcome(
    dispatches: DispatchFolder, manifest: Manifest, link: GatewayLink, wait: Callable[[float], None]
) -> Outcome:
    """Wait for the outcome of a dispatch. Hints only save time, because the gateway also looks for dispatches."""
    turn = 0
    while (outcome := dispatches.outcome(manifest.stem)) is None:
        if turn % round(REMIND_S / LOOK_S) == 0:
            link.ready([manifest.stem])
        link.finished()
        wait(LOOK_S)
        turn += 1
    return outcome


def _rows_of(files: Sequence[Path]) -> int:
    import pyarrow.parquet

    return sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)


def _token(folder: Path, sinks: Mapping[str, SinkRows], rows: Mapping[str, int]) -> int:
    files = {name: [str(file.relative_to(folder)) for file in one.files] for name, one in sinks.items()}
    return int(sha256(json.dumps([files, dict(rows)]).encode()).hexdigest()[:12], 16)
