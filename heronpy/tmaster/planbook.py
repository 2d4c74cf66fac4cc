"""The current plan of the topology, and the inputs of the next one. Pure.

The book holds the topology, the packing plan from which the physical plan is built, and the version counter.
Invariants: versions are never reused and only increase, even across restarts of the topology master; a plan is built
only when the address of every stream manager in the packing plan is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from heronpy.common.errors import ConfigError
from heronpy.common.ids import stmgr_id
from heronpy.plan.component_config import runtime_problem, set_key, split_setting
from heronpy.plan.physical_plan import build_physical_plan
from heronpy.proto import components_of, plan_pb2, topology_pb2
from heronpy.tmaster.registry import Stmgr


class PlanBook:
    def __init__(
        self,
        topology: topology_pb2.Topology,
        packing: plan_pb2.PackingPlan,
        previous: plan_pb2.PhysicalPlan | None,
        epoch: int,
    ) -> None:
        self.topology = topology
        #: The packing plan from which the next physical plan is built.
        self.packing = packing
        self.epoch = epoch
        #: Attempts and checkpoints of the regions in the next plan (EFFECTIVELY_ONCE).
        self.regions: list[plan_pb2.RegionRecord] = []
        self.bolts = frozenset(bolt.comp.name for bolt in topology.bolts)
        #: Components whose tasks report when they are ready.
        self.asking = frozenset(bolt.comp.name for bolt in topology.bolts if bolt.comp.asks_readiness)
        self.spouts_held = previous is None or previous.spouts_held
        #: Whether the spouts wait until the topology is empty, because stream managers will be replaced or removed.
        self.held_to_empty = False
        #: The current plan; None before the first plan, and while the previous plan does not fit the packing plan.
        self.plan: plan_pb2.PhysicalPlan | None = None
        self.version = previous.version if previous is not None else 0
        #: Addresses from the last plan, used in new plans until their stream managers register.
        self._shown: dict[str, plan_pb2.StmgrRecord] = {}
        if previous is not None:
            self._shown = {record.id: record for record in previous.stmgrs}
            if placement(packing) == placement_of_plan(previous):
                self.plan = previous
        self.wanted: frozenset[str] = frozenset()
        self.use(packing)
        #: Whether the current plan is out of date.
        self.stale = self.plan is not None and (self.plan.topology != topology or self.wanted != self._shown.keys())

    def use(self, packing: plan_pb2.PackingPlan) -> None:
        """Build the next plans from this packing plan."""
        self.packing = packing
        #: Map from component to the memory above which a task is restarted; 0: the limit from the settings.
        self.memory_limits = {i.component: i.memory_limit_bytes for c in packing.containers for i in c.instances}
        self.wanted = frozenset(stmgr_id(container.id) for container in packing.containers)

    def missing(self, stmgrs: Mapping[str, Stmgr]) -> list[str]:
        """Return the stream managers whose addresses are still missing for a plan."""
        if self.wanted <= stmgrs.keys():
            return []
        usable = self._shown if self.plan is not None else {}
        return sorted(self.wanted - stmgrs.keys() - usable.keys(), key=_natural)

    def unconfirmed(self, stmgrs: Mapping[str, Stmgr]) -> bool:
        """Whether the plan would contain an old address that its stream manager has not confirmed."""
        return not self.wanted <= stmgrs.keys()

    def differs(self, record: plan_pb2.StmgrRecord) -> bool:
        """Whether the current plan lacks this stream manager or contains other data for it."""
        if record.id not in self.wanted:
            return False
        shown = self._shown.get(record.id) if self.plan is not None else None
        return shown is None or _address(shown) != _address(record)

    def build(self, stmgrs: Mapping[str, Stmgr]) -> plan_pb2.PhysicalPlan:
        """Build the next plan and make it current. Must be called only when `missing` is empty."""
        records = []
        for name in sorted(self.wanted, key=_natural):
            known = stmgrs.get(name)
            records.append(known.record if known is not None else self._shown[name])
        self.version += 1
        self.plan = build_physical_plan(self.topology, self.packing, records, self.version, self.epoch)
        self.plan.regions.extend(self.regions)
        self.plan.spouts_held = self.spouts_held or self.held_to_empty
        self._shown = {record.id: record for record in self.plan.stmgrs}
        self.stale = False
        return self.plan

    def reserve(self, version: int) -> None:
        """Never use this version or a lower one, because a process has received it."""
        self.version = max(self.version, version)

    def set_active(self, active: bool) -> bool:
        """Set whether the topology is active in the next plan; return False if nothing changes."""
        state = topology_pb2.RUNNING if active else topology_pb2.PAUSED
        if self.topology.state == state:
            return False
        topology = _copy(self.topology)
        topology.state = state
        self.topology = topology
        return True

    @property
    def active(self) -> bool:
        return self.topology.state == topology_pb2.RUNNING

    def plan_tasks(self) -> list[int]:
        return [] if self.plan is None else [record.task_id for record in self.plan.instances]

    def configure(self, settings: Iterable[str]) -> None:
        """Merge `[component:]key:value` settings into the topology of the next plan, either all of them or none."""
        topology = _copy(self.topology)
        components = components_of(topology)
        for setting in settings:
            component, key, value = split_setting(setting, components)
            problem = runtime_problem(topology, component, key, value)
            if problem is not None:
                raise ConfigError(problem)
            config = components[component].comp.config if component else topology.topology_config
            set_key(config, key, value)
        self.topology = topology


def placement(packing: plan_pb2.PackingPlan) -> dict[int, tuple[int, str]]:
    """Map each task to its container and component."""
    return {i.task_id: (c.id, i.component) for c in packing.containers for i in c.instances}


def placement_of_plan(physical: plan_pb2.PhysicalPlan) -> dict[int, tuple[int, str]]:
    """Map each task to its container and component."""
    return {i.task_id: (i.container, i.component) for i in physical.instances}


def _address(record: plan_pb2.StmgrRecord) -> tuple[int, str, str, str]:
    return record.epoch, record.data_endpoint, record.control_endpoint, record.host


def _copy(topology: topology_pb2.Topology) -> topology_pb2.Topology:
    copy = topology_pb2.Topology()
    copy.CopyFrom(topology)
    return copy


def _natural(name: str) -> tuple[int, str]:
    return len(name), name
