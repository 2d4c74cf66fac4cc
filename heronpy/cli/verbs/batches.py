"""`heron batches`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("batches", cls=Reading)
@reading_target
@topology_argument
@click.option("--retry", is_flag=True, help="Give all of them to Spark again; the topology must run.")
@json_flag
@common_flags
def batches_command(**flags: Any) -> None:
    """Show the Spark batches that have failed under EFFECTIVELY_ONCE, with the error; --retry tries them again.

    A batch fails when your function has raised heron.spark.max_retries times after its first attempt; its rows are
    kept. A full disk or a store that is away takes no attempt. In other modes no rows are kept: the tuples of a failed
    batch fail at their spout.
    """
    from heronpy.cli.look.batches import show_batches

    show_batches(**flags)
