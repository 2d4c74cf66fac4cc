"""`heron checkpoints`: look at, take, restore, check and delete the checkpoints of a topology.

Looking and checking work on folders and need no running topology. What changes the checkpoints
of a running topology is asked of its topology master, which alone knows what is under way.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heronpy.cli import complete, exits
from heronpy.cli.output import clean, counted, print_json, say, warning
from heronpy.cli.reading import Reading, reading_target
from heronpy.cli.target import (
    Common,
    Target,
    TopologyName,
    common_flags,
    json_flag,
    target_argument,
    topology_argument,
)

if TYPE_CHECKING:
    from heronpy.ckpt.catalogue import Found
    from heronpy.cli.session import Session
    from heronpy.plan.launch import LaunchSpec
    from heronpy.proto import checkpoint_pb2 as ckpt

#: What the topology master may take longer than the checkpoint itself.
ANSWER_S = 10.0


class TopologyOrPath(TopologyName):
    """A topology's name, or a path, which has a '/' or begins with '.' or '~'."""

    name = "topology|path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        return Path(text) if "/" in text or text[:1] in (".", "~") else super().convert(value, param, ctx)


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A time such as 90s, 12h or 7d, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from heronpy.common.errors import ConfigError
        from heronpy.common.units import parse_duration_s

        try:
            return parse_duration_s(value)
        except ConfigError:
            self.fail(f"'{value}' is no time; for example '90s', '12h' or '7d'", param, ctx)


source_argument = click.argument("source", type=TopologyOrPath(), metavar="TOPOLOGY|PATH")
_timeout = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    metavar="S",
    help="Seconds to wait; by default as long as the checkpoint itself may take.",
)


@click.group("checkpoints")
def checkpoints_command() -> None:
    """List, take, restore, check and delete checkpoints of EFFECTIVELY_ONCE topologies.

    They are found for running topologies and for topologies that were killed.
    """


@checkpoints_command.command("list", cls=Reading)
@reading_target
@topology_argument
@click.option("--store", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
              help="List those in this store or replica instead.")  # fmt: skip
@json_flag
@common_flags
def list_command(target: Target, topology: str, store: Path | None, as_json: bool, common: Common) -> None:
    """List the complete checkpoints of a topology and the one under way, the newest first.

    Checkpoints of earlier runs of the topology are listed, too.
    """
    from heronpy.cli import render_checkpoints
    from heronpy.cli.checkpoint_view import View
    from heronpy.cli.session import Session

    view = View(Session(target, common), topology, None if store is None else store.absolute())
    view.require()
    rows = view.rows()
    if as_json:
        print_json(render_checkpoints.list_json(topology, view.record is not None, rows, view.reply))
    else:
        render_checkpoints.show_list(topology, view.mode, rows, view.reply)


@checkpoints_command.command("show", cls=Reading)
@reading_target
@topology_argument
@click.argument("checkpoint", metavar="ID|PATH", shell_complete=complete.checkpoints)
@click.option("--files", is_flag=True, help="List every file that the checkpoint needs; they are all it needs.")
@json_flag
@common_flags
def show_command(
    target: Target, topology: str, checkpoint: str, files: bool, as_json: bool, common: Common
) -> None:
    """Show what a checkpoint consists of: state by component and task, figures and files."""
    from heronpy.cli import render_checkpoints
    from heronpy.cli.checkpoint_view import View
    from heronpy.cli.session import Session

    [found] = _select(View(Session(target, common), topology), checkpoint)
    if found.metadata is None:
        raise exits.Failure(f"{found.name} cannot be read: {found.damage[0]}")
    if as_json:
        print_json(render_checkpoints.show_json(found, found.metadata))
    else:
        render_checkpoints.show_one(found, found.metadata, files)


@checkpoints_command.command("savepoint")
@target_argument
@topology_argument
@_timeout
@json_flag
@common_flags
def savepoint_command(
    target: Target, topology: str, timeout_s: float | None, as_json: bool, common: Common
) -> None:
    """Take a savepoint and wait until it is complete; it is kept until it is deleted."""
    _take(target, topology, True, timeout_s, as_json, common)


@checkpoints_command.command("trigger")
@target_argument
@topology_argument
@_timeout
@json_flag
@common_flags
def trigger_command(
    target: Target, topology: str, timeout_s: float | None, as_json: bool, common: Common
) -> None:
    """Take a checkpoint now, besides those taken at intervals, and wait until it is complete."""
    _take(target, topology, False, timeout_s, as_json, common)


def _take(
    target: Target, topology: str, savepoint: bool, timeout_s: float | None, as_json: bool, common: Common
) -> None:
    from heronpy.cli import render_checkpoints
    from heronpy.cli.session import Session
    from heronpy.common.settings import settings_for
    from heronpy.proto import control_pb2 as control

    session = Session(target, common)
    settings = settings_for(_stateful(session, topology), "checkpoint")
    # It may have to wait for the one under way.
    limit_s = settings.timeout_s + (settings.savepoint_timeout_s if savepoint else settings.timeout_s)
    request = control.TakeCheckpoint(savepoint=savepoint)
    record: ckpt.CheckpointRecord = session.ask(topology, request, timeout_s or limit_s + ANSWER_S).record
    if as_json:
        print_json({"topology": topology, **render_checkpoints.record_json(record)})
        return
    say(f"{'Savepoint' if savepoint else 'Checkpoint'} {record.checkpoint} of '{topology}' is complete")
    say(f"  {render_checkpoints.figures(record)}")
    say(f"  {record.location}")


def _stateful(session: Session, topology: str) -> LaunchSpec:
    """The launch file of a running topology; a Failure when it takes no checkpoints."""
    from heronpy.plan.component_config import reliability_mode

    launch = session.launch_of(session.find(topology))
    mode = reliability_mode(session.topology(topology))
    if mode != "EFFECTIVELY_ONCE":
        raise exits.Failure(
            f"topology '{topology}' is {mode} and has no checkpoints;"
            " set topology.reliability.mode to EFFECTIVELY_ONCE and submit it again",
            exits.USAGE,
        )
    return launch


@checkpoints_command.command("restore")
@target_argument
@topology_argument
@click.option("--checkpoint", type=click.IntRange(min=1), metavar="ID", help="Default: the newest one.",
              shell_complete=complete.checkpoints)  # fmt: skip
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=90.0,
    show_default=True,
    metavar="S",
    help="Seconds to wait until every task goes on.",
)
@common_flags
def restore_command(
    target: Target, topology: str, checkpoint: int | None, timeout_s: float, common: Common
) -> None:
    """Rewind a running topology to one of its checkpoints and wait until every task goes on from there.

    What two-phase sinks have committed since is out already and is committed once more.
    """
    from heronpy.cli import rewinding
    from heronpy.cli.session import Session

    session = Session(target, common)
    _stateful(session, topology)
    say(rewinding.rewind(session, topology, checkpoint or 0, timeout_s))


@checkpoints_command.command("delete")
@target_argument
@topology_argument
@click.argument("checkpoint", required=False, metavar="[ID|PATH]", shell_complete=complete.checkpoints)
@click.option("--all", "everything", is_flag=True, help="Delete all of them, savepoints, too.")
@click.option("--older-than", type=Duration(), metavar="TIME", help="Delete those taken longer ago, such as 7d.")
@json_flag
@common_flags
def delete_command(
    target: Target,
    topology: str,
    checkpoint: str | None,
    everything: bool,
    older_than: float | None,
    as_json: bool,
    common: Common,
) -> None:
    """Delete checkpoints and the files that no other checkpoint needs.

    One that a running topology would be restored from is refused; --all and --older-than leave it.
    """
    from heronpy.cli import checkpoint_removal
    from heronpy.cli.checkpoint_view import View
    from heronpy.cli.session import Session

    if (checkpoint is not None) + everything + (older_than is not None) != 1:
        raise click.UsageError("give the id or path of a checkpoint, or --all, or --older-than")
    session = Session(target, common)
    # A submit --restore of the same name must not choose what is being deleted.
    with session.operation(topology):
        view = View(session, topology)
        if checkpoint is not None:
            chosen = _select(view, checkpoint)
        else:
            view.require()
            chosen = checkpoint_removal.older(view, older_than or 0.0)
        outcome = checkpoint_removal.remove(view, chosen, refuse=checkpoint is not None)
    for kept, why in outcome.kept:
        warning(f"kept {clean(kept.name)}, because {why}")
    if as_json:
        print_json(
            {
                "topology": topology,
                "deleted": [found.location for found in outcome.deleted],
                "kept": [found.location for found, _ in outcome.kept],
            }
        )
        return
    for found in outcome.deleted:
        say(f"  - {clean(found.name)}")
    say(f"Deleted {counted(len(outcome.deleted), 'checkpoint')} of '{topology}'")


@checkpoints_command.command("verify", cls=Reading)
@reading_target
@source_argument
@click.argument("checkpoint", required=False, metavar="[ID]")
@json_flag
@common_flags
def verify_command(
    target: Target, source: str | Path, checkpoint: str | None, as_json: bool, common: Common
) -> None:
    """Read every file of checkpoints and compare it with its checksum; of all of them, or of one.

    Exit code 1 when a checkpoint is damaged.
    """
    from heronpy.ckpt import catalogue
    from heronpy.cli import render_checkpoints
    from heronpy.cli.session import Session

    checked = [(found, catalogue.verify(found)) for found in _from_source(Session(target, common), source, checkpoint)]
    if as_json:
        print_json([render_checkpoints.verified_json(found, wrong) for found, wrong in checked])
    else:
        render_checkpoints.show_verified(checked)
    bad = [found for found, wrong in checked if wrong]
    if bad:
        names = ", ".join(found.location for found in bad)
        raise exits.Failure(f"{len(bad)} of {counted(len(checked), 'checkpoint')} cannot be restored: {names}")


def _select(view: Any, wanted: str) -> list[Found]:
    """The one checkpoint with this id, or at this path."""
    from heronpy.ckpt import catalogue
    from heronpy.cli.restoring import by_id

    if wanted.isascii() and wanted.isdigit():
        view.require()
        return [by_id(view.found, int(wanted), view.topology)]
    listed = catalogue.at_path(Path(wanted))
    if len(listed) != 1:
        raise exits.Failure(f"'{wanted}' is not one checkpoint; give an id or a folder chk-<id>", exits.NOT_FOUND)
    return listed


def _from_source(session: Session, source: str | Path, checkpoint: str | None) -> list[Found]:
    """The checkpoints of a topology or at a path, or the one of them with this id."""
    from heronpy.ckpt import catalogue
    from heronpy.cli.checkpoint_view import View
    from heronpy.cli.restoring import by_id

    if isinstance(source, Path):
        listed = catalogue.at_path(source) or catalogue.in_store(source)
        if not listed:
            raise exits.Failure(f"'{source}' holds no checkpoint", exits.NOT_FOUND)
    else:
        view = View(session, source)
        view.require()
        listed = view.found
    if checkpoint is None:
        return listed
    if not (checkpoint.isascii() and checkpoint.isdigit()):
        raise exits.Failure(f"'{checkpoint}' is no id of a checkpoint, which is a number", exits.USAGE)
    return [by_id(listed, int(checkpoint), str(source))]
