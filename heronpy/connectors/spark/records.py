"""The records of the hand-over of micro-batches between sink tasks and the Spark gateway, as objects.

The records are the only source of truth, so either side may die at any moment, and messages may be lost. This module
defines the layout below `<topology>-<run>`, in the topology's folder `<working_dir>/spark` or in
`heron.spark.handover`, which is a folder that all hosts share, or an object store:

    gateway/<epoch>.json               the address of the gateway of this epoch; the highest epoch counts
    up                                 Spark has had a session in this run
    sinks/<component>.json             the function of the sink and its options
    <component>/schema.arrow           the schema that its tasks have agreed on
    <component>/owners/<task>/<n>.json the incarnations of a task; the highest may write
    <component>/rows/<stem>.arrow      the rows of a batch, an Arrow IPC file
    <component>/prepared/<stem>.json   the manifest of a batch whose checkpoint is not complete
    <component>/batches/<stem>.json    the manifest of a batch, which makes the batch exist
    <component>/attempts/<stem>.json   the manifest again, with the attempts so far
    <component>/fates/<stem>.json      the fate of the batch: published, failed or withdrawn
    <component>/done/<stem>.json       the outcome of a published or failed batch
    <component>/failed/<stem>.*        rows and manifest of a failed batch that no spout replays

The *fate* is one record, written by put-if-absent. The gateways that publish a batch and a sink that withdraws the
batch compete to write the record: exactly one succeeds, and the others carry out the recorded fate. Any number of
gateways may work on a batch; only the staged output that the record names becomes visible. Fates are kept as long as
outcomes.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from heronpy.common.errors import ConfigError, StateError
from heronpy.common.folders import check_root, make_folders
from heronpy.common.setting_types import SparkSettings
from heronpy.common.settings import settings_for
from heronpy.connectors.durable_files import run_token, safe_name
from heronpy.connectors.spark.handover import Manifest, Outcome, Owner, parse_stem, stem_order
from heronpy.plan.launch import LaunchSpec
from heronpy.storage.objects.folder import FolderObjects
from heronpy.storage.objects.opening import COMMAND_S, check_objects, open_objects
from heronpy.storage.objects.port import MissingObjectError, Objects
from heronpy.storage.objects.url import Url, place_of

if TYPE_CHECKING:
    import pyarrow as pa

R = TypeVar("R")

#: Seconds for which processes of a topology repeat a request to an unreachable or overloaded store.
PATIENCE_S = 20.0
UP = "up"
_SUFFIXES = {"rows": ("arrow",), "failed": ("arrow", "json")}
#: Number of earlier submissions without batches whose records are kept, because a restore may need their outcomes.
RUNS_KEPT = 8


class Fate(Enum):
    PUBLISHED = "published"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class Decision(Struct, frozen=True):
    """The fate of a batch, with its details."""

    fate: Fate
    #: The writer, a gateway's epoch or a sink's incarnation, so that records of different writers differ.
    by: str
    #: Pairs [staged, published].
    tables: list[list[str]] = []
    error: str = ""


class GatewayPlace(Struct, frozen=True):
    epoch: int
    endpoint: str


def open_handover(text: str, patience_s: float = PATIENCE_S) -> Objects:
    """Open the location in `heron.spark.handover`. Raises ConfigError if it is invalid or writable by other users."""
    place = place_of(text)
    if isinstance(place, Url):
        return open_objects(place, patience_s)
    check_root(place, "the hand-over folder")
    return FolderObjects(place)


def check_handover(text: str) -> None:
    """Raise ConfigError if `heron.spark.handover` cannot be used from this host."""
    objects = open_handover(text, COMMAND_S)
    if not isinstance(objects, FolderObjects):
        check_objects(objects, "the store of heron.spark.handover")
        return
    try:
        make_folders(objects.root)
        if not os.access(objects.root, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ConfigError(f"heron.spark.handover {objects.root} cannot be used: {error.strerror}") from None


def records_of(launch: LaunchSpec) -> RunRecords:
    """Return the records of a submission, in the topology's folder or in `heron.spark.handover`."""
    place = settings_for(launch, SparkSettings).handover
    return records_at(place, launch.working_dir, launch.topology, launch.topology_id)


def records_at(
    place: str, working_dir: str, topology: str, topology_id: str, patience_s: float = PATIENCE_S
) -> RunRecords:
    """Return the records of a submission; `place` is the value of `heron.spark.handover`."""
    objects = open_handover(place, patience_s) if place else FolderObjects(Path(working_dir) / "spark")
    return RunRecords(objects, topology, run_token(topology_id))


def forget_runs(spark_dir: Path, current: str) -> None:
    """Remove files of earlier submissions from a topology's folder.

    Keeps submissions with batches that failed or that a savepoint may name, and the last few without batches.
    """
    idle: list[Path] = []
    for run in (sinks.parent for sinks in spark_dir.glob("*/sinks")):
        kept = [path for kind in ("prepared", "failed") for path in run.glob(f"*/{kind}/*")]
        try:
            waiting = [Manifest.from_bytes(path.read_bytes()) for path in run.glob("*/batches/*.json")]
        except StateError:
            continue  # A savepoint may name the batch.
        if run.name == current or kept or any(manifest.checkpoint for manifest in waiting):
            continue
        if waiting:
            shutil.rmtree(run, ignore_errors=True)  # Spouts have replayed or lost the tuples of these batches.
        else:
            idle.append(run)
    for run in sorted(idle, key=lambda run: run.stat().st_mtime)[:-RUNS_KEPT]:
        shutil.rmtree(run, ignore_errors=True)


class RunRecords:
    """The hand-over records of one submission of a topology."""

    def __init__(self, objects: Objects, topology: str, run: str) -> None:
        self.objects = objects
        self.name = f"{safe_name(topology)}-{run}"

    def folder(self, safe_component: str) -> SinkFolder:
        return SinkFolder(self.objects, self.name, safe_component)

    def components(self) -> list[str]:
        """Return the folder names of the sinks that have started so far."""
        keys = self.objects.list(f"{self.name}/sinks", deep=False).objects
        return sorted(key.rsplit("/", 1)[-1].removesuffix(".json") for key in keys)

    def gateway(self) -> GatewayPlace | None:
        """Return the gateway with the highest epoch; None if no gateway has announced itself."""
        epochs = _numbers(self.objects.list(f"{self.name}/gateway", deep=False).objects)
        if not epochs:
            return None
        return _record(self.objects, self._gateway_key(max(epochs)), GatewayPlace)

    def announce(self, place: GatewayPlace) -> bool:
        """Write a gateway's address; return False if a gateway of this or a later epoch exists."""
        key = self._gateway_key(place.epoch)
        if not self.objects.put_if_absent(key, msgspec.json.encode(place)):
            return False
        epochs = _numbers(self.objects.list(f"{self.name}/gateway", deep=False).objects)
        self.objects.delete(self._gateway_key(epoch) for epoch in epochs if epoch < place.epoch)
        return self.is_latest(place.epoch)

    def is_latest(self, epoch: int) -> bool:
        """Whether no gateway of a later epoch has announced itself."""
        return max(_numbers(self.objects.list(f"{self.name}/gateway", deep=False).objects), default=0) <= epoch

    @property
    def was_up(self) -> bool:
        """Whether Spark has had a session in this run."""
        return self.objects.head(f"{self.name}/{UP}") is not None

    def note_up(self) -> None:
        self.objects.put_if_absent(f"{self.name}/{UP}", b"")

    def _gateway_key(self, epoch: int) -> str:
        return f"{self.name}/gateway/{epoch}.json"


class SinkFolder:
    """The records of one sink component."""

    def __init__(self, objects: Objects, run_name: str, safe_component: str) -> None:
        self.objects = objects
        self.component = safe_component
        self.run_name = run_name
        self._start = f"{run_name}/{safe_component}"

    def __str__(self) -> str:
        return f"{self.objects.name}/{self._start}"

    @property
    def failed(self) -> str:
        """Return the location of the rows of failed batches, as text."""
        return f"{self}/failed"

    def key(self, kind: str, name: str) -> str:
        return f"{self._start}/{kind}/{name}"

    # -- records of the sink --------------------------------------------------------------------

    def write_sink(self, record: bytes) -> None:
        self.objects.put(self._sink_key, record)

    def sink(self) -> bytes:
        """Return the function and options of the sink."""
        try:
            return self.objects.get(self._sink_key)
        except MissingObjectError:
            raise StateError(
                f"{self.objects.name}/{self._sink_key} is missing; restart the sink tasks to write it again"
            ) from None

    @property
    def _sink_key(self) -> str:
        return f"{self.run_name}/sinks/{self.component}.json"

    def owner(self, task: int) -> Owner | None:
        """Return the record of a task's highest incarnation, which owns the task; None if there is none yet."""
        numbers = self._incarnations(task)
        return _record(self.objects, self._owner_key(task, max(numbers)), Owner) if numbers else None

    def highest_incarnation(self, task: int) -> int:
        return max(self._incarnations(task), default=0)

    def claim_owner(self, task: int, owner: Owner, by: str = "") -> bool:
        """Become the owner; return False if another process has this incarnation. Earlier records are removed.

        Two equal claims count as the same process, unless `by` differs.
        """
        data = msgspec.json.encode({**asdict(owner), "by": by})
        if not self.objects.put_if_absent(self._owner_key(task, owner.incarnation), data):
            return False
        earlier = [number for number in self._incarnations(task) if number < owner.incarnation]
        self.objects.delete(self._owner_key(task, number) for number in earlier)
        return True

    def _incarnations(self, task: int) -> list[int]:
        return _numbers(self.objects.list(self.key("owners", str(task)), deep=False).objects)

    def _owner_key(self, task: int, incarnation: int) -> str:
        return self.key("owners", f"{task}/{incarnation}.json")

    def highest_number(self, task: int) -> int:
        """Return the highest batch number of a task; 0 if there are no batches."""
        kinds = ("rows", "prepared", "batches", "fates", "done", "failed")
        return max((number for kind in kinds for stem in self.stems(kind, task)
                    for _, number, _ in [stem_order(stem)]), default=0)  # fmt: skip

    # -- batches --------------------------------------------------------------------------------

    def stems(self, kind: str, task: int | None = None) -> list[str]:
        """Return the stems of the records of a kind, oldest first, for one task or all tasks."""
        names = self.objects.list(f"{self._start}/{kind}", deep=False).objects
        stems = {key.rsplit("/", 1)[-1].split(".")[0] for key in names}
        found = [stem for stem in stems if parse_stem(stem) and task in (None, stem_order(stem)[0])]
        return sorted(found, key=stem_order)

    def write_rows(self, stem: str, table: pa.Table) -> int:
        """Write the rows of a batch; return their size in bytes. The rows take effect once the manifest exists."""
        import pyarrow as pa

        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
        data = memoryview(out.getvalue()).cast("B")  # Arrow's buffers are signed bytes, which object stores refuse
        self.objects.put(self.key("rows", f"{stem}.arrow"), data)
        return len(data)

    def rows(self, stem: str) -> pa.Table:
        import pyarrow as pa

        data = self.objects.get(self.key("rows", f"{stem}.arrow"))
        return pa.ipc.open_file(pa.py_buffer(data)).read_all()

    def manifest(self, kind: str, stem: str) -> Manifest | None:
        data = _content(self.objects, self.key(kind, f"{stem}.json"))
        return Manifest.from_bytes(data) if data is not None else None

    def write_manifest(self, kind: str, manifest: Manifest) -> None:
        self.objects.put(self.key(kind, f"{manifest.stem}.json"), manifest.to_bytes())

    def hand_over(self, manifest: Manifest) -> None:
        """Write the manifest, with the current time; the batch exists from then on."""
        self.write_manifest("batches", replace(manifest, handed_over_at=time.time()))

    def remove(self, stem: str, *kinds: str) -> None:
        self.objects.delete(
            self.key(kind, f"{stem}.{suffix}") for kind in kinds for suffix in _SUFFIXES.get(kind, ("json",))
        )

    def retry(self, stem: str) -> bool:
        """Hand over a failed batch again with its kept rows; return False if the rows are gone. Idempotent.

        The gateway refuses the batch if a restore has replayed its rows.
        """
        manifest = self.manifest("failed", stem)
        rows = _content(self.objects, self.key("failed", f"{stem}.arrow"))
        if manifest is None or rows is None:
            return False
        self.objects.put(self.key("rows", f"{stem}.arrow"), rows)
        self.remove(stem, "attempts", "fates", "done")
        self.hand_over(replace(manifest, started=0, raised=0, prepared=False, tables=[], run_s=0.0))
        self.remove(stem, "failed")
        return True

    def decision(self, stem: str) -> Decision | None:
        return _record(self.objects, self.key("fates", f"{stem}.json"), Decision, "decide again")

    def decide(self, stem: str, decision: Decision) -> Decision:
        """Decide the fate of a batch unless it is decided; return the final decision."""
        if self.objects.put_if_absent(self.key("fates", f"{stem}.json"), msgspec.json.encode(decision)):
            return decision
        stands = self.decision(stem)
        if stands is None:
            raise StateError(
                f"the record of the outcome of batch {stem} of {self} is missing; another program is removing records"
                " in that folder"
            )
        return stands

    def overrule(self, stem: str, decision: Decision) -> None:
        """Replace the fate of a batch, because a restore voids output that was published after its checkpoint."""
        self.objects.put(self.key("fates", f"{stem}.json"), msgspec.json.encode(decision))

    def outcome(self, stem: str) -> Outcome | None:
        return _record(self.objects, self.key("done", f"{stem}.json"), Outcome)

    def write_outcome(self, stem: str, outcome: Outcome) -> None:
        """Write the outcome of a batch, which never changes afterwards."""
        self.objects.put_if_absent(self.key("done", f"{stem}.json"), msgspec.json.encode(outcome))


class AgreedSchema:
    """The schema on which the tasks of a sink agree: the first schema offered."""

    def __init__(self, folder: SinkFolder) -> None:
        self._folder = folder
        self._key = f"{folder.run_name}/{folder.component}/schema.arrow"

    def agreed(self) -> bytes | None:
        return _content(self._folder.objects, self._key)

    def offer(self, data: bytes) -> bool:
        return self._folder.objects.put_if_absent(self._key, data)

    def replace(self, data: bytes) -> None:
        self._folder.objects.put(self._key, data)


def _content(objects: Objects, key: str) -> bytes | None:
    try:
        return objects.get(key)
    except MissingObjectError:
        return None


def _record(objects: Objects, key: str, kind: type[R], fix: str = "resume without it") -> R | None:
    data = _content(objects, key)
    try:
        return msgspec.json.decode(data, type=kind) if data is not None else None
    except (ValueError, RecursionError):
        raise StateError(f"record {objects.name}/{key} is damaged; remove it to {fix}") from None


def _numbers(keys: Any) -> list[int]:
    names = (key.rsplit("/", 1)[-1].removesuffix(".json") for key in keys)
    return [int(name) for name in names if name.isdecimal()]
