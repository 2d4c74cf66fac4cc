"""Configuration keys that describe a pipeline of work units, readable without loading the pipeline's code."""

from __future__ import annotations

from typing import Final

from heronpy.plan.component_config import config_of
from heronpy.proto import components_of, topology_pb2

#: The options of the pipeline, and the function of a worker.
OPTIONS_KEY: Final = "ingest.options"
ROWS_KEY: Final = "ingest.rows"
#: Keys that a submit reads: the ledger; whether it is the default ledger, which settings may replace; the table; the
#: pattern.
LEDGER_KEY: Final = "ingest.ledger"
DEFAULT_KEY: Final = "ingest.ledger.default"
TABLE_KEY: Final = "ingest.table"
LOGS_KEY: Final = "ingest.logs"
#: The pipeline; the pipelines that it waits for, separated by commas; the site, which the submit sets if the settings
#: name it; and folders of copies.
PIPELINE_KEY: Final = "ingest.pipeline"
AFTER_KEY: Final = "ingest.after"
SITE_KEY: Final = "ingest.site"
REPLICAS_KEY: Final = "ingest.replicas"
#: "now" or "forever"; a submit with --mode batch sets "now".
UNTIL_KEY: Final = "ingest.until"
NOW: Final = "now"


def has_units(topology: topology_pb2.Topology) -> bool:
    """Whether a pipeline of work units is part of a topology."""
    return any(LEDGER_KEY in config_of(part) for part in components_of(topology).values())


def pipelines_of(topology: topology_pb2.Topology) -> tuple[str, ...]:
    """Return the names of the pipelines of work units in a topology, sorted."""
    configs = (config_of(part) for part in components_of(topology).values())
    return tuple(sorted({str(config[PIPELINE_KEY]) for config in configs if PIPELINE_KEY in config}))


def has_only_units(topology: topology_pb2.Topology) -> bool:
    """Whether all input of a topology comes from pipelines of work units."""
    return bool(topology.spouts) and all(LEDGER_KEY in config_of(spout) for spout in topology.spouts)


def until_now(topology: topology_pb2.Topology) -> topology_pb2.Topology:
    """Return a copy of the topology in which pipelines of work units process the current bytes and then end."""
    made = topology_pb2.Topology()
    made.CopyFrom(topology)
    for spout in made.spouts:
        for pair in spout.comp.config.kvs:
            if pair.key == UNTIL_KEY:
                pair.value = NOW
    return made
