"""A command's session with one cluster: `Records`, and requests to the masters of its topologies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args, overload

from google.protobuf.message import Message
from msgspec import Struct

from heronpy.clusters.errors import ClusterError
from heronpy.clusters.records import Records, cure_of_dead
from heronpy.common.errors import DeadlineError, HeronError, LostReplyError, RpcError
from heronpy.common.ids import container_of, short_hash
from heronpy.common.setting_types import SecuritySettings
from heronpy.common.settings import settings_for
from heronpy.net.access_place import origin_of
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths

if TYPE_CHECKING:
    from heronpy.net.curve import Keys
    from heronpy.net.join_token import JoinToken
    from heronpy.net.relaying import To
    from heronpy.net.rpc import RpcClient

T = TypeVar("T", bound=Struct)

ASK_CONTAINERS_S = 2.0

#: Requests whose answer only confirms that they were carried out.
Order: TypeAlias = (
    control_pb2.SetState
    | control_pb2.RuntimeConfig
    | control_pb2.RestartTarget
    | control_pb2.RestoreCheckpoint
    | control_pb2.DeleteCheckpoints
)
#: Requests for which a topology master writes to the state manager before it answers.
_CHANGES = (*get_args(Order), control_pb2.UpdateTopology, control_pb2.TakeCheckpoint)


def failed_of(found: control_pb2.ContainersReply | None) -> control_pb2.ProcessRecord | None:
    """The first FAILED container, which the scheduler no longer restarts; None if there is none."""
    containers = found.containers if found is not None else ()
    return next((one for one in containers if one.state == control_pb2.PROC_FAILED), None)


def waiting_of(found: control_pb2.ContainersReply | None) -> list[control_pb2.ProcessRecord]:
    """The containers that wait for a host, for their start or for the end of their predecessor."""
    known = found.containers if found is not None else ()
    return [one for one in known if one.phase in ("QUEUED", "STARTING", "STANDBY")]


def named(container: control_pb2.ProcessRecord) -> str:
    return f"container {container_of(container.name)}"


class Waiting(Enum):
    """Processes for which a submit waits."""

    SCHEDULER = "its scheduler has not started yet"
    TMASTER = "its topology master has not started yet"


#: How errors name a process, by its kind in a request to the control endpoint.
_WHAT = {"scheduler": "its scheduler", "tmaster": "its topology master", "executor": "its executor"}


class Way(Struct, frozen=True):
    """How to reach a process of a topology."""

    #: Address of the process; with `to`, the address of its scheduler's control endpoint, which passes requests on.
    endpoint: str
    peer: str
    keys: Keys | None = None
    topology_id: str = ""
    to: To | None = None

    def client(self, registered: Callable[[], bool] | None = None) -> RpcClient:
        """A blocking client; see `RpcClient` for `registered`."""
        # Imported here, because this import takes as long as all others together, and a cluster may have no topology.
        if self.to is not None:
            from heronpy.net.relaying import RelayClient

            return RelayClient(self.endpoint, self.to, self.peer, self.keys)
        from heronpy.net.rpc import RpcClient

        return RpcClient(self.endpoint, None, self.peer, self.keys, registered, self.topology_id)


class Session(Records):
    """One command's view of one cluster, with access to the topologies' masters."""

    @cached_property
    def _keys(self) -> dict[str, Keys | None]:
        return {}

    def starting(self, record: plan_pb2.ExecutionState) -> Waiting | None:
        """The process for which a submit still waits; None if the topology has started or failed, or is ending."""
        name = record.topology
        if self.scheduler_location(name) is None:
            return Waiting.SCHEDULER if self.state.exists(paths.submission(name)) else None
        if not self.state.exists(paths.packing_plan(name)):
            return None  # The scheduler starts after this node is written, and a kill removes this node first.
        try:
            plan = self.physical_plan(name)
            begun = plan is not None and plan.topology.id == record.topology_id
        except ClusterError:  # Damaged: a master has run and reports it; `list` must not fail on it.
            begun = True
        return None if begun or self.failed_container(name) is not None else Waiting.TMASTER

    def under_way(self, name: str) -> ClusterError | None:
        """The error for a request while the topology is being submitted or removed; None if it is neither.

        Raises NotThereError if the topology is gone.
        """
        waits_for = self.starting(self.find(name))
        if waits_for is not None:
            return ClusterError(
                f"topology '{name}' is still being submitted: {waits_for.value};"
                f" try again when 'heron status {self.target} {name}' shows RUNNING"
            )
        return super().under_way(name)

    def find_begun(self, name: str) -> plan_pb2.ExecutionState:
        """Like `find`, but raises ClusterError while the topology is being submitted or removed and has no topology
        master.
        """
        record = self.find(name)
        busy = self.under_way(name) if self.tmaster_location(name) is None else None
        if busy is not None:
            raise busy
        return record

    @contextmanager
    def tmaster(self, name: str) -> Iterator[RpcClient]:
        """A client of the topology master; raises ClusterError if the topology master is not running.

        A DeadlineError mentions a scheduler that is not running, because the topology master may be waiting for it.
        """
        location = self.tmaster_location(name)
        if location is None:
            raise self.under_way(name) or ClusterError(self._no_master(name))
        with self._master_at(location.endpoint, name) as client:
            try:
                yield client
            except LostReplyError:
                raise
            except DeadlineError as error:
                if not self.lacks_scheduler(name):
                    raise
                raise DeadlineError(f"{error}, and {self.no_scheduler(name)}") from None

    def _master_at(self, endpoint: str, name: str) -> RpcClient:
        def registered() -> bool:
            try:
                location = self.tmaster_location(name)
            except HeronError:
                return True  # unknown
            return location is not None and location.endpoint == endpoint

        return self.way(name, self.record(name), "tmaster", endpoint).client(registered)

    def way(
        self, name: str, record: plan_pb2.ExecutionState | None, kind: str, endpoint: str, container: int = 0
    ) -> Way:
        """How to reach a process that listens at `endpoint` on its topology's host.

        `kind` is `scheduler`, `tmaster` or `executor`; an executor also needs its container. Raises ClusterError like
        `by_endpoint` and `check_endpoint`.
        """
        peers = {"scheduler": f"the scheduler of '{name}'", "tmaster": f"the topology master of '{name}'"}
        peer = peers.get(kind, f"the executor of container {container}")
        by = self.by_endpoint(record)
        if by is not None:
            from heronpy.net.relaying import To

            return Way(by.addresses[0], peer, by.keys(), to=To(kind, container))
        self.check_endpoint(record, endpoint, _WHAT[kind])
        if record is None or kind == "scheduler":
            return Way(endpoint, peer)
        return Way(endpoint, peer, self.keys(record), record.topology_id if kind == "tmaster" else "")

    def keys(self, record: plan_pb2.ExecutionState) -> Keys | None:
        """The keys of a topology's TCP links; None if it has none. Raises HeronError if they are not on this host."""
        from heronpy.net.transport import Transport, choose, keys_of

        if not os.path.exists(record.launch_file):
            # A link may be encrypted even if the file is missing on this host.
            submitted = self.submitted(record.topology)
            if submitted is None or choose(settings_for(submitted, SecuritySettings)) is Transport.IPC:
                return None
        if record.topology_id not in self._keys:
            self._keys[record.topology_id] = keys_of(self.launch_of(record))
        return self._keys[record.topology_id]

    def check_endpoint(self, record: plan_pb2.ExecutionState | None, endpoint: str, what: str) -> None:
        """Raise ClusterError for a socket of another host or topology; `what` is the process that listens there."""
        if record is None or not endpoint.startswith("ipc://"):
            return
        self.check_here(record, f"{what} accepts local connections only")
        if os.path.basename(os.path.dirname(endpoint)) != short_hash(record.topology_id):
            raise ClusterError(
                f"according to the state manager, {what} listens at {endpoint}, outside the socket folder of"
                f" topology '{record.topology}', so nothing was sent to that endpoint; kill the topology and submit it"
                " again"
            )

    def ask_executor(self, name: str, container: int, endpoint: str, request: Message, timeout_s: float) -> Any:
        """Send a request to an executor, which listens at `endpoint` on its topology's host."""
        with self.way(name, self.record(name), "executor", endpoint, container).client() as client:
            return client.call(request, timeout_s)

    def is_here(self, record: plan_pb2.ExecutionState) -> bool:
        """Whether a record's processes and files are on this host, so that requests go to the processes directly."""
        return not self.elsewhere(record) and os.path.exists(record.launch_file) and not origin_of(self.target.cluster)

    def by_endpoint(self, record: plan_pb2.ExecutionState | None) -> JoinToken | None:
        """The endpoint for requests to a topology that runs on an engine and was submitted from another host.

        None for any other topology. Raises ClusterError if this host has no access or cannot reach the scheduler.
        """
        if record is None or self.is_here(record):
            return None
        known = self.endpoints.get(record.topology_id)
        if known is not None or not self.engine_of(record.topology):
            return known
        # Imported here, because this import takes as long as all others together.
        from heronpy.net import access

        name, cluster = record.topology, self.target.cluster
        submitted = self.submitted(name)
        if submitted is not None and submitted.pool:
            raise ClusterError(
                f"topology '{name}' runs in pool '{submitted.pool}', whose topologies can be reached only from the host"
                f" of its scheduler; run the command on host {self.elsewhere(record) or 'of its scheduler'}"
            )
        client = access.client_of(cluster)
        if client is None:
            host = self.elsewhere(record) or "its own"
            raise ClusterError(
                f"topology '{name}' was submitted on host {host}, and this host has no key for it; run the command"
                f" there, or copy the key to this host: heron cluster access {cluster} there, and heron cluster access"
                f" {cluster} --install here"
            )
        location, place = self.scheduler_location(name), access.known_endpoint(cluster, name)
        if location is not None and location.endpoint_key:
            place = access.EndpointPlace(record.topology_id, tuple(location.control_endpoints), location.endpoint_key)
        if place is None or place.topology_id != record.topology_id:
            raise ClusterError(
                f"the scheduler of '{name}' is not running, and other hosts reach a topology only through its"
                f" scheduler; start it on the submitting host: heron scheduler start {self.target} {name}"
            )
        return self.reach(name, place.token(client))

    def forget(self, record: plan_pb2.ExecutionState) -> None:
        """Record that the topology was removed through its scheduler's control endpoint, which no longer exists."""
        from heronpy.clusters.access_state import AccessState
        from heronpy.net.access import forget_endpoint

        forget_endpoint(self.target.cluster, record.topology, record.topology_id)
        if isinstance(self.state, AccessState):
            self.state.gone(record.topology)

    def is_forgotten(self, record: plan_pb2.ExecutionState) -> bool:
        """Whether this or another command on this host has removed the topology through its endpoint (see `forget`)."""
        from heronpy.clusters.access_state import AccessState
        from heronpy.net.access import known_endpoint

        return isinstance(self.state, AccessState) and known_endpoint(self.target.cluster, record.topology) is None

    def _no_master(self, name: str) -> str:
        if self.lacks_scheduler(name):
            return str(self.no_scheduler(name))  # its containers may still be running, and a new scheduler finds them
        if self.scheduler_location(name) is None:
            return f"no process of topology '{name}' is running; {self.cure_of_dead(name)}"
        found = self.containers(name)
        if found is not None and found.killing:
            return (
                f"topology '{name}' was killed, and its containers are still ending; run 'heron kill {self.target}"
                f" {name}' again to finish"
            )
        failed = failed_of(found)
        if failed is not None:
            return f"the topology master of '{name}' is not running: {failed.exit_detail}"
        waits = waiting_of(found)
        if waits:
            why = f": {waits[0].words}" if waits[0].words else ""
            return f"the topology master of '{name}' is not running; {named(waits[0])} is {waits[0].phase}{why}"
        return (
            f"the topology master of '{name}' is not running; wait until it has restarted,"
            f" or see 'heron logs {self.target} {name} tmaster' for the reason why it cannot start"
        )

    def cure_of_dead(self, name: str) -> str:
        """The remedy for a topology without running processes, as a clause."""
        # Imported here, because few commands need this module.
        from heronpy.batch.run import unfinished
        from heronpy.batch.topology import run_folder

        run = ""
        with suppress(HeronError):
            run = unfinished(run_folder(self.topology(name)))
        return cure_of_dead(self.target, name, run)

    def lacks_scheduler(self, name: str) -> bool:
        """Whether a topology's containers are on an engine and its scheduler is not running."""
        return bool(self.engine_of(name)) and self.scheduler_location(name) is None

    def no_scheduler(self, name: str) -> ClusterError:
        """The error that a topology's scheduler is not running, with the command that starts it."""
        submitted = self.submitted(name)
        if submitted is not None and submitted.pool:
            pool = submitted.pool
            return ClusterError(
                f"the scheduler of pool '{pool}', which contains '{name}', is not running; start it: heron scheduler"
                f" start {self.target} {pool}"
            )
        return ClusterError(
            f"the scheduler of '{name}' is not running; start it: heron scheduler start {self.target} {name}"
        )

    def check_changes(self, name: str) -> None:
        """Raise ClusterError if the scheduler is not running and its endpoint holds the topology's state.

        The topology master would wait for the scheduler, and carry out the change after the command has timed out.
        """
        if self.scheduler_location(name) is not None:
            return
        submitted = self.submitted(name)
        if submitted is not None and submitted.engine and submitted.state_type == "local":
            raise self.under_way(name) or self.no_scheduler(name)

    def scheduler(self, name: str) -> RpcClient | None:
        """A client of the topology's scheduler; None if it is not running. ConfigError for another user's socket."""
        location = self.scheduler_location(name)
        return self.way(name, self.record(name), "scheduler", location.endpoint).client() if location else None

    def ask_scheduler(self, name: str, body: Message, timeout_s: float) -> Any:
        """The body of the reply of the topology's scheduler; raises `no_scheduler` if it is not running."""
        scheduler = self.scheduler(name)
        if scheduler is None:
            raise self.no_scheduler(name)
        with scheduler:
            return scheduler.call(body, timeout_s)

    def containers(self, name: str, timeout_s: float = ASK_CONTAINERS_S) -> control_pb2.ContainersReply | None:
        """The scheduler's report on its containers; None if it does not answer."""
        try:
            reply: control_pb2.ContainersReply = self.ask_scheduler(name, control_pb2.GetContainers(), timeout_s)
            return reply
        except HeronError:
            return None

    def failed_container(self, name: str) -> control_pb2.ProcessRecord | None:
        """The first container that the scheduler no longer restarts; None if there is none."""
        return failed_of(self.containers(name))

    def engine_of(self, name: str) -> str:
        """The kind of engine that runs a topology's containers; "" for one machine, or if unknown."""
        try:
            submitted = self.submitted(name)
        except HeronError:
            return ""
        return submitted.engine if submitted is not None else ""

    @overload
    def ask(self, name: str, body: control_pb2.GetStatus, timeout_s: float = ...) -> control_pb2.StatusReply: ...
    @overload
    def ask(self, name: str, body: control_pb2.GetMetrics, timeout_s: float = ...) -> control_pb2.MetricsReply: ...
    @overload
    def ask(
        self, name: str, body: control_pb2.GetExceptions, timeout_s: float = ...
    ) -> control_pb2.ExceptionsReply: ...
    @overload
    def ask(
        self, name: str, body: control_pb2.GetCheckpoints, timeout_s: float = ...
    ) -> control_pb2.CheckpointsReply: ...
    @overload
    def ask(
        self, name: str, body: control_pb2.TakeCheckpoint, timeout_s: float = ...
    ) -> control_pb2.TakeCheckpointReply: ...
    @overload
    def ask(self, name: str, body: control_pb2.UpdateTopology, timeout_s: float = ...) -> control_pb2.UpdateReply: ...
    @overload
    def ask(self, name: str, body: Order, timeout_s: float = ...) -> control_pb2.Ok: ...
    def ask(self, name: str, body: Message, timeout_s: float = 5.0) -> Any:
        """Ask the topology master of a topology that must exist; return the body of the reply.

        Raises ClusterError immediately for a change that would wait for a scheduler that is not running.
        """
        self.find(name)
        if isinstance(body, _CHANGES):
            self.check_changes(name)
        with self.tmaster(name) as client:
            return client.call(body, timeout_s)

    def look(self, name: str, body: Message, shape: type[T], timeout_s: float = 5.0) -> T:
        """Like `ask`, but returns the answer as a read-only struct of this shape."""
        from heronpy.net.answers import read

        return read(self.ask(name, body, timeout_s), shape)  # type: ignore[call-overload]

    def status(self, name: str, timeout_s: float = 5.0) -> control_pb2.StatusReply:
        return self.ask(name, control_pb2.GetStatus(), timeout_s)

    def poll(self, name: str, timeout_s: float = 1.0, starting_s: float = 0.0) -> control_pb2.StatusReply | None:
        """The status, or None while the topology master cannot answer.

        While the topology is starting, the topology master delays its answer until the start, by at most `starting_s`.
        """
        location = self.tmaster_location(name)
        if location is None:
            return None
        try:
            with self._master_at(location.endpoint, name) as client:
                reply: control_pb2.StatusReply | None = client.call(
                    control_pb2.GetStatus(starting_s=starting_s), timeout_s
                )
                return reply
        except (DeadlineError, RpcError):
            return None
