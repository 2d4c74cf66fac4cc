"""A topology builder that wraps all components and connects the last ones to the collector."""

from __future__ import annotations

import copy

import heronpy.api.api_constants as api_constants
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import Topology, TopologyBuilder, TopologyType
from heronpy.streamlet.runner import Runner
from wrapped_suite import core


class WrappingBuilder(TopologyBuilder):
    COLLECTOR = "__suite_collector"
    CONFIG = {
        api_constants.TOPOLOGY_DEBUG: True,
        api_constants.TOPOLOGY_RELIABILITY_MODE: api_constants.TopologyReliabilityMode.ATLEAST_ONCE,
        api_constants.TOPOLOGY_PROJECT_NAME: "suite",
    }

    def __init__(self, name, result):
        super().__init__(name)
        self.result = result
        self.set_config(self.CONFIG)
        self.wrapped = {}

    def add_spout(self, name, spout_cls, par, config=None, optional_outputs=None, executions=None):
        outputs = [*getattr(spout_cls, "outputs", []), *(optional_outputs or [])]
        given = copy.copy(config or {})
        if executions is not None:
            given[core.EXECUTIONS] = executions
        path = spout_cls.spec(name).python_class_path
        spec = core.WrappedSpout.spec(name, par, given, user_class=path, user_outputs=outputs)
        self.add_spec(spec)
        self.wrapped[name] = spec
        return spec

    def add_bolt(self, name, bolt_cls, par, inputs, config=None, optional_outputs=None):
        assert isinstance(inputs, dict)
        outputs = [*getattr(bolt_cls, "outputs", []), *(optional_outputs or [])]
        path = bolt_cls.spec(name).python_class_path
        spec = core.WrappedBolt.spec(name, par, inputs, config or {}, user_class=path, user_outputs=outputs)
        self.add_spec(spec)
        self.wrapped[name] = spec
        return spec

    def create_topology(self):
        """The class of the topology; its `write` submits it."""
        bolts = [spec for spec in self.wrapped.values() if not spec.is_spout]
        parents = {bolt.name: {stream.stream.component_name for stream in bolt.get_protobuf().inputs} for bolt in bolts}
        last = set(self.wrapped) - {name for names in parents.values() for name in names}
        self.add_bolt(self.COLLECTOR, core.Collector, 1, inputs={}, config={core.RESULT: self.result})
        assert not self.wrapped[self.COLLECTOR].get_protobuf().inputs
        for child, names in parents.items():
            for name in names:
                self._connect(child, name, core.CONTROL)
        for name in last:
            for output in self.wrapped[name].outputs:
                self._connect(self.COLLECTOR, name, "default" if isinstance(output, str) else output.stream_id)
        return TopologyType(self.topology_name, (Topology,), self._construct_topo_class_dict())

    def _connect(self, child, parent, stream):
        source = self.wrapped[parent]
        self.wrapped[child].inputs[source if stream == Stream.DEFAULT_STREAM_ID else source[stream]] = Grouping.ALL


class WrappingRunner(Runner):
    def run(self, name, config, builder, result):
        wrapping = WrappingBuilder(name, result)
        builder.build(wrapping)
        wrapping.set_config(config._api_config)
        return wrapping.create_topology()
