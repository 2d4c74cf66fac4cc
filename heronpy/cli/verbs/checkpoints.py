"""`heron checkpoints`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import Duration, TopologyName, timeout_flag, verb
from heronpy.cli.flags.reading import reading


class TopologyOrPlace(TopologyName):
    """A topology's name, or a path or URL, which has a '/' or begins with '.' or '~'."""

    name = "topology|path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        return _place(text) if "/" in text or text[:1] in (".", "~") else super().convert(value, param, ctx)


class Store(click.ParamType):  # type: ignore[type-arg]
    """A store of checkpoints: a folder that exists, or the URL of an object store."""

    name = "store"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        place = _place(str(value))
        if isinstance(place, Path) and not place.is_dir():
            self.fail(f"directory '{value}' does not exist.", param, ctx)
        return place


def _place(text: str) -> Any:
    from heronpy.storage.objects.url import place_of

    return place_of(text)


_timeout = timeout_flag(None, "Seconds to wait; default: the timeout of the checkpoint itself.")


@click.group("checkpoints")
def checkpoints_command() -> None:
    """List, take, restore, check and delete checkpoints of EFFECTIVELY_ONCE topologies.

    The verbs work for running topologies and for topologies that were killed.
    """


@reading("list", checkpoints_command)
@click.option("--store", type=Store(), metavar="DIR|URL",
              help="List the checkpoints in this store or replica instead.")  # fmt: skip
def list_command(**flags: Any) -> None:
    """List the complete checkpoints of a topology and the checkpoint in progress, newest first.

    The list includes checkpoints of earlier runs of the topology.
    """
    from heronpy.cli.change.checkpoints import show_list

    show_list(**flags)


@reading("show", checkpoints_command)
@click.argument("checkpoint", metavar="ID|PATH|URL", shell_complete=complete.checkpoints)
@click.option("--files", is_flag=True, help="List every file that makes up the checkpoint.")
def show_command(**flags: Any) -> None:
    """Show the content of a checkpoint: state by component and task, figures and files."""
    from heronpy.cli.change.checkpoints import show

    show(**flags)


@verb("savepoint", checkpoints_command)
@_timeout
def savepoint_command(**flags: Any) -> None:
    """Take a savepoint and wait until it is complete; it is kept until it is deleted."""
    from heronpy.cli.change.checkpoints import take

    take(savepoint=True, **flags)


@verb("trigger", checkpoints_command)
@_timeout
def trigger_command(**flags: Any) -> None:
    """Take a checkpoint now, in addition to those taken at intervals, and wait until it is complete."""
    from heronpy.cli.change.checkpoints import take

    take(savepoint=False, **flags)


@verb("restore", checkpoints_command, json=False)
@click.option("--checkpoint", type=click.IntRange(min=1), metavar="ID", help="Which checkpoint; default: the newest.",
              shell_complete=complete.checkpoints)  # fmt: skip
@timeout_flag(90.0, "Seconds to wait until every task has resumed.")
def restore_command(**flags: Any) -> None:
    """Rewind a running topology to one of its checkpoints and wait until every task has resumed from there.

    The file sink and the Spark sink remove output published since that checkpoint, because its rows are produced
    again. A custom two-phase sink must do the same in pre_restore.
    """
    from heronpy.cli.change.checkpoints import restore

    restore(**flags)


@verb("delete", checkpoints_command)
@click.argument("checkpoint", required=False, metavar="[ID|PATH|URL]", shell_complete=complete.checkpoints)
@click.option("--all", "everything", is_flag=True, help="Delete all checkpoints, including savepoints.")
@click.option("--older-than", type=Duration(), metavar="TIME", help="Delete checkpoints older than this, such as 7d.")
def delete_command(checkpoint: str | None, everything: bool, older_than: float | None, **flags: Any) -> None:
    """Delete checkpoints and the files that no other checkpoint needs.

    A checkpoint that a running topology would be restored from is not deleted: naming it is an error, and --all and
    --older-than keep it.
    """
    if (checkpoint is not None) + everything + (older_than is not None) != 1:
        raise click.UsageError("give the id, path or URL of a checkpoint, or --all, or --older-than")
    from heronpy.cli.change.checkpoints import delete

    delete(checkpoint=checkpoint, older_than=older_than, **flags)


@verb("copy", checkpoints_command)
@click.argument("checkpoint", metavar="ID|PATH|URL", shell_complete=complete.checkpoints)
@click.argument("store", type=Store(), metavar="DIR|URL")
@click.option("--threads", type=click.IntRange(1, 64), default=4, show_default=True, metavar="N",
              help="Number of files to copy at the same time.")  # fmt: skip
def copy_command(**flags: Any) -> None:
    """Copy a checkpoint to another store, from which a topology can be submitted with --restore.

    Files that the store already has are not copied again. Each copy is compared with its checksum. Nothing is removed.
    """
    from heronpy.cli.change.checkpoints import copy

    copy(**flags)


@reading("verify", checkpoints_command, topology=None)
@click.argument("source", type=TopologyOrPlace(), metavar="TOPOLOGY|PATH|URL", shell_complete=complete.topologies)
@click.argument("checkpoint", required=False, metavar="[ID]")
def verify_command(**flags: Any) -> None:
    """Read every file of all checkpoints, or of one, and compare it with its checksum.

    Exit code 1: a checkpoint is damaged.
    """
    from heronpy.cli.change.checkpoints import verify

    verify(**flags)
