"""`heron clean`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import (
    Duration,
    common_flags,
    json_flag,
    optional_topology_argument,
    target_argument,
)


@click.command("clean")
@target_argument
@optional_topology_argument
@click.option("--older-than", "older_than_s", type=Duration(), default="7d", show_default=True, metavar="TIME",
              help="Remove folders in which nothing was written for this time; 0s for all.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@json_flag
@common_flags
def clean_command(**flags: Any) -> None:
    """Remove the logs and working folders of topologies that have ended, from this machine.

    With TOPOLOGY only those of this name. The folders are below HERON_HOME; what 'heron logs', 'heron events' and
    'heron dead-letters' show of the last run is removed with them. A topology that runs, or is not killed yet, is left
    alone. Checkpoints stay, and so do batches that were not handed to Spark yet: 'heron submit --restore' needs them.
    """
    from heronpy.cli.change.clean import clean

    clean(**flags)
