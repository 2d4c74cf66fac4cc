"""Runs a streamlet program: turns its builder and configuration into a submitted topology."""

from __future__ import annotations

from heronpy.api.api_constants import TOPOLOGY_RELIABILITY_MODE, TopologyReliabilityMode
from heronpy.api.topology import TopologyBuilder
from heronpy.plan import windows
from heronpy.plan.logical import LogicalPlan
from heronpy.streamlet.builder import Builder
from heronpy.streamlet.config import Config
from heronpy.streamlet.errors import StreamletError


class Runner:
    """Runs the computation that a Builder describes."""

    def build(self, name: str, config: Config, builder: Builder) -> TopologyBuilder:
        """Return the topology builder that `run` would submit; unit tests pass it to the simulator.

        Under ATLEAST_ONCE, topology.message.timeout.secs and topology.max.spout.pending are derived from the windows
        unless the configuration sets them.
        """
        if not isinstance(name, str):
            raise StreamletError(f"the topology name must be a str, not {type(name).__name__}")
        if not isinstance(config, Config):
            raise StreamletError(f"config must be a heronpy.streamlet Config, not {type(config).__name__}")
        if not isinstance(builder, Builder):
            raise StreamletError(f"builder must be a heronpy.streamlet Builder, not {type(builder).__name__}")
        topology_builder = TopologyBuilder(name=name)
        builder.build(topology_builder)
        topology_builder.set_config(dict(config._api_config))
        if config._api_config.get(TOPOLOGY_RELIABILITY_MODE) == TopologyReliabilityMode.ATLEAST_ONCE:
            # Elements are pending until their windows end; limits set by the user take precedence.
            limits = windows.limits_for(LogicalPlan.from_topology(topology_builder.build()))
            topology_builder.set_config({**limits, **config._api_config})
        return topology_builder

    def run(self, name: str, config: Config, builder: Builder) -> None:
        """Build the topology and submit it."""
        self.build(name, config, builder).build_and_submit()
