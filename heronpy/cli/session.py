"""What a verb needs of a cluster: its settings, its state manager, and RPC to a topology's masters.

A Session is made per command and knows one cluster. It opens nothing before it is asked to. Every
lookup of a topology ends in its execution state or in a Failure that names the nearest topology.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from heronpy.cli import client_config, exits, output
from heronpy.cli.target import Common, Target
from heronpy.common.absolute import absolute

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from heronpy.common.settings import Resolved
    from heronpy.net.curve import Keys
    from heronpy.net.rpc import RpcClient
    from heronpy.plan.launch import LaunchSpec
    from heronpy.proto import control_pb2 as control
    from heronpy.proto import plan_pb2 as plans
    from heronpy.proto import topology_pb2 as api
    from heronpy.statemgr.base import StateManager


M = TypeVar("M", bound="Message")


def heron_home() -> Path:
    """Where heron keeps state, packages and working directories."""
    return absolute(os.environ.get("HERON_HOME") or "~/.herondata")


def _absolute(folder: str) -> str:
    return str(absolute(folder))


def _pinned(store: Any) -> Any:
    """A store of checkpoints, a folder or a map with one, with its folder absolute."""
    if isinstance(store, dict):
        return {**store, "folder": _absolute(str(store["folder"]))} if store.get("folder") else store
    return _absolute(str(store))


def known_clusters(config_path: str | None = None) -> list[str]:
    """Clusters that have settings files, in the folders that a command reads, or that of the client's own file."""
    from heronpy.common import settings
    from heronpy.common.errors import ConfigError

    try:
        found = set(settings.clusters_of(settings.find_conf(config_path)))
    except ConfigError:  # a folder that is not there, which the command says
        found = {"local"}
    home = client_config.config_home()
    named = [entry.name for entry in home.iterdir() if entry.is_dir()] if home.is_dir() else []
    return sorted(found.union(name for name in named if client_config.ClientConfig(name).get("config-path")))


def _taken_for_clusters() -> list[str]:
    """What a first word that is no topology may have been meant for: a cluster, where none was named."""
    import click

    from heronpy.cli.reading import LEFT_OUT

    ctx = click.get_current_context(silent=True)
    return known_clusters() if ctx is not None and ctx.meta.get(LEFT_OUT) else []


class Session:
    """One command's view of one cluster."""

    def __init__(self, target: Target, common: Common | None = None, lenient: bool = False) -> None:
        self.common = common or Common()
        self._lenient = lenient
        self._told: set[str] = set()
        self.client = client_config.ClientConfig(target.cluster)
        if lenient:
            self._leave_out_broken_client_file()
        self.target = Target(
            target.cluster,
            target.role or self.client.get("role"),
            target.environ or self.client.get("environ"),
        )

    def _leave_out_broken_client_file(self) -> None:
        try:
            _ = self.client.values
        except exits.Failure as error:
            output.warning(f"left out: {error}")
            self.client.values = {}

    # ---- settings -------------------------------------------------------------------------

    @property
    def overrides(self) -> list[str]:
        """Settings from the client's own file, then those of the command line, which win."""
        return self.client.properties() + list(self.common.config_property)

    def conf_dirs(self) -> list[Path]:
        from heronpy.common import settings

        path = self.common.config_path or self.client.get("config-path")
        if path and not Path(path).expanduser().is_dir():
            raise exits.Failure(
                f"--config-path {path} is no folder; name one that has {self.target.cluster}/<room>.yaml", exits.USAGE
            )
        return list(settings.find_conf(Path(path).expanduser() if path else None))

    def check_cluster(self) -> None:
        """A ConfigError that names the nearest cluster when there are no settings of this one."""
        from heronpy.common import settings

        settings.check_cluster(self.target.cluster, self.conf_dirs())

    def resolve(
        self,
        topology_config: dict[str, Any] | None = None,
        component_configs: dict[str, dict[str, Any]] | None = None,
    ) -> Resolved:
        """Settings of the cluster with those of a topology on top.

        A bad one is a ConfigError; a lenient session leaves it out and says so once.
        """
        from heronpy.common import settings

        given = (topology_config or {}, component_configs or {}, self.overrides)
        given_in = self.client.given_in(settings.split_overrides(self.common.config_property))
        resolved = settings.resolve(
            self.target.cluster, self.conf_dirs(), *given, lenient=self._lenient, given_in=given_in
        )
        if self._lenient:
            for text in resolved.ignored:
                if text not in self._told:
                    output.warning(text)
            self._told.update(resolved.ignored)
        return resolved

    def state_place(self, resolved: Resolved) -> tuple[str, str]:
        """Type and root of the state manager."""
        room = resolved.settings["statemgr"]
        kind, root = str(room.get("type") or "local"), str(room.get("root") or "")
        if kind == "local":
            root = _absolute(root or str(heron_home() / "state" / self.target.cluster))
        return kind, root

    def pin_stores(self, resolved: Resolved) -> None:
        """Make the folders of checkpoints absolute: the topology's processes run elsewhere than this command."""
        room = resolved.settings["checkpoint"]
        room["root"] = _absolute(room["root"] or str(heron_home() / "checkpoints" / self.target.cluster))
        room["replica"] = _absolute(room["replica"]) if room["replica"] else ""
        room["stores"] = {name: _pinned(given) for name, given in room["stores"].items()}

    # ---- state ----------------------------------------------------------------------------

    @cached_property
    def state(self) -> StateManager:
        return self.open_state()

    def open_state(self) -> StateManager:
        """A state manager of the caller's own, to be closed by it."""
        from heronpy.common.folders import check_root
        from heronpy.common.rooms import StatemgrSettings
        from heronpy.statemgr import open_state

        # Before anything below it is believed: records name the files that the other verbs act on.
        check_root(heron_home(), "HERON_HOME")
        resolved = self.resolve()
        kind, root = self.state_place(resolved)
        return open_state(kind, root, StatemgrSettings(**resolved.settings["statemgr"]))

    def names(self) -> list[str]:
        """Names of the topologies of the cluster (of the role and environ, when given)."""
        return [record.topology for record in self.topologies()]

    def topologies(self) -> list[plans.ExecutionState]:
        from heronpy.statemgr import paths

        folder = paths.execution_state("x").rsplit("/", 1)[0]
        records = [self.record(name) for name in sorted(self.state.children(folder))]
        return [record for record in records if record is not None and self._mine(record)]

    def record(self, topology: str) -> plans.ExecutionState | None:
        """The execution state of a topology, or None."""
        from heronpy.proto import plan_pb2 as plans
        from heronpy.statemgr import paths

        found = self.state.get(paths.execution_state(topology))
        return plans.ExecutionState.FromString(found[0]) if found else None

    def _mine(self, record: plans.ExecutionState) -> bool:
        target = self.target
        return target.role in (None, record.role) and target.environ in (None, record.environ)

    def find(self, topology: str) -> plans.ExecutionState:
        """The execution state; a Failure (exit code 3) when there is no such topology."""
        record = self.record(topology)
        if record is None:
            cluster = self.target.cluster
            known = [*self.names(), *_taken_for_clusters()]
            hint = exits.nearest(topology, known, f"; run 'heron list {cluster}' to see what runs")
            if self.logs_of_ended(topology):
                hint = f" now; 'heron logs {self.target} {topology}' shows what its last run logged"
            raise exits.Failure(f"cluster {cluster} has no topology '{topology}'{hint}", exits.NOT_FOUND)
        if not self._mine(record):
            raise exits.Failure(
                f"topology '{topology}' is not in {self.target} but in"
                f" {record.cluster}/{record.role}/{record.environ}; name that instead",
                exits.NOT_FOUND,
            )
        return record

    def logs_of_ended(self, topology: str) -> list[Path]:
        """The folders of logs that runs of this name have left, one per role."""
        base, role = heron_home() / "topologies" / self.target.cluster, self.target.role
        roles = [base / role] if role else sorted(base.iterdir()) if base.is_dir() else []
        return [path for path in (folder / topology / "log-files" for folder in roles) if path.is_dir()]

    def launch_of(self, record: plans.ExecutionState) -> LaunchSpec:
        from heronpy.plan.launch import LaunchSpec

        return LaunchSpec.load(record.launch_file)

    def topology(self, name: str) -> api.Topology:
        from heronpy.proto import topology_pb2 as api
        from heronpy.statemgr import paths

        what = "topology definition"
        return self._parsed(api.Topology, self._must_get(paths.topology(name), name, what), name, what)

    def packing_plan(self, name: str) -> plans.PackingPlan:
        from heronpy.proto import plan_pb2 as plans
        from heronpy.statemgr import paths

        what = "packing plan"
        return self._parsed(plans.PackingPlan, self._must_get(paths.packing_plan(name), name, what), name, what)

    def update_intent(self, name: str) -> plans.UpdateIntent | None:
        """The update that is under way; None when there is none."""
        from heronpy.proto import plan_pb2 as plans
        from heronpy.statemgr import paths

        found = self.state.get(paths.update_intent(name))
        # An empty node is one that was removed.
        return self._parsed(plans.UpdateIntent, found[0], name, "update") if found and found[0] else None

    def physical_plan(self, name: str) -> plans.PhysicalPlan | None:
        from heronpy.proto import plan_pb2 as plans
        from heronpy.statemgr import paths

        found = self.state.get(paths.physical_plan(name))
        return self._parsed(plans.PhysicalPlan, found[0], name, "physical plan") if found else None

    def operation(self, name: str, timeout_s: float = 30.0) -> AbstractContextManager[None]:
        """Lock that keeps submits and kills of one topology apart; it ends with this process.

        It is the command's own: the topology's processes take other locks while a command waits for them.
        """
        return self.state.lock(f"operations/{name}", timeout_s)

    def _must_get(self, path: str, name: str, what: str) -> bytes:
        found = self.state.get(path)
        if found is None:
            raise exits.Failure(
                f"the {what} of '{name}' is missing from the state manager, as after a submit that was cut short;"
                f" run 'heron kill {self.target} {name}' and submit again"
            )
        return bytes(found[0])

    def _parsed(self, kind: type[M], data: bytes, name: str, what: str) -> M:
        from google.protobuf.message import DecodeError

        try:
            return kind.FromString(data)
        except DecodeError:
            raise exits.Failure(
                f"the {what} of '{name}' in the state manager is damaged;"
                f" run 'heron kill {self.target} {name}' and submit again"
            ) from None

    # ---- RPC ------------------------------------------------------------------------------

    def tmaster_location(self, name: str) -> plans.TmasterLocation | None:
        from heronpy.proto import plan_pb2 as plans
        from heronpy.statemgr import paths

        found = self.state.get(paths.tmaster(name))
        return plans.TmasterLocation.FromString(found[0]) if found else None

    def scheduler_location(self, name: str) -> plans.SchedulerLocation | None:
        from heronpy.proto import plan_pb2 as plans
        from heronpy.statemgr import paths

        found = self.state.get(paths.scheduler(name))
        return plans.SchedulerLocation.FromString(found[0]) if found else None

    def starting(self, record: plans.ExecutionState) -> str:
        """What a topology waits for that is being submitted and whose master cannot be asked; empty for others."""
        from heronpy.statemgr import paths

        name = record.topology
        if self.scheduler_location(name) is None:
            return "its scheduler has not started yet" if self.state.exists(paths.submission(name)) else ""
        try:
            plan = self.physical_plan(name)
            begun = plan is not None and plan.topology.id == record.topology_id
        except exits.Failure:  # Damaged: a master has run and says so itself; `list` must not fail on it.
            begun = True
        return "" if begun or self._failure_of_container_0(name) else "its topology master has not started yet"

    @contextmanager
    def tmaster(self, name: str) -> Iterator[RpcClient]:
        """A client of the topology master; a Failure when it does not run."""
        from heronpy.net.rpc import RpcClient

        location = self.tmaster_location(name)
        if location is None:
            raise exits.Failure(self._no_master(name))
        peer = f"the topology master of '{name}'"
        with RpcClient(location.endpoint, peer=peer, keys=self.keys(name)) as client:
            yield client

    def keys(self, name: str) -> Keys | None:
        """The keys of a topology's TCP links; None when they are plain."""
        from heronpy.net.transport import keys_of

        record = self.record(name)
        if record is None or not os.path.exists(record.launch_file):
            return None
        return keys_of(self.launch_of(record))

    def _no_master(self, name: str) -> str:
        if self.scheduler_location(name) is None:
            return (
                f"nothing of topology '{name}' runs any more;"
                f" run 'heron kill {self.target} {name}' to remove what is left"
            )
        failure = self._failure_of_container_0(name)
        if failure:
            return f"the topology master of '{name}' is not running: {failure}"
        return (
            f"the topology master of '{name}' is not running; it is being restarted,"
            f" or see 'heron logs {self.target} {name} tmaster' for why it cannot start"
        )

    def _failure_of_container_0(self, name: str) -> str:
        """Why the scheduler has given up the container of the topology master; empty when it has not."""
        from heronpy.common.errors import HeronError
        from heronpy.net.rpc import RpcClient
        from heronpy.proto import control_pb2 as control

        location = self.scheduler_location(name)
        if location is None:
            return ""
        try:
            with RpcClient(location.endpoint, peer=f"the scheduler of '{name}'") as client:
                reply = client.call(control.GetContainers(), 2.0)
        except HeronError:
            return ""
        return next((one.exit_detail for one in reply.containers if one.state == control.PROC_FAILED), "")

    def ask(self, name: str, body: Message, timeout_s: float = 5.0) -> Any:
        """Ask the topology master of a topology that must exist; returns the body of its reply."""
        self.find(name)
        with self.tmaster(name) as client:
            return client.call(body, timeout_s)

    def status(self, name: str, timeout_s: float = 5.0) -> control.StatusReply:
        from heronpy.proto import control_pb2 as control

        reply: control.StatusReply = self.ask(name, control.GetStatus(), timeout_s)
        return reply
