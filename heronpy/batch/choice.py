"""Mode auto: decides whether a topology runs as a batch or as a stream, and gives the reason. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase

from msgspec import Struct

from heronpy.batch.stages import CUT, BatchRefusedError, divide
from heronpy.common.hashing import stable_hash
from heronpy.ingest.keys import LEDGER_KEY, NOW, UNTIL_KEY, has_only_units
from heronpy.plan.component_config import config_of, reliability_mode
from heronpy.proto import topology_pb2

#: Number of equal parts for measuring the share of topologies that run as a batch.
_PARTS = 10_000
#: The key of a TextFileSpout that reads files as they grow.
_FOLLOW = "textfile.follow"


class Choice(Struct, frozen=True):
    """The mode, "batch" or "stream", and the reason as a clause."""

    mode: str
    why: str


def choose(topology: topology_pb2.Topology, allow: str = "", deny: str = "", percent: float = 100.0) -> Choice:
    """Return the mode of a topology, and the reason.

    `allow` ("" for all), `deny`: comma-separated patterns of names. `percent`: share of topologies that may be batches.
    """
    name = topology.name
    if matched := _matching(name, deny):
        return Choice("stream", f"heron.batch.auto_deny contains '{matched}'")
    if allow and not _matching(name, allow):
        return Choice("stream", f"heron.batch.auto_allow, which is '{allow}', does not match the topology's name")
    for spout in topology.spouts:
        if not is_bounded(spout):
            if "TextFileSpout" in spout.comp.traits:
                return Choice("stream", f"spout '{spout.comp.name}' follows files; give --mode batch to read them once")
            return Choice("stream", f"spout '{spout.comp.name}' is not known to end; {_fix(spout)} if the spout ends")
    try:
        if not has_only_units(topology):
            divide(topology)
    except BatchRefusedError as error:
        return Choice("stream", str(error))
    # The choice depends on the name, so that a topology has the same mode each time.
    if stable_hash(name) % _PARTS >= percent / 100 * _PARTS:
        why = f"heron.batch.auto_percent is {percent:g}, and this topology is not among these {percent:g} %"
        return Choice("stream", why)
    return Choice("batch", "all spouts of the topology end")


def _matching(name: str, patterns: str) -> str:
    return next((one for one in map(str.strip, patterns.split(",")) if one and fnmatchcase(name, one)), "")


def _fix(spout: topology_pb2.Spout) -> str:
    """Return an instruction for declaring that a spout ends."""
    if LEDGER_KEY in config_of(spout):
        return 'set until="now"'
    is_source = "StreamletSpoutBase" in spout.comp.traits
    return "give new_source bounded=True" if is_source else "set `bounded = True` in its class"


def is_bounded(spout: topology_pb2.Spout) -> bool:
    """Whether a spout ends when it runs as a stream."""
    traits = frozenset(spout.comp.traits)
    if "TextFileSpout" in traits:
        return str(config_of(spout).get(_FOLLOW, False)).lower() not in ("true", "1")
    if LEDGER_KEY in (config := config_of(spout)):
        return config.get(UNTIL_KEY) == NOW
    return "bounded" in traits or ("SplitSpout" in traits and not traits & {"follow_s", "follow_state"})


def hands_over(topology: topology_pb2.Topology) -> bool:
    """Whether a stream continues where a batch run of this topology ends, so that the run does not end the input.

    A spout that has called `end_of_input` does not continue.
    """
    exact = reliability_mode(topology) == "EFFECTIVELY_ONCE"
    return exact and any(CUT & set(spout.comp.traits) and not is_bounded(spout) for spout in topology.spouts)
