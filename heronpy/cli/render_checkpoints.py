"""Checkpoints as tables, sentences and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heronpy.ckpt.compatibility import component_states
from heronpy.cli.output import clean, counted, moment, print_table, say
from heronpy.common.units import format_bytes, format_duration
from heronpy.proto import checkpoint_pb2 as ckpt
from heronpy.storage.checkpoints import files_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heronpy.ckpt.catalogue import Found
    from heronpy.cli.checkpoint_view import Row
    from heronpy.proto import control_pb2 as control


def kind_name(kind: int) -> str:
    return "savepoint" if kind == ckpt.SAVEPOINT else "checkpoint"


def figures(record: ckpt.CheckpointRecord) -> str:
    """Size and time of a complete checkpoint."""
    return (
        f"{format_bytes(record.total_bytes)} of state, {format_bytes(record.uploaded_bytes)} of it written,"
        f" in {format_duration(record.duration_s)}"
    )


def record_json(record: ckpt.CheckpointRecord) -> dict[str, Any]:
    return {
        "checkpoint": record.checkpoint,
        "kind": kind_name(record.kind),
        "location": record.location,
        "taken_at": record.taken_at,
        "total_bytes": record.total_bytes,
        "uploaded_bytes": record.uploaded_bytes,
        "duration_s": round(record.duration_s, 6),
        "damaged": record.damaged,
        "damage": [record.damage] if record.damage else [],
    }


# ---- heron checkpoints list -----------------------------------------------------------------


def list_json(
    topology: str, running: bool, rows: list[Row], reply: control.CheckpointsReply | None
) -> dict[str, Any]:
    """The documented shape of `heron checkpoints list --json`."""
    return {
        "topology": topology,
        "running": running,
        "checkpoints": [row.as_json() for row in rows],
        "master": master_json(reply) if reply is not None else None,
    }


def master_json(reply: control.CheckpointsReply) -> dict[str, Any]:
    """What a topology master says of its checkpoints, without their list."""
    pending = {"checkpoint": reply.pending, "for_s": round(reply.pending_s, 3), "tasks": reply.pending_tasks}
    return {
        "pending": pending if reply.pending else None,
        "completed": reply.completed,
        "aborted": reply.aborted,
        "failed": reply.failed,
        "last_failure": reply.last_failure,
        "restores": reply.restores,
        "last_restore": reply.last_restore,
        "last_restore_s": round(reply.last_restore_s, 6),
        "regions": [
            {
                "components": list(region.components),
                "attempt": region.attempt,
                "checkpoint": region.checkpoint,
                "location": region.location,
                "started": region.started,
            }
            for region in reply.regions
        ],
    }


def show_list(topology: str, mode: str, rows: list[Row], reply: control.CheckpointsReply | None) -> None:
    if rows:
        cells = [
            (
                str(row.checkpoint),
                row.kind,
                moment(row.taken_at),
                format_bytes(row.total_bytes),
                format_bytes(row.uploaded_bytes),
                format_duration(row.duration_s),
                "DAMAGED" if row.damage else "in use" if row.in_use else "" if row.current else "earlier run",
                row.location,
            )
            for row in rows
        ]
        columns = ("id", "kind", "taken", "state", "written", "took", "", "location")
        print_table(columns, cells, right=("id", "state", "written", "took"))
    else:
        why = f"; it is {mode} and takes none" if mode not in ("", "EFFECTIVELY_ONCE") else ""
        say(f"No checkpoint of '{topology}' is complete{why}")
    for row in rows:
        if row.damage:
            more = f" and {len(row.damage) - 1} more files" if len(row.damage) > 1 else ""
            say(f"{row.kind} {row.checkpoint} is damaged: {clean(row.damage[0])}{more}")
    if reply is None:
        return
    if reply.pending:
        say(
            f"checkpoint {reply.pending} is under way for {format_duration(reply.pending_s)};"
            f" {counted(reply.pending_tasks, 'task')} to come"
        )
    say(
        f"since the topology master started: {reply.completed:,} completed, {reply.aborted:,} aborted,"
        f" {reply.failed:,} failed, {reply.restores:,} restores"
    )
    if reply.last_failure:
        say(f"last failure: {clean(reply.last_failure)}")
    if reply.last_restore:
        say(f"last restore: {clean(reply.last_restore)}, took {format_duration(reply.last_restore_s)}")


# ---- heron checkpoints show -----------------------------------------------------------------


def show_json(found: Found, metadata: ckpt.Metadata) -> dict[str, Any]:
    """The documented shape of `heron checkpoints show --json`."""
    return {
        "checkpoint": metadata.checkpoint,
        "kind": found.kind,
        "location": found.location,
        "topology": metadata.topology,
        "topology_id": metadata.topology_id,
        "taken_at": metadata.taken_at,
        "duration_s": round(metadata.duration_s, 6),
        "unaligned": metadata.unaligned,
        "key_groups": metadata.key_groups,
        "plan_version": metadata.plan_version,
        "release": metadata.release,
        "total_bytes": found.total_bytes,
        "uploaded_bytes": found.uploaded_bytes,
        "parallelism": dict(metadata.parallelism),
        "tasks": [_task_json(task) for task in metadata.tasks],
        "files": [{"path": path, "bytes": size, "sha256": digest} for path, size, digest in file_set(found, metadata)],
    }


def file_set(found: Found, metadata: ckpt.Metadata) -> list[tuple[str, int, str]]:
    """Every file of a checkpoint with its size and hash, the metadata last: copying exactly these restores (M18)."""
    files = [(ref.path, int(ref.bytes), bytes(ref.sha256).hex()) for ref in files_of(metadata)]
    path = f"chk-{metadata.checkpoint}/metadata"
    return [*files, (path, (found.folder / path).stat().st_size, "")]


def _task_json(task: ckpt.TaskSnapshot) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "component": task.component,
        "component_index": task.component_index,
        "plain_state": task.stateful,
        "keyed": [
            {"name": keyed.name, "keys": keyed.keys, "segments": len(keyed.segments)} for keyed in task.keyed
        ],
        "channel_tuples": task.channel_tuples,
        "total_bytes": task.total_bytes,
        "uploaded_bytes": task.uploaded_bytes,
        "align_s": round(task.align_s, 6),
        "sync_s": round(task.sync_s, 6),
        "async_s": round(task.async_s, 6),
        "finished": task.finished,
        "emitted": task.emitted,
        "executed": task.executed,
    }


def show_one(found: Found, metadata: ckpt.Metadata, files: bool) -> None:
    way = "unaligned" if metadata.unaligned else "aligned"
    say(f"{found.kind.capitalize()} {metadata.checkpoint} of '{clean(metadata.topology)}'")
    say(f"  location   {found.location}")
    say(f"  taken      {moment(metadata.taken_at)} in {format_duration(metadata.duration_s)}, {way}")
    say(f"  state      {format_bytes(found.total_bytes)}, {format_bytes(found.uploaded_bytes)} of it written for it")
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
    columns = ("component", "tasks", "plain state", "keyed state", "keys", "under way", "state", "written")
    print_table(columns, rows, right=("tasks", "keys", "under way", "state", "written"))
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
        "checkpoint": found.checkpoint,
        "kind": found.kind,
        "location": found.location,
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
