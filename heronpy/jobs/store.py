"""The only writer of jobs: all changes by people, programs and the scaler reach the state manager through it.

A job is one node, so a change is one compare-and-set that succeeds as a whole or not at all. The node also contains its
last change. The next writer appends that change to the log before writing its own change, so a writer that dies between
the two writes loses no history. An unreadable node affects only its own job.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from google.protobuf.message import DecodeError
from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.errors import (
    ConfigError,
    DamagedStateError,
    HeronError,
    NodeExistsError,
    NoNodeError,
    StateError,
    VersionMismatchError,
)
from heronpy.common.ids import topology_name_problem
from heronpy.common.log_format import is_plain
from heronpy.common.nearest import suggestion
from heronpy.jobs import merge
from heronpy.jobs.documents import FORMAT, LAYERS, Document, Path, check_layer, component_of, document_of, leaves_of
from heronpy.jobs.merge import Change, Found, Layer, Stamp
from heronpy.jobs.syncer import Running, released
from heronpy.proto import components_of, topology_pb2
from heronpy.scaling.figures import Observation
from heronpy.scaling.state import State
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

S = TypeVar("S", bound=Struct)
#: Function from a layer and its changes, the oldest first, to the new layer.
Edit: TypeAlias = Callable[[Layer, Sequence[Change]], Layer]

CHANGES_MAX: Final = 100
DECISIONS_MAX: Final = 100
NEWS_MAX: Final = 256
#: Size limit of a log; beyond it, the older half of the changes is dropped.
LOG_BYTES_MAX: Final = 512 << 10
#: Maximum number of attempts. A compare-and-set fails only if another one succeeds, so writers need far fewer.
TRIES_MAX: Final = 1000
WHO_CHARS_MAX: Final = 100
WHY_CHARS_MAX: Final = 500
#: Maximum number of keys that an error names.
KEYS_SHOWN: Final = 3
#: Longest time in days for which a change remains in effect.
FOR_DAYS_MAX: Final = 10_000
#: Maximum number of programs whose components are cached.
KNOWN_MAX: Final = 256
#: Field of `Definition.submitted`: the components that keep a plain State.
PLAIN: Final = "plain"


class Definition(Struct, frozen=True):
    """A deployed program, named by its digest."""

    topology: bytes
    """The encoded proto Topology, without an id."""
    submitted: dict[str, Any]
    """The fields of `heronpy.plan.launch.Submitted`, without ids, and PLAIN; the package is named by its digest."""


class Job(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a job's node."""

    created: float
    layers: dict[str, Layer]
    last: tuple[Change, ...]
    """The changes made by the last write."""
    adopted: Running | None = None
    """The state of a job made from a running topology, until a syncer has taken it over."""
    format: int = FORMAT


class Decision(Struct, frozen=True, forbid_unknown_fields=True):
    """A decision to act or not to act on a job, with the reason."""

    at: float
    who: str
    component: str
    text: str


class Log(Struct, frozen=True, forbid_unknown_fields=True):
    """The log of a job, oldest entry first."""

    created: float
    """Creation time of the job, which distinguishes this log from the log of an earlier job with the same name."""
    changes: tuple[Change, ...] = ()
    decisions: tuple[Decision, ...] = ()
    format: int = FORMAT


class Scaled(Struct, frozen=True):
    """The scaler's memory of a job, and the job's last figures."""

    created: float
    """Creation time of the job, as in `Log`."""
    state: State = State()
    look: Observation | None = None
    format: int = FORMAT


class News(Struct, frozen=True, forbid_unknown_fields=True):
    """The numbers of the most recent changes, with the names of the changed jobs."""

    number: int = 0
    names: tuple[tuple[int, str], ...] = ()
    format: int = FORMAT


class View(Struct, frozen=True):
    """A job with its merged document, for readers."""

    document: Document
    found: dict[Path, Found]
    """The origin of each leaf of the document."""
    ignored: list[Found]
    """Leaves for components that the program no longer has."""
    versions: dict[str, int]
    """The version of each layer."""
    created: float
    """When the job was created."""


#: Check of a change from one view to another, or of a new job without the first view; raises HeronError to refuse it.
Check: TypeAlias = Callable[[str, View | None, View], None]


class Store:
    """The jobs of a cluster. Times are seconds since 1970, because an override ends at the same time on every host."""

    def __init__(self, state: StateManager, clock: Callable[[], float] = time.time, check: Check | None = None) -> None:
        self._state = state
        self._clock = clock
        #: Called before each write of a changed layer.
        self._check = check
        #: Map from digest to components, cached because a definition never changes.
        self._components: dict[str, dict[str, bool]] = {}

    def names(self) -> list[str]:
        """Return the names of all jobs, including unreadable jobs."""
        return self._state.children(paths.JOBS)

    def known(self) -> list[str]:
        """Return the names of all jobs, and of deleted jobs that may have left nodes or a topology."""
        return sorted({*self.names(), *self._state.children(paths.RUNNING_JOBS)})

    def get(self, name: str, at: float | None = None) -> View:
        """Return the desired state of a job now, or at a later time if nobody changes the job until then."""
        return self._view(name, self._read(name), self._clock() if at is None else at)

    def create(
        self, name: str, layers: Mapping[str, object], who: str, why: str, running: Running | None = None
    ) -> View:
        """Create a job with these layers, one of which names a definition. `running` is the state of a topology that is
        already running.
        """
        problem = topology_name_problem(name)
        if problem:
            raise ConfigError(f"the job name {name[:200]!r} {problem}; choose another name")
        stamp = self._stamp(who, why)
        made = {
            layer: merge.put(Layer(layer), leaves_of(given, layer), 0, (), stamp) for layer, given in layers.items()
        }
        job = Job(
            stamp.at, made, tuple(merge.change_of(Layer(layer), new, stamp) for layer, new in made.items()), running
        )
        view = self._view(name, job, stamp.at, job.last)
        if self._check is not None and running is None:
            self._check(name, None, view)
        try:
            self._state.create(paths.job(name), msgspec.json.encode(job))
        except NodeExistsError:
            raise NodeExistsError(f"job '{name}' exists; deploy the program to it, or choose another name") from None
        if running is not None:
            with suppress(VersionMismatchError, NoNodeError):  # a syncer was faster
                self.put_running(name, running, 0)
        self._tell(name)
        return view

    def set(
        self, name: str, layer: str, changes: object, version: int, who: str, why: str, for_s: float | None = None
    ) -> View:
        """Write keys of a layer. `version` is the version of the layer that the writer has read. With `for_s`, the
        change ends after this number of seconds.

        Raises ConflictError if another writer has set one of the keys to another value since that version.
        """
        leaves, stamp = leaves_of(changes, layer), self._stamp(who, why, for_s)
        if not leaves:
            raise ConfigError(f"no change is given for layer {layer} of job '{name}'; give a key and its value")

        def put(old: Layer, history: Sequence[Change]) -> Layer:
            return merge.put(old, leaves, version, history, stamp)

        return self._change(name, layer, stamp, put)

    def unset(self, name: str, layer: str, keys: Collection[str], version: int, who: str, why: str) -> View:
        """Remove keys such as `parallelism.work` or `parallelism` from a layer, and all keys below them."""
        stamp = self._stamp(who, why)
        return self._change(name, layer, stamp, lambda old, history: merge.take_out(old, keys, version, history, stamp))

    def apply(
        self, name: str, layer: str, given: object, version: int, who: str, why: str, write: bool = True
    ) -> tuple[View, Change]:
        """Replace a layer, except its program, and return the change. Raises ConflictError as `set` does.

        With `write` False, only check the change.
        """
        leaves, stamp, changes = leaves_of(given, layer), self._stamp(who, why), []

        def applied(old: Layer, history: Sequence[Change]) -> Layer:
            new = merge.become(old, leaves, version, history, stamp)
            changes.append(merge.change_of(old, new, stamp))
            return new

        return self._change(name, layer, stamp, applied, write), changes[-1]

    def revert(self, name: str, layer: str, to: int, version: int, who: str, why: str) -> View:
        """Restore version `to` of a layer. Raises ConflictError as `set` does."""
        stamp = self._stamp(who, why or f"reverted to version {to}")
        return self._change(name, layer, stamp, lambda old, history: merge.gone_back(old, to, version, history, stamp))

    def delete(self, name: str, how: str = "") -> None:
        """Remove a job whose topology is not running, even if the job cannot be read.

        `how` is appended to the error message for a job that is running or being changed.
        """
        running, _ = self.running(name)
        if running is not None and (running.plan is not None or running.state != "STOPPED"):
            raise StateError(f"job '{name}' is running or being changed; stop the job first{how}")
        if not self._state.exists(paths.job(name)):
            raise self._no_job(name)
        run = ""
        with suppress(HeronError):  # a job that cannot be read can be deleted
            run = self.get(name).document.run
        if run == "running" and running is not None and running.allotted is not None:
            raise StateError(f"job '{name}' waits for capacity to start again; stop the job first{how}")
        for path in (paths.job(name), paths.job_log(name), paths.running_job(name), paths.scaled_job(name)):
            if self._state.exists(path):
                self._state.delete(path)
        self._tell(name)

    def log(self, name: str) -> Log:
        """Return the last changes and decisions of a job."""
        return self._log(name, self._read(name))

    def decided(self, name: str, who: str, component: str, text: str) -> None:
        """Log a decision to act or not to act on a job, with the reason."""
        job, stamp = self._read(name), self._stamp(who, text)
        new = Decision(stamp.at, who, component, text)

        def add(log: Log | None) -> Log:
            log = _logged(log, job)
            return replace(log, decisions=(*log.decisions, new)[-DECISIONS_MAX:])

        self._swap(paths.job_log(name), Log, add)

    def running(self, name: str) -> tuple[Running | None, int]:
        """Return the state of a job and the version of its node; None and 0 before a syncer has seen the job."""
        running, version = self._decode(paths.running_job(name), Running)
        if running is None:
            with suppress(DamagedStateError):  # a job that cannot be read can be deleted
                job, _ = self._decode(paths.job(name), Job)
                running = job.adopted if job is not None else None
        return running, version

    def put_running(self, name: str, running: Running, version: int) -> int:
        """Write the state of a job. Raises VersionMismatchError if the node no longer has this version."""
        return self._state.set(paths.running_job(name), msgspec.json.encode(running), version)

    def scaled(self, name: str) -> tuple[Scaled, int]:
        """Return the scaler's memory of a job, and the version of its node (0 if there is no node)."""
        created = self._read(name).created
        found, version = self._decode(paths.scaled_job(name), Scaled)
        return (found if found is not None and found.created == created else Scaled(created)), version

    def put_scaled(self, name: str, scaled: Scaled, version: int) -> int:
        """Write the scaler's memory. Raises VersionMismatchError if the node no longer has this version."""
        return self._state.set(paths.scaled_job(name), msgspec.json.encode(scaled), version)

    def asynchronous(self, definition: str) -> list[str]:
        """Return the asynchronous bolts of a program."""
        return [name for name, calls in self._components_of(definition).items() if calls]

    def forget_running(self, name: str) -> None:
        """Remove the remaining nodes of a deleted job."""
        with suppress(NoNodeError):
            self._state.delete(paths.running_job(name))

    def release(self, name: str) -> bool:
        """Retry a failed or waiting job immediately; returns False if the job has not failed and does not wait."""
        job = self._read(name)

        def freed(running: Running | None) -> Running:
            return released(running) if running is not None else job.adopted or Running("")

        found = self._swap(paths.running_job(name), Running, freed)
        self._tell(name)
        return found

    def wake(self, name: str) -> None:
        """Make the syncer look at a job immediately."""
        self._tell(name)

    def news(self, since: int) -> tuple[int, list[str] | None]:
        """Return the number of the last change, and the jobs that have changed since change `since`, or None after too
        many changes.
        """
        news = self._decode(paths.JOB_NEWS, News)[0] or News()
        if not news.number - NEWS_MAX <= since <= news.number:
            return news.number, None
        return news.number, sorted(name for number, name in news.names if number > since)

    def define(self, definition: Definition) -> str:
        """Store a program; returns its digest."""
        content = msgspec.msgpack.encode(definition, order="deterministic")
        digest = sha256(content).hexdigest()
        # Written even if it exists, so that a sweep that found the program unused notices the new write.
        self._state.set(paths.definition(digest), content)
        return digest

    def definition(self, digest: str) -> Definition:
        content, _ = self._state.get(paths.definition(digest)) or (b"", 0)
        if sha256(content).hexdigest() != digest:
            raise DamagedStateError(f"definition {digest[:12]} is missing or damaged; deploy the program again")
        return msgspec.msgpack.decode(content, type=Definition)

    def sweep_definitions(self, unused: Mapping[str, int]) -> dict[str, int]:
        """Remove programs that no job uses now or used at the previous sweep, which returned `unused`."""
        used: set[bytes] = set()
        for name in self.names():
            for path in (paths.job(name), paths.job_log(name), paths.running_job(name)):
                content, _ = self._state.get(path) or (b"", 0)
                # a digest in any node counts as use, even in a damaged node or in a node of another release
                used.update(re.findall(rb"[0-9a-f]{64}", content))
        left = {}
        for digest in self._state.children(paths.DEFINITIONS):
            path = paths.definition(digest)
            _, version = self._state.get(path) or (b"", 0)
            if digest.encode() not in used and unused.get(digest) != version:
                left[digest] = version
            elif digest.encode() not in used:
                with suppress(VersionMismatchError, NoNodeError):
                    self._state.delete(path, version)
        return left

    def _change(self, name: str, layer: str, stamp: Stamp, edit: Edit, write: bool = True) -> View:
        check_layer(layer)
        views = []

        def changed(job: Job | None) -> Job:
            if job is None:
                raise self._no_job(name)
            old = job.layers.get(layer, Layer(layer))
            new = edit(old, [change for change in self._log(name, job).changes if change.layer == layer])
            if new is old:
                views.append(self._view(name, job, stamp.at))
                return job
            after = replace(job, layers=job.layers | {layer: new}, last=(merge.change_of(old, new, stamp),))
            views.append(self._view(name, after, stamp.at, after.last))
            if layer == "oncall":
                scaler, scale = job.layers.get("scaler", Layer("scaler")), views[-1].document.scale
                follows = replace(stamp, why="continues from the running topology", until=None)
                follower = merge.followed(scaler, after.last[0], scale, follows)
                if follower is not scaler:
                    last = (*after.last, merge.change_of(scaler, follower, follows))
                    after = replace(after, layers=after.layers | {"scaler": follower}, last=last)
                    views.append(self._view(name, after, stamp.at, last))
            if self._check is not None:
                self._check(name, self._view(name, job, stamp.at), views[-1])
            if layer != "scaler":  # its values are limited by the current values of the other layers
                self._check_ends(name, job, after, stamp.at)
            if not write:
                return job
            self._swap(paths.job_log(name), Log, lambda log: _logged(log, job))
            return after

        if self._swap(paths.job(name), Job, changed):
            self._tell(name)
        return views[-1]

    def _check_ends(self, name: str, before: Job, after: Job, now: float) -> None:
        """Raise HeronError if a change would become invalid when a temporary entry ends."""
        for at, keys in merge.ends_of(after.layers, now).items():
            try:
                view = self._view(name, after, at, [merge.left_at(change, at) for change in after.last])
                if self._check is not None:
                    self._check(name, self._view(name, before, at), view)
            except HeronError as error:
                some = ", ".join(keys[:KEYS_SHOWN]) + (f" and {len(keys) - KEYS_SHOWN} more" * (len(keys) > KEYS_SHOWN))
                raise type(error)(f"after the end of {some}, {error}") from None

    def _view(self, name: str, job: Job, now: float, changes: Collection[Change] = ()) -> View:
        """Return the view of a job after these changes. Raises ConfigError if a change is not allowed."""
        try:
            found = merge.effective(job.layers, now)
            definition = found.get(("definition",))
            if definition is None:
                raise ConfigError(f"job '{name}' would have no definition; deploy a program to it")
            components = self._components_of(str(definition.value))
            counting = {path: one for path, one in found.items() if component_of(path) in {None, *components}}
            document = document_of(merge.values_of(counting))
        except (msgspec.ValidationError, AttributeError, LookupError, TypeError) as error:
            raise _damaged(paths.job(name), error) from None
        for change in changes:
            merge.check_change(change, document, components)
        ignored = [one for path, one in found.items() if path not in counting]
        versions = {layer: job.layers[layer].version if layer in job.layers else 0 for layer in LAYERS}
        return View(document, counting, ignored, versions, job.created)

    def _log(self, name: str, job: Job) -> Log:
        return _logged(self._decode(paths.job_log(name), Log)[0], job)

    def _components_of(self, digest: str) -> dict[str, bool]:
        """Return the components of a program, and whether each is an asynchronous bolt."""
        if digest not in self._components:
            try:
                topology = topology_pb2.Topology.FromString(self.definition(digest).topology)
            except (DecodeError, msgspec.DecodeError):
                raise DamagedStateError(f"definition {digest[:12]} has no topology; deploy the program again") from None
            if len(self._components) >= KNOWN_MAX:
                self._components.clear()
            self._components[digest] = {name: one.comp.asynchronous for name, one in components_of(topology).items()}
        return self._components[digest]

    def _tell(self, name: str) -> None:
        """Record a change under a new number, so that the syncer looks at this job."""

        def numbered(old: News | None) -> News:
            old = old or News()
            names = [(number, other) for number, other in old.names if other != name]
            return News(old.number + 1, (*names, (old.number + 1, name))[-NEWS_MAX:])

        with suppress(DamagedStateError):  # its readers notice the damage, and look at all jobs
            self._swap(paths.JOB_NEWS, News, numbered)

    def _swap(self, path: str, kind: type[S], edit: Callable[[S | None], S]) -> bool:
        """Repeat a compare-and-set until it succeeds; returns False if the edit changes nothing."""
        for _ in range(TRIES_MAX):
            old, version = self._decode(path, kind)
            new = edit(old)
            if new is old:
                return False
            try:
                self._state.set(path, msgspec.json.encode(new), version)
                return True
            except (VersionMismatchError, NoNodeError):
                continue
        raise StateError(f"state node {path!r} is being written by too many processes at once; try again")

    def _read(self, name: str) -> Job:
        job, _ = self._decode(paths.job(name), Job)
        if job is None:
            raise self._no_job(name)
        return job

    def _decode(self, path: str, kind: type[S]) -> tuple[S | None, int]:
        """Return the content of a node and its version; None and 0 if there is no node."""
        data, version = self._state.get(path) or (b"", 0)
        return (decoded(data, kind, path), version) if version else (None, 0)

    def _stamp(self, who: str, why: str, for_s: float | None = None) -> Stamp:
        for what, text, most in (("writer", who, WHO_CHARS_MAX), ("reason", why, WHY_CHARS_MAX)):
            if len(text) > most or not is_plain(text):
                raise ConfigError(f"the {what} of a change must be one line of at most {most} characters; shorten it")
        if not who:
            raise ConfigError("the author of a change has no name; give a name")
        if for_s is not None and not 0 < for_s <= FOR_DAYS_MAX * 86_400:
            raise ConfigError(
                f"a change cannot remain in effect for {for_s:g} s; give a time above 0 and at most {FOR_DAYS_MAX}d,"
                " such as 2h"
            )
        now = self._clock()
        return Stamp(who, why, now, None if for_s is None else now + for_s)

    def _no_job(self, name: str) -> NoNodeError:
        hint = suggestion(name, self.names(), "; `heron job list` shows all jobs")
        return NoNodeError(f"there is no job '{name[:200]}'{hint}")


def decoded(data: bytes, kind: type[S], path: str) -> S:
    """Decode the content of a node. Raises DamagedStateError if it cannot be decoded."""
    try:
        found = msgspec.json.decode(data)
        form = found.get("format") if isinstance(found, dict) else None
        if isinstance(form, int) and form > FORMAT:
            raise DamagedStateError(f"state node {path!r} was written by a later release of heronpy; use that release")
        return msgspec.convert(found, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(path, error) from None


def _logged(log: Log | None, job: Job) -> Log:
    """Return the log with the last changes of the job's node; the same object if it already contains them."""
    if log is None or log.created != job.created:
        log = Log(job.created)
    new = tuple(change for change in job.last if change not in log.changes)
    if not new:
        return log
    log = replace(log, changes=(*log.changes, *new)[-CHANGES_MAX:])
    while len(log.changes) > 1 and len(msgspec.json.encode(log)) > LOG_BYTES_MAX:
        log = replace(log, changes=log.changes[len(log.changes) // 2 :])
    return log


def _damaged(path: str, error: Exception) -> DamagedStateError:
    return DamagedStateError(f"state node {path!r} cannot be read ({error}); restore it from a copy, or remove it")
