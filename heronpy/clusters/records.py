"""The settings of a cluster, and its state manager's records of topologies.

Files and connections are opened only when needed. Every lookup of a topology returns its execution state, or raises a
NotThereError that names the nearest topology. Requests to masters are in `session`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec.structs import replace

from heronpy.clusters.client_config import ClientConfig, known_clusters
from heronpy.clusters.errors import ClusterError, EndpointAwayError, NotThereError, RequestError
from heronpy.clusters.target import Common, Target
from heronpy.common import settings
from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import ConfigError, DeadlineError, HeronError
from heronpy.common.folders import check_root, heron_home
from heronpy.common.host import Host, this_host
from heronpy.common.nearest import suggestion
from heronpy.common.setting_types import CheckpointSettings, StatemgrSettings
from heronpy.common.settings import HasSettings, Resolved
from heronpy.net.access_place import has_key, origin_of
from heronpy.plan.launch import LaunchSpec, Submitted, checkpoints_dir, local_state_root
from heronpy.proto import components_of, plan_pb2, topology_pb2
from heronpy.statemgr import open_state, paths
from heronpy.statemgr.base import StateManager
from heronpy.statemgr.file_locks import OtherHostError
from heronpy.storage.objects.url import place_of

if TYPE_CHECKING:
    from heronpy.net.join_token import JoinToken

M = TypeVar("M", bound=Message)

#: After this time, a command reports that it waits for another command.
TOLD_AFTER_S = 1.0


class Doing(Enum):
    """The activity of the command that holds the lock of a topology's operations."""

    KILLING = "killing"
    #: A submit removes the topology that it has started.
    CLEANING_UP = "cleaning up"
    #: A submit with --wait removes the finished topology.
    FINISHING = "finishing"


_DOES = {
    Doing.KILLING: "topology '{name}' is being killed by another command",
    Doing.CLEANING_UP: "topology '{name}' is being removed by the submit that started it",
    Doing.FINISHING: "topology '{name}' has ended and is being removed by the submit that waited for it",
}
_DOES_ANYTHING = "another command, such as heron kill, is running on topology '{name}'"


def cure_of_dead(target: object, topology: str, run: str = "") -> str:
    """The remedy for a topology without running processes, as a clause.

    `run` is the batch run that the same `heron submit` would continue; "" for other topologies.
    """
    again = f"repeat its command to continue batch run {run}, or " if run else ""
    return f"{again}run 'heron kill {target} {topology}' to remove its records"


def _absolute_place(place: str) -> str:
    return str(place_of(place))


def _pinned(store: Any) -> Any:
    """A checkpoint store (a folder, or a map with a folder) with an absolute folder."""
    if isinstance(store, dict):
        return {**store, "folder": _absolute_place(str(store["folder"]))} if store.get("folder") else store
    return _absolute_place(str(store))


class Records:
    """One command's view of one cluster: the cluster's settings, and the state manager's records of topologies."""

    def __init__(
        self,
        target: Target,
        common: Common | None = None,
        lenient: bool = False,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        """If `lenient`, invalid parts of the client's file and settings are ignored and reported to `warn`."""
        self.common = common or Common()
        self._warn = warn
        self._lenient = lenient
        self._told: set[str] = set()
        #: Topologies in an unknown state, because their endpoints do not answer this host.
        self.unseen: list[str] = []
        #: The topology whose lock this command holds.
        self._operating = ""
        self.client = ClientConfig(target.cluster)
        if lenient:
            self._leave_out_broken_client_file()
        self.target = Target(
            target.cluster,
            target.role or self.client.get("role"),
            target.environ or self.client.get("environ"),
            target.implied,
        )

    def _leave_out_broken_client_file(self) -> None:
        try:
            _ = self.client.values
        except ClusterError as error:
            self._warn(f"left out: {error}")
            self.client.values = {}

    # ---- settings -------------------------------------------------------------------------

    @property
    def overrides(self) -> list[str]:
        """Settings from the client's own file, then settings from the command line, which take precedence."""
        return self.client.properties() + self._command_line()

    def _command_line(self) -> list[str]:
        """The settings from the command line; a lenient session ignores invalid ones."""
        given = list(self.common.config_property)
        if not self._lenient:
            return given
        self._tell([f"ignored --config-property {text!r}, which is not key=value" for text in given if "=" not in text])
        return [text for text in given if "=" in text]

    def conf_dirs(self) -> list[Path]:
        given = self.common.config_path
        path = given or self.client.get("config-path")
        if path and not Path(path).expanduser().is_dir():
            whose = "--config-path" if given else f"config-path in {self.client.path},"
            text = f"{whose} {path} is not a folder; name a folder that contains {self.target.cluster}/<room>.yaml"
            if not self._lenient:
                raise RequestError(text)
            self._tell([f"left out: {text}"])
            path = None
        return list(settings.find_conf(Path(path).expanduser() if path else None))

    def _tell(self, texts: list[str]) -> None:
        for text in texts:
            if text not in self._told:
                self._warn(text)
        self._told.update(texts)

    def check_cluster(self) -> None:
        """Raise ConfigError, with the nearest name, if this cluster has no settings."""
        settings.check_cluster(self.target.cluster, self.conf_dirs(), known_clusters())

    def resolve(
        self, topology_config: dict[str, Any] | None = None, component_configs: dict[str, dict[str, Any]] | None = None
    ) -> Resolved:
        """Settings of the cluster, overridden by those of a topology.

        Raises ConfigError for an invalid setting; a lenient session instead ignores the setting and reports it once.
        """
        given = (topology_config or {}, component_configs or {}, self.overrides)
        given_in = self.client.given_in(settings.split_overrides(self._command_line()))
        resolved = settings.resolve(
            self.target.cluster, self.conf_dirs(), *given, lenient=self._lenient, given_in=given_in
        )
        if self._lenient:
            self._tell(resolved.ignored)
        return resolved

    def state_place(self, resolved: Resolved) -> tuple[str, str]:
        """Type and root of the state manager."""
        room = settings.settings_for(resolved, StatemgrSettings)
        kind, root = room.type or "local", room.root
        return kind, local_state_root(resolved.settings, self.target.cluster) if kind == "local" else root

    def pin_folders(self, resolved: Resolved) -> None:
        """Make folders absolute, because the topology's processes run in other folders than this command."""
        state = resolved.settings["statemgr"]
        if state["type"] in ("", "local") and state["root"]:
            state["root"] = local_state_root(resolved.settings, self.target.cluster)
        room, given = resolved.settings["checkpoint"], settings.settings_for(resolved, CheckpointSettings)
        room["root"] = _absolute_place(given.root) if given.root else str(checkpoints_dir(self.target.cluster))
        room["replica"] = _absolute_place(given.replica) if given.replica else ""
        room["stores"] = {name: _pinned(store) for name, store in given.stores.items()}
        spark = resolved.settings["spark"]
        if spark["handover"]:
            spark["handover"] = _absolute_place(str(spark["handover"]))

    # ---- state ----------------------------------------------------------------------------

    @cached_property
    def state(self) -> StateManager:
        return self.open_state()

    def open_state(self) -> StateManager:
        """A separate state manager, which the caller closes."""
        # Checked before any file in it is trusted, because records name the files that the other verbs act on.
        check_root(heron_home(), "HERON_HOME")
        resolved = self.resolve()
        kind, root = self.state_place(resolved)
        room, cluster = settings.settings_for(resolved, StatemgrSettings), self.target.cluster
        if kind != "local":
            return open_state(kind, root, room)
        if origin_of(cluster):
            return self._state_by_endpoints(room)
        try:
            return open_state(kind, root, room)
        except OtherHostError:
            if not has_key(cluster):
                raise
            # Hosts that share HERON_HOME share the key as well.
            return self._state_by_endpoints(room)

    def _state_by_endpoints(self, room: StatemgrSettings) -> StateManager:
        # Imported here, because this import takes as long as all others together.
        from heronpy.clusters.access_state import AccessState

        return AccessState(self.target.cluster, room, self.reach)

    @cached_property
    def endpoints(self) -> dict[str, JoinToken]:
        """Map from topology id to the endpoint that this host has reached."""
        return {}

    def reach(self, topology: str, token: JoinToken) -> JoinToken:
        """The endpoint of a topology, at the address that admits this host; raises ClusterError if there is none.

        Other hosts reach a topology's state and processes only through this endpoint.
        """
        found = self.endpoints.get(token.topology_id)
        if found is None:
            from heronpy.clusters.reach import address_of  # it takes as long to import as everything else

            address = address_of(topology, token, self.target.cluster, self.resolve)
            found = self.endpoints[token.topology_id] = replace(token, addresses=(address,))
        return found

    def of_this_host(self) -> str:
        """A clause to append to "there is no topology" if other hosts may have submitted topologies; "" otherwise."""
        resolved, cluster = self.resolve(), self.target.cluster
        engine = settings.settings_for(resolved, EngineSettings).kind
        if not engine or self.state_place(resolved)[0] != "local" or (has_key(cluster) and not origin_of(cluster)):
            return ""
        return (
            f" as seen from this host; to see another host's topologies, run 'heron cluster access {cluster}' there and"
            f" 'heron cluster access {cluster} --install' here"
        )

    def names(self) -> list[str]:
        """Names of the cluster's topologies (in the given role and environ, if any)."""
        return [record.topology for record in self.topologies()]

    def topologies(self, pools: bool = False) -> list[plan_pb2.ExecutionState]:
        """The cluster's topologies and, if requested, its pools.

        Topologies of other hosts are included if their endpoints answer; the others go to `warn` and `unseen`.
        """
        folder = paths.execution_state("x").rsplit("/", 1)[0]
        records, self.unseen = [], []
        for name in sorted(self.state.children(folder)):
            try:
                records.append(self.record(name))
            except EndpointAwayError as error:
                self._tell([f"left out: {error}"])
                self.unseen.append(name)
        found = [record for record in records if record is not None and self._mine(record)]
        return [record for record in found if pools or not record.program]

    def record(self, topology: str) -> plan_pb2.ExecutionState | None:
        return self._stored(plan_pb2.ExecutionState, paths.execution_state(topology))

    def _mine(self, record: plan_pb2.ExecutionState) -> bool:
        target = self.target
        return target.role in (None, record.role) and target.environ in (None, record.environ)

    def find(self, topology: str, pools: bool = False) -> plan_pb2.ExecutionState:
        """The execution state; raises NotThereError (exit code 3) if there is no such topology."""
        record = self.record(topology)
        if record is not None and record.program and not pools:
            raise NotThereError(f"'{topology}' is a pool of topologies; see heron pool --help")
        if record is None:
            cluster = self.target.cluster
            known = [*self.names(), *(known_clusters() if self.target.implied else ())]
            hint = suggestion(topology, known, f"; run 'heron list {cluster}' to see its topologies")
            if self.logs_of_ended(topology):
                hint = f" now; 'heron logs {self.target} {topology}' shows the logs of its last run"
            elif origin := origin_of(cluster):
                hint += f"; topologies in pools are visible only from host {origin}"
            raise NotThereError(f"cluster {cluster} has no topology '{topology}'{hint}")
        if not self._mine(record):
            raise NotThereError(
                f"topology '{topology}' is not in {self.target} but in"
                f" {record.cluster}/{record.role}/{record.environ}; give that target instead"
            )
        return record

    def logs_of_ended(self, topology: str) -> list[Path]:
        """The log folders that runs with this name have left, one per role."""
        base, role = heron_home() / "topologies" / self.target.cluster, self.target.role
        roles = [base / role] if role else sorted(base.iterdir()) if base.is_dir() else []
        return [path for path in (folder / topology / "log-files" for folder in roles) if path.is_dir()]

    def launch_of(self, record: plan_pb2.ExecutionState) -> LaunchSpec:
        """The content of a topology's launch file on the submitting host; raises HeronError if it cannot be read."""
        try:
            return LaunchSpec.load(record.launch_file)
        except ConfigError as error:
            self.check_here(record, f"its files are ({error})")
            raise

    def settings_of(self, record: plan_pb2.ExecutionState) -> HasSettings:
        """The settings of a topology, from its launch file or, on other hosts, from the state manager."""
        try:
            return self.launch_of(record)
        except HeronError:
            submitted = self.submitted(record.topology)
            if submitted is None or not submitted.engine or submitted.topology_id != record.topology_id:
                raise
            return submitted

    def submitted(self, name: str) -> Submitted | None:
        """The launch specification in the state manager; None if the submit has not written it yet."""
        found = self.state.get(paths.launch(name))
        return Submitted.from_bytes(found[0], f"the launch of '{name}' in the state manager") if found else None

    def elsewhere(self, record: plan_pb2.ExecutionState) -> str:
        """The host of a record's processes, sockets and files; "" if it is this host."""
        host = Host.from_text(record.host)
        return "" if host is None or host.is_same(this_host()) else host.name

    def check_here(self, record: plan_pb2.ExecutionState, what: str) -> None:
        """Raise ClusterError unless this host is the topology's host; `what` is the reason as a clause."""
        host = self.elsewhere(record)
        if host:
            raise ClusterError(
                f"topology '{record.topology}' was submitted on host {host}, where {what}; run the command there"
            )

    def topology(self, name: str) -> topology_pb2.Topology:
        return self._must_get(topology_pb2.Topology, paths.topology(name), name, "topology definition")

    def packing_plan(self, name: str) -> plan_pb2.PackingPlan:
        return self._must_get(plan_pb2.PackingPlan, paths.packing_plan(name), name, "packing plan")

    def refuse_job(self, name: str, instead: str, kills: bool = False) -> None:
        """Raise ClusterError if a job controls the topology and would undo a change.

        `instead` is the verb of `heron job`, with its arguments, that makes the change. A job that is being stopped
        does not undo a change that `kills` the topology.
        """
        if not self.state.exists(paths.job(name)):
            return
        content, _ = self.state.get(paths.running_job(name)) or (b"{}", 0)
        record, running = self.record(name), {}
        with suppress(ValueError):  # it is damaged, so no manager acts on it
            running = json.loads(content)
        if kills and [["run"], "stopped"] in running.get("tried", []):
            return
        if record is None or running.get("plan") or running.get("topology_id") == record.topology_id:
            raise ClusterError(f"topology '{name}' is controlled by its job; change the job: heron job {instead}")

    def check_component(self, topology: str, component: str | None) -> None:
        """Raise RequestError, with the nearest name, if the topology has no such component."""
        self.find(topology)
        known = list(components_of(self.topology(topology))) if component is not None else []
        if component is not None and component not in known:
            hint = suggestion(component, known, f"; it has {', '.join(known)}")
            raise RequestError(f"topology '{topology}' has no component '{component}'{hint}")

    def update_intent(self, name: str) -> plan_pb2.UpdateIntent | None:
        found = self.state.get(paths.update_intent(name))
        # An empty node means that there is no update in progress.
        return self._parsed(plan_pb2.UpdateIntent, found[0], name, "update") if found and found[0] else None

    def physical_plan(self, name: str) -> plan_pb2.PhysicalPlan | None:
        found = self.state.get(paths.physical_plan(name))
        return self._parsed(plan_pb2.PhysicalPlan, found[0], name, "physical plan") if found else None

    def tmaster_location(self, name: str) -> plan_pb2.TmasterLocation | None:
        return self._stored(plan_pb2.TmasterLocation, paths.tmaster(name))

    def scheduler_location(self, name: str) -> plan_pb2.SchedulerLocation | None:
        return self._stored(plan_pb2.SchedulerLocation, paths.scheduler(name))

    @contextmanager
    def operation(
        self,
        name: str,
        timeout_s: float = 30.0,
        doing: Doing | None = None,
        waits: Callable[[str], None] = lambda text: None,
    ) -> Iterator[None]:
        """Hold the lock that serializes submitting and killing a topology; the end of this process releases it.

        Only commands take this lock: the topology's processes take other locks while a command waits for them. `doing`
        is shown to other commands while the lock is held. If another command holds the lock, `waits` is called with the
        other command's activity.
        """
        with ExitStack() as stack:
            lock, soon_s = f"operations/{name}", min(timeout_s, TOLD_AFTER_S)
            try:
                stack.enter_context(self.state.lock(lock, soon_s))
            except DeadlineError:
                if timeout_s <= soon_s:
                    raise
                waits(f"{self._what_runs(name)}; waiting up to {timeout_s - soon_s:.0f} s for it")
                stack.enter_context(self.state.lock(lock, timeout_s - soon_s))
            self._operating = name
            try:
                with self._announced(name, doing):
                    yield
            finally:
                self._operating = ""

    @contextmanager
    def _announced(self, name: str, doing: Doing | None) -> Iterator[None]:
        """Publish the activity of this command for other processes, if the state can be written."""
        with ExitStack() as stack:
            if doing is not None:
                with suppress(HeronError):
                    own = stack.enter_context(closing(self.open_state()))  # closing it removes its ephemerals
                    own.create(paths.operation(name), doing.value.encode(), ephemeral=True)
            yield

    def under_way(self, name: str) -> ClusterError | None:
        """The error for a request while another command is removing the topology; None otherwise.

        Raises NotThereError if the topology is gone.
        """
        self.find(name)
        if self._operating == name:
            return None
        try:
            with self.operation(name, 0.0):
                self.find(name)  # it may have been removed between the two reads
        except DeadlineError:
            return ClusterError(f"{self._what_runs(name)}; try again if 'heron list {self.target}' still shows it")
        return None

    def _what_runs(self, name: str) -> str:
        """A sentence about the command that holds the lock of the topology."""
        found = self.state.get(paths.operation(name))
        words = found[0].decode(errors="replace") if found else ""
        does = next((text for doing, text in _DOES.items() if doing.value == words), _DOES_ANYTHING)
        return does.format(name=name)

    def _stored(self, kind: type[M], path: str) -> M | None:
        found = self.state.get(path)
        return kind.FromString(found[0]) if found else None

    def _must_get(self, kind: type[M], path: str, name: str, what: str) -> M:
        found = self.state.get(path)
        if found is None:
            raise self.under_way(name) or ClusterError(
                f"the {what} of '{name}' is missing from the state manager, possibly because a submit was interrupted;"
                f" run 'heron kill {self.target} {name}' and submit again"
            )
        return self._parsed(kind, found[0], name, what)

    def _parsed(self, kind: type[M], data: bytes, name: str, what: str) -> M:
        try:
            return kind.FromString(data)
        except DecodeError:
            raise ClusterError(
                f"the {what} of '{name}' in the state manager is damaged;"
                f" run 'heron kill {self.target} {name}' and submit again"
            ) from None
