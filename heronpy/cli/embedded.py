"""`heronpy.submit` and `heronpy.status`: the command's work for programs and notebooks.

They return or raise HeronError; nothing prints to stdout, ends the process, or changes its signals.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from heronpy.cli import exits
from heronpy.cli.session import Session
from heronpy.cli.target import Common, Target, TargetType
from heronpy.common.errors import DeadlineError, HeronError, TopologyError

if TYPE_CHECKING:
    from heronpy.cli.submission import Started
    from heronpy.proto import control_pb2 as control
    from heronpy.proto import topology_pb2 as api

P = ParamSpec("P")
R = TypeVar("R")

LOOK_S = 0.2
CLEAN_UP_S = 15.0


def _errors(function: Callable[P, R]) -> Callable[P, R]:
    """Raise what the command would print, with its report, as a HeronError."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except exits.Failure as failure:
            kind = DeadlineError if failure.code == exits.TIMED_OUT else HeronError
            raise kind(f"{failure}\n\n{failure.report}".rstrip()) from None

    return call


class RunningTopology:
    """A topology that was submitted, or found by name; in a `with` block it is killed at the end.

    `name` and `cluster` say which; `id` tells it from others of its name; `logs` is the folder of its logs.
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
        """What `heron status --json` prints."""
        return _status_of(self._session, self._own())

    @_errors
    def exceptions(self) -> list[dict[str, Any]]:
        """The exceptions of user code by type and line, as `groups` of `heron exceptions --json`."""
        from heronpy.cli.exception_groups import groups_of
        from heronpy.proto import control_pb2 as control

        reply = self._session.ask(self._own(), control.GetExceptions())
        return [group.as_json() for group in groups_of(reply.exceptions)]

    @_errors
    def wait(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Wait until bounded input is processed (FINISHED) and return the status; the topology stays until `kill`.

        HeronError, with the tracebacks, when it fails; DeadlineError after `timeout_s` seconds.
        """
        from heronpy.cli import summary, waiting

        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            name = self._own()
            status = waiting.poll(self._session, name)
            if status is not None and waiting.failed(status):
                raise waiting.failure(self._session, name, status)
            if status is not None and summary.lifecycle_name(status) == "FINISHED":
                return _status_of(self._session, name, status)
            if deadline is not None and time.monotonic() > deadline:
                state = summary.lifecycle_name(status) if status is not None else "without an answer"
                raise DeadlineError(f"topology '{name}' has not finished within {timeout_s:g} s; it is {state}")
            time.sleep(LOOK_S)

    @_errors
    def kill(self, timeout_s: float = 30.0) -> None:
        """Stop it and remove it from the cluster; its logs and checkpoints stay. Once it is gone, nothing happens."""
        from heronpy.cli import kill

        record = self._session.record(self.name)
        if record is not None and record.topology_id == self.id:
            kill.remove(self._session, self.name, timeout_s, self.id)
        if self._started is not None:
            self._started.scheduler.wait(timeout_s)

    def __enter__(self) -> RunningTopology:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def _own(self) -> str:
        """The name, while it still stands for this topology."""
        if self._session.find(self.name).topology_id != self.id:
            raise HeronError(f"topology '{self.name}' was killed and submitted anew; use what that submit returned")
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

    `topology` is a TopologyBuilder, a Topology subclass or a topology message; `name` replaces its name. `cluster`
    may be `cluster/role/environ`; `settings` are those of --config-property; `restore` is `latest`, an id
    or a path, as for `heron submit --restore`. Code comes along as files where it has some: modules
    and the script that runs; classes that were typed into a notebook come by value, as they are now.

    HeronError when it is refused, fails (with the tracebacks) or is not running after `timeout_s` seconds; then
    nothing of it is left. In a script call this below `if __name__ == "__main__":`.
    """
    from heronpy.cli import live_code, loader, restoring, submission, waiting

    _refuse_in_task()
    deadline = time.monotonic() + timeout_s
    session = _session(cluster, settings, config_path)
    session.check_cluster()
    message = _message_of(topology)
    if name is not None:
        loader.rename(message, name)
    with tempfile.TemporaryDirectory(prefix="heron-submit-", ignore_cleanup_errors=True) as scratch:
        loaded = live_code.package_of(message, Path(scratch) / "package")
        planned = submission.plan(session, loaded.topology)
        if restore is not None:
            planned.restore = restoring.choose(planned, restore, allow_dropped=False)
        submission.check_host(planned)
        started = submission.start(session, planned, loaded)
    tasks = sum(len(container.instances) for container in planned.packing_plan.containers)
    try:
        waiting.until_running(session, started, tasks, max(deadline - time.monotonic(), 1.0))
        return RunningTopology(session, message.name, started)
    except BaseException:
        _take_down(session, started)
        raise


@_errors
def status(name: str, cluster: str = "local") -> dict[str, Any]:
    """What `heron status --json` prints of a running topology; HeronError when there is none of this name."""
    session = _session(cluster, None, None)
    session.find(name)
    return _status_of(session, name)


def _session(cluster: str, settings: Mapping[str, Any] | None, config_path: str | None) -> Session:
    import click

    try:
        target: Target = TargetType().convert(cluster, None, None)
    except click.BadParameter as error:
        raise HeronError(error.message) from None
    properties = tuple(f"{key}={value}" for key, value in (settings or {}).items())
    return Session(target, Common(config_path, properties))


def _status_of(session: Session, name: str, known: control.StatusReply | None = None) -> dict[str, Any]:
    from heronpy.cli import stateful
    from heronpy.cli.listing import status_json

    found = known or session.status(name)
    return {**status_json(session.find(name), found), **stateful.as_json(session, found)}


def _message_of(topology: Any) -> api.Topology:
    """A message of its own for this submit; HeronError for what is wrong with the topology."""
    from heronpy.api.topology import TopologyBuilder, TopologyType
    from heronpy.proto import topology_pb2 as api

    try:
        if isinstance(topology, TopologyBuilder):
            return topology.build()
        if isinstance(topology, TopologyType):
            return topology.to_proto()
    except (ValueError, TypeError) as error:
        raise TopologyError(str(error)) from error
    if isinstance(topology, api.Topology):
        message = api.Topology()
        message.CopyFrom(topology)
        return message
    raise TopologyError(f"{topology!r} is no topology; give a TopologyBuilder or a Topology subclass")


def _refuse_in_task() -> None:
    """A task loads the script that submitted it: it must not submit again."""
    from heronpy.api.topology import are_submissions_ignored

    if are_submissions_ignored():
        raise HeronError('a task loads this file, too: call heronpy.submit() below `if __name__ == "__main__":`')


def _take_down(session: Session, started: Started) -> None:
    """A submit that fails, is late or is interrupted leaves nothing behind."""
    from heronpy.cli import cleanup

    name = started.record.topology
    record = session.record(name)
    if record is None or record.topology_id == started.record.topology_id:
        with cleanup.uninterrupted(), session.operation(name):
            cleanup.take_down(session, started.record, CLEAN_UP_S)
    started.scheduler.wait(CLEAN_UP_S)
