"""`heronpy.submit` and `heronpy.status`: submit and inspect topologies from programs and notebooks.

These functions return or raise HeronError. They never print to stdout, end the process, or change its signal handlers.
Tasks load the scripts that import this module, so each function imports its implementation only when it is called.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from heronpy.cli import exits
from heronpy.common.errors import DeadlineError, HeronError, TopologyError

if TYPE_CHECKING:
    from heronpy.clusters.session import Session
    from heronpy.launching.model import Started
    from heronpy.proto import control_pb2, topology_pb2

P = ParamSpec("P")
R = TypeVar("R")

LOOK_S = 0.2


def _errors(function: Callable[P, R]) -> Callable[P, R]:
    """Make the function raise the error that the command would print, with its report, as a HeronError."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except exits.Failure as failure:
            kind = DeadlineError if failure.code == exits.TIMED_OUT else HeronError
            raise kind(f"{failure}\n\n{failure.report}".rstrip()) from None
        except HeronError as error:
            if report := getattr(error, "report", ""):
                raise HeronError(f"{error}\n\n{report}") from None
            raise

    return call


class ResultWarning(UserWarning):
    """The result of a finished topology lacks tuples, or may contain tuples twice."""


class RunningTopology:
    """A topology that was submitted or found by name; a `with` block kills it on exit.

    `name` and `cluster` identify the topology. `id` distinguishes it from other topologies of the same name. `logs` is
    the folder that contains its logs.
    """

    def __init__(self, session: Session, name: str, started: Started | None = None) -> None:
        record = session.find(name)
        self._session, self._started = session, started
        self.name, self.id, self.cluster = name, record.topology_id, record.cluster
        self.logs = Path(record.working_dir) / "log-files"

    def __repr__(self) -> str:
        return f"<RunningTopology {self.name!r} of cluster {self.cluster!r}, logs in {str(self.logs)!r}>"

    @_errors
    def status(self) -> dict[str, Any]:
        """Return the content of `heron status --json`."""
        return _status_of(self._session, self._own())

    @_errors
    def exceptions(self) -> list[dict[str, Any]]:
        """Return the exceptions of user code by type and line, as in `groups` of `heron exceptions --json`."""
        from heronpy.cli.look.events import groups_json

        return groups_json(self._session, self._own())

    @_errors
    def wait(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Wait until bounded input is processed (FINISHED) and return the status; the topology is kept until `kill`.

        Warns with ResultWarning if tuples are missing from the result, or may be counted twice; `losses` in the status
        has the counts. Raises HeronError, with the tracebacks, when the topology fails, and DeadlineError after
        `timeout_s` seconds.
        """
        from heronpy.cli.render import summary
        from heronpy.cli.submit import waiting
        from heronpy.common.states import has_failed, lifecycle_name

        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            name = self._own()
            status = self._session.poll(name)
            if status is not None and has_failed(status):
                raise waiting.failure(self._session, name, status)
            if status is not None and lifecycle_name(status.lifecycle) == "FINISHED":
                lost = summary.losses_sentence(self._session.target, name, status.totals)
                for text in filter(None, (lost, summary.counted_twice_text(status))):
                    warnings.warn(text, ResultWarning, stacklevel=3)  # points at the caller of `wait`, which is wrapped
                return _status_of(self._session, name, status)
            if deadline is not None and time.monotonic() > deadline:
                state = lifecycle_name(status.lifecycle) if status is not None else "unknown"
                raise DeadlineError(f"topology '{name}' has not finished within {timeout_s:g} s; its state is {state}")
            time.sleep(LOOK_S)

    @_errors
    def kill(self, timeout_s: float = 30.0) -> None:
        """Stop the topology and remove it from the cluster; logs and checkpoints are kept. Idempotent."""
        from heronpy.clusters.killing import remove

        record = self._session.record(self.name)
        if record is not None and record.topology_id == self.id:
            remove(self._session, self.name, timeout_s, self.id)
        if self._started is not None:
            self._started.scheduler.wait(timeout_s)

    def __enter__(self) -> RunningTopology:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def _own(self) -> str:
        """Return the name; raises HeronError if the name now refers to another topology."""
        if self._session.find(self.name).topology_id != self.id:
            raise HeronError(
                f"topology '{self.name}' was killed and submitted again; use the object returned by the new submission"
            )
        return self.name


@_errors
def submit(
    topology: Any,
    name: str | None = None,
    *,
    cluster: str = "local",
    settings: Mapping[str, Any] | None = None,
    config_path: str | None = None,
    restore: str | None = None,
    timeout_s: float = 60.0,
) -> RunningTopology:
    """Start a topology from a program or a notebook and wait until every task has initialised.

    `topology` is a TopologyBuilder, a Topology subclass or a topology message, and `name` renames it. `cluster`
    may be `cluster/role/environ`; `settings` are as for --config-property; `restore` is `latest`, an id
    or a path, as for `heron submit --restore`. Modules and the running script are sent as files. Classes that
    are defined in a notebook are sent by value, in their current state.

    Raises HeronError when the topology is refused, fails (with the tracebacks) or is not running after `timeout_s`
    seconds. In these cases, nothing remains of the topology. In a script, call this below `if __name__ == "__main__":`.
    """
    from heronpy.api.topology import are_submissions_ignored
    from heronpy.cli.submit.live import start

    if are_submissions_ignored():  # a task loads the script that submitted it, which must not submit again
        raise HeronError('tasks also load this file: call heronpy.submit() below `if __name__ == "__main__":`')

    session, message = _session(cluster, settings, config_path), _message_of(topology)
    started = start(session, message, name, restore, timeout_s)
    return RunningTopology(session, message.name, started)


@_errors
def status(name: str, cluster: str = "local") -> dict[str, Any]:
    """Return the content of `heron status --json`; raises HeronError if no running topology has this name."""
    session = _session(cluster, None, None)
    session.find(name)
    return _status_of(session, name)


def _session(cluster: str, settings: Mapping[str, Any] | None, config_path: str | None) -> Session:
    from heronpy.clusters.session import Session
    from heronpy.clusters.target import Common, Target

    properties = tuple(f"{key}={value}" for key, value in (settings or {}).items())
    return Session(Target.parse(cluster), Common(config_path, properties))


def _status_of(session: Session, name: str, known: control_pb2.StatusReply | None = None) -> dict[str, Any]:
    from heronpy.cli.look.status import status_json

    return status_json(session, session.find(name), known or session.status(name))


def _message_of(topology: Any) -> topology_pb2.Topology:
    """Return a copy of the topology message to submit; raises HeronError if the topology is invalid."""
    from heronpy.api.topology import TopologyBuilder, TopologyType
    from heronpy.proto import topology_pb2

    try:
        if isinstance(topology, TopologyBuilder):
            return topology.build()
        if isinstance(topology, TopologyType):
            return topology.to_proto()
    except (ValueError, TypeError) as error:
        raise TopologyError(str(error)) from error
    if isinstance(topology, topology_pb2.Topology):
        message = topology_pb2.Topology()
        message.CopyFrom(topology)
        return message
    raise TopologyError(f"{topology!r} is not a topology; give a TopologyBuilder or a Topology subclass")
