"""The topology of `heron verify run`: source -> work -> sink, by key all the way, so the order of keys is kept.

heron submit local topology.py - --spec spec.json
"""

from __future__ import annotations

from heronpy.api import api_constants
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.loadtest.topologies.parts import read_spec
from heronpy.verify.relay import PAUSE_KEY, VerifiedRelay
from heronpy.verify.sink import VerifiedSink
from heronpy.verify.source import SeededSource
from heronpy.verify.stream import spec_of


def main() -> None:
    """Describe the topology and submit it."""
    run = read_spec(__doc__)
    made = TopologyBuilder(run["name"])
    made.set_config(
        {
            api_constants.TOPOLOGY_STMGRS: run["containers"],
            api_constants.TOPOLOGY_RELIABILITY_MODE: run["mode"],
            api_constants.TOPOLOGY_MAX_SPOUT_PENDING: run["max_spout_pending"],
            api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS: run["message_timeout_s"],
            **run["settings"],
        }
    )
    config = spec_of(run["input"]).config(run["out"])
    tasks, key = run["tasks"], Grouping.fields("key")
    source = made.add_spout("source", SeededSource, par=min(tasks, run["input"]["partitions"]), config=config)
    relay = {**config, PAUSE_KEY: run["pause_ms"]}
    work = made.add_bolt("work", VerifiedRelay, par=tasks, inputs={source: key}, config=relay)
    made.add_bolt("sink", VerifiedSink, par=tasks, inputs={work: key}, config=config)
    made.build_and_submit()


if __name__ == "__main__":
    main()
