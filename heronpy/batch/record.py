"""The record of a batch run, and the rule by which a command continues the newest run or begins a new run. Pure."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any

from msgspec import Struct

from heronpy.common.errors import TopologyError
from heronpy.proto import components_of, topology_pb2


class RunState(StrEnum):
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    #: Finished, but not published: the rows are kept for a comparison.
    HELD = "HELD"


class RunRecord(Struct, frozen=True, kw_only=True):
    """The stored description of a run: its command, state and result."""

    topology: str
    number: int
    cluster: str
    role: str
    environ: str
    #: Digest of the program. A run continues only with the same code.
    code: str
    submitted_at: float
    state: RunState = RunState.RUNNING
    #: Why the run failed, in state FAILED.
    cause: str = ""
    #: FAILED: the fix; "" if `cause` includes the fix.
    cure: str = ""
    ended_at: float | None = None
    #: Ids of the topologies that have worked on the run; each submit adds one.
    topology_ids: tuple[str, ...] = ()
    #: The run that provides the input of this run, such as "visits/3"; "" for the current input.
    like: str = ""
    #: Whether the run publishes nothing.
    hold: bool = False
    #: Description of the input, once it is known.
    boundary: str = ""
    #: Maps each sink to the folder with its rows.
    sinks: dict[str, str] = {}
    #: Folder of the savepoint; "" without a savepoint.
    savepoint: str = ""
    #: Number of keys in saved state at the end of the run.
    keys: int = 0
    #: Whether a stream may continue from the run's state. Components with saved state then do not end with the run.
    saves: bool = False
    #: Store of the savepoint: a folder, or the URL of an object store.
    savepoints: str = ""
    key_groups: int = 0
    #: URL of the ledger of a run on several hosts; "": a file in the run's folder.
    ledger: str = ""
    #: Settings of `heron.instance` that components override.
    component_settings: dict[str, dict[str, Any]] = {}
    #: The program's arguments in the most recent command that has begun or continued the run.
    argv: tuple[str, ...] = ()

    @property
    def run(self) -> str:
        """The name of the run, such as visits/3."""
        return f"{self.topology}/{self.number}"

    @property
    def id(self) -> str:
        """A unique id of the run, because runs in different folders may have the same name."""
        return next(iter(self.topology_ids), self.run)

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, so that no command continues it."""
        return self.state in (RunState.FINISHED, RunState.HELD)


class Wanted(Struct, frozen=True):
    """The flags of a command that begins or continues a run."""

    code: str
    #: --resume: continue, even if the code has changed. --fresh: always begin a new run.
    resume: bool = False
    fresh: bool = False
    like: str = ""
    hold: bool = False


def goes_on(newest: RunRecord | None, wanted: Wanted) -> bool:
    """Whether a command continues the newest run; otherwise it begins a new run.

    Raises TopologyError for flags that contradict the run or each other.
    """
    if wanted.resume and wanted.fresh:
        raise TopologyError("--resume and --fresh exclude each other; leave out one of them")
    if newest is None or newest.has_ended:
        if wanted.resume:
            what = "no run of this topology" if newest is None else f"nothing left to do in run {newest.run}"
            raise TopologyError(f"there is {what}; leave out --resume")
        return False
    if wanted.fresh:
        return False
    if (newest.like, newest.hold) != (wanted.like, wanted.hold):
        flags = [f"--as {newest.like}"] * bool(newest.like) + ["--hold"] * newest.hold
        raise TopologyError(
            f"run {newest.run} has not finished, and was started with {' '.join(flags) or 'neither --as nor --hold'};"
            " give the same flags to continue it, or --fresh to start a new run"
        )
    if newest.code != wanted.code and not wanted.resume:
        raise TopologyError(
            f"run {newest.run} has not finished, and the program or its arguments have changed since; give --resume to"
            " continue it, which keeps the results of the old code, or --fresh to start a new run"
        )
    return True


def code_digest(package: str, topology: topology_pb2.Topology) -> str:
    """Return a digest of a program: its package, its components, and their configuration.

    Pickled values are left out, because equal values may have different pickles.
    """
    digest = hashlib.sha256(package.encode())
    bare = topology_pb2.Topology()
    bare.CopyFrom(topology)
    bare.id, bare.state = "", topology_pb2.RUNNING
    configs = [bare.topology_config, *(part.comp.config for part in components_of(bare).values())]
    for config in configs:
        kept = sorted((pair.key, pair.value) for pair in config.kvs if not pair.HasField("serialized_value"))
        digest.update(repr(kept).encode())
        config.ClearField("kvs")
    for bolt in bare.bolts:
        for source in bolt.inputs:
            source.ClearField("custom_grouping_object")
    digest.update(bare.SerializeToString(deterministic=True))
    return digest.hexdigest()
