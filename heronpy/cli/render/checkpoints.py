"""Checkpoints as tables, sentences and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from heronpy.ckpt.catalogue import Found
from heronpy.ckpt.compatibility import component_states
from heronpy.cli.output import clean, moment, picked, print_table, say
from heronpy.common.units import counted, format_bytes, format_duration
from heronpy.proto import checkpoint_pb2, control_pb2
from heronpy.storage.checkpoint_layout import path_in
from heronpy.storage.checkpoints import files_of
from heronpy.storage.locations import open_store
from heronpy.views.saved import kind_name

#: Maximum number of tasks that a sentence about a waiting checkpoint names.
_NAMED = 5


@dataclass(slots=True)
class Row:
    """One complete checkpoint."""

    checkpoint: int
    location: str
    kind: str
    taken_at: float = 0.0
    total_bytes: int = 0
    uploaded_bytes: int = 0
    duration_s: float = 0.0
    topology_id: str = ""
    unaligned: bool = False
    tasks: int = 0
    current: bool = False
    """Whether the checkpoint belongs to the current run."""
    in_use: bool = False
    """Whether a restore would start from this checkpoint now, or the topology has started from it."""
    abandoned: bool = False
    """Whether the topology was later restored from an older checkpoint."""
    damage: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in self.__slots__}, "damaged": bool(self.damage)}


def figures(record: checkpoint_pb2.CheckpointRecord) -> str:
    """Return the size and duration of a complete checkpoint as text."""
    return (
        f"{format_bytes(record.total_bytes)} of state, {format_bytes(record.uploaded_bytes)} of it written,"
        f" in {format_duration(record.duration_s)}"
    )


def record_json(record: checkpoint_pb2.CheckpointRecord) -> dict[str, Any]:
    return {
        **picked(record, "checkpoint", "location", "taken_at", "total_bytes", "uploaded_bytes", "damaged"),
        "kind": kind_name(record.kind),
        "duration_s": round(record.duration_s, 6),
        "damage": [record.damage] if record.damage else [],
    }


def _standing(row: Row) -> str:
    if row.damage:
        return "DAMAGED"
    if row.abandoned:
        return "abandoned"
    return "in use" if row.in_use else "" if row.current else "earlier run"


def waiting_names(reply: control_pb2.CheckpointsReply) -> str:
    """Return the tasks for which the checkpoint in progress waits, as the end of a sentence."""
    more = f" and {reply.pending_tasks - _NAMED} more" if reply.pending_tasks > _NAMED else ""
    names = ", ".join(reply.pending_names[:_NAMED])
    return f": {names}{more}" if names else ""


# ---- heron checkpoints list -----------------------------------------------------------------


def list_json(
    topology: str, running: bool, rows: list[Row], reply: control_pb2.CheckpointsReply | None
) -> dict[str, Any]:
    """Return the documented content of `heron checkpoints list --json`."""
    return {
        "topology": topology,
        "running": running,
        "checkpoints": [row.as_json() for row in rows],
        "master": master_json(reply) if reply is not None else None,
    }


def master_json(reply: control_pb2.CheckpointsReply) -> dict[str, Any]:
    """Return a topology master's report on its checkpoints, without the list of checkpoints."""
    pending = {"checkpoint": reply.pending, "for_s": round(reply.pending_s, 3), "tasks": reply.pending_tasks,
               "names": list(reply.pending_names)}  # fmt: skip
    return {
        "pending": pending if reply.pending else None,
        **picked(reply, "completed", "aborted", "failed", "last_failure", "restores", "last_restore"),
        "last_restore_s": round(reply.last_restore_s, 6),
        "regions": [
            {
                "components": list(region.components),
                **picked(region, "attempt", "checkpoint", "location", "started"),
            }
            for region in reply.regions
        ],
    }


def show_list(topology: str, mode: str, rows: list[Row], reply: control_pb2.CheckpointsReply | None) -> None:
    if rows:
        cells = [
            (
                str(row.checkpoint),
                row.kind,
                moment(row.taken_at),
                format_bytes(row.total_bytes),
                format_bytes(row.uploaded_bytes),
                format_duration(row.duration_s),
                _standing(row),
                row.location,
            )
            for row in rows
        ]
        columns = ("id", "kind", "taken", "state", "written", "took", "", "location")
        print_table(columns, cells, right=("id", "state", "written", "took"))
    else:
        why = f"; it is {mode} and has no checkpoints" if mode not in ("", "EFFECTIVELY_ONCE") else ""
        say(f"No checkpoint of '{topology}' is complete{why}")
    for row in rows:
        if row.damage:
            more = f" and {len(row.damage) - 1} more files" if len(row.damage) > 1 else ""
            say(f"{row.kind} {row.checkpoint} is damaged: {clean(row.damage[0])}{more}")
    if reply is None:
        return
    if reply.pending:
        say(
            f"checkpoint {reply.pending} has been in progress for {format_duration(reply.pending_s)};"
            f" {counted(reply.pending_tasks, 'task')} outstanding{clean(waiting_names(reply))}"
        )
    say(
        f"since the topology master started: {reply.completed:,} completed, {reply.aborted:,} aborted,"
        f" {reply.failed:,} failed, {counted(reply.restores, 'restore')}"
    )
    if reply.last_failure:
        say(f"last failure: {clean(reply.last_failure)}")
    if reply.last_restore:
        say(f"last restore: {clean(reply.last_restore)}, took {format_duration(reply.last_restore_s)}")


# ---- heron checkpoints show -----------------------------------------------------------------


def show_json(found: Found, metadata: checkpoint_pb2.Metadata) -> dict[str, Any]:
    """Return the documented content of `heron checkpoints show --json`."""
    return {
        **picked(found, "checkpoint", "kind", "location", "total_bytes", "uploaded_bytes"),
        **picked(metadata, "topology", "topology_id", "taken_at", "unaligned", "key_groups", "plan_version", "release"),
        "duration_s": round(metadata.duration_s, 6),
        "parallelism": dict(metadata.parallelism),
        "tasks": [_task_json(task) for task in metadata.tasks],
        "files": [{"path": path, "bytes": size, "sha256": digest} for path, size, digest in file_set(found, metadata)],
    }


def file_set(found: Found, metadata: checkpoint_pb2.Metadata) -> list[tuple[str, int, str]]:
    """Return all files of a checkpoint with size and hash, the metadata last; a copy of these files can be restored."""
    files = [(ref.path, int(ref.bytes), bytes(ref.sha256).hex()) for ref in files_of(metadata)]
    size = open_store(found.folder).size_of_metadata(metadata.checkpoint)
    return [*files, (path_in(metadata.checkpoint), size, "")]


def _task_json(task: checkpoint_pb2.TaskSnapshot) -> dict[str, Any]:
    return {
        **picked(task, "task_id", "component", "component_index", "channel_tuples", "total_bytes", "uploaded_bytes"),
        **picked(task, "finished", "emitted", "executed"),
        "plain_state": task.stateful,
        "keyed": [{"name": keyed.name, "keys": keyed.keys, "segments": len(keyed.segments)} for keyed in task.keyed],
        "align_s": round(task.align_s, 6),
        "sync_s": round(task.sync_s, 6),
        "async_s": round(task.async_s, 6),
    }


def show_one(found: Found, metadata: checkpoint_pb2.Metadata, files: bool) -> None:
    way = "unaligned" if metadata.unaligned else "aligned"
    say(f"{found.kind.capitalize()} {metadata.checkpoint} of '{clean(metadata.topology)}'")
    say(f"  location   {found.location}")
    say(f"  taken      {moment(metadata.taken_at)} in {format_duration(metadata.duration_s)}, {way}")
    say(f"  state      {format_bytes(found.total_bytes)}, {format_bytes(found.uploaded_bytes)} of it newly written")
    say(f"  written by {clean(metadata.topology_id)}, heron {clean(metadata.release)}")
    say(f"  key groups {metadata.key_groups}")
    rows = [
        (
            name,
            state.tasks,
            "yes" if state.plain else "",
            ", ".join(state.keyed) or None,
            state.keys,
            state.channel_tuples or None,
            format_bytes(state.total_bytes),
            format_bytes(state.uploaded_bytes),
        )
        for name, state in component_states(metadata).items()
    ]
    columns = ("component", "tasks", "plain state", "keyed state", "keys", "in flight", "state", "written")
    print_table(columns, rows, right=("tasks", "keys", "in flight", "state", "written"))
    tasks = [
        (
            str(task.task_id),
            task.component,
            format_bytes(task.total_bytes),
            format_bytes(task.uploaded_bytes),
            format_duration(task.align_s),
            format_duration(task.sync_s),
            format_duration(task.async_s),
        )
        for task in metadata.tasks
    ]
    times = ("state", "written", "aligning", "held up", "writing")
    print_table(("task", "component", *times), tasks, right=("task", *times))
    if files:
        sizes = [(path, size, digest[:16] or None) for path, size, digest in file_set(found, metadata)]
        print_table(("file", "bytes", "sha256"), sizes, right=("bytes",))
        say(f"Files are in {found.folder}")


# ---- heron checkpoints verify ---------------------------------------------------------------


def verified_json(found: Found, wrong: list[str]) -> dict[str, Any]:
    files = len(files_of(found.metadata)) + 1 if found.metadata is not None else 1
    return {
        **picked(found, "checkpoint", "kind", "location"),
        "files": files,
        "damaged": bool(wrong),
        "damage": wrong,
    }


def show_verified(checked: Sequence[tuple[Found, list[str]]]) -> None:
    rows = []
    for found, wrong in checked:
        refs = files_of(found.metadata) if found.metadata is not None else []
        size = format_bytes(sum(ref.bytes for ref in refs))
        state = "DAMAGED" if wrong else "ok"
        rows.append((str(found.checkpoint), found.kind, len(refs) + 1, size, state, found.location))
    print_table(("id", "kind", "files", "size", "", "location"), rows, right=("id", "files", "size"))
    for found, wrong in checked:
        for text in wrong:
            say(f"{found.kind} {found.checkpoint}: {clean(text)}")
