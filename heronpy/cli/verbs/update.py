"""`heron update`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import (
    FORMATS,
    common_flags,
    json_flag,
    target_argument,
    timeout_flag,
    topology_argument,
)
from heronpy.clusters.target import Common, Target


@click.command("update")
@target_argument
@topology_argument
@click.option(
    "--component-parallelism",
    "parallelism",
    multiple=True,
    metavar="NAME:N",
    help="New number of tasks of a component; may be repeated.",
    shell_complete=complete.parallelism,
)
@click.option("--container-number", type=click.IntRange(min=1), metavar="N", help="New number of containers.")
@click.option(
    "--runtime-config",
    multiple=True,
    metavar="[COMPONENT:]KEY:VALUE",
    help="New value of a configuration key; may be repeated, not together with the other two.",
)
@click.option(
    "--drain-timeout",
    "drain_timeout_s",
    type=click.FloatRange(min=0),
    metavar="S",
    help="Seconds that removed tasks may take to finish their queued tuples.",
)
@timeout_flag(300.0, "Seconds to wait until the update is done.")
@click.option("--dry-run", is_flag=True, help="Print what would change and change nothing.")
@click.option("--dry-run-format", type=click.Choice(FORMATS), default="table", show_default=True)
@json_flag
@common_flags
def update_command(target: Target, common: Common, topology: str, **flags: Any) -> None:
    """Change a running topology without stopping it.

    \b
    heron update local word_count --component-parallelism count:4
    heron update local word_count --container-number 2
    heron update local word_count --runtime-config count:limit:10
    """
    if flags["runtime_config"] and (flags["parallelism"] or flags["container_number"]):
        raise click.UsageError(
            "--runtime-config excludes --component-parallelism and --container-number; run two updates"
        )
    if not (flags["runtime_config"] or flags["parallelism"] or flags["container_number"]):
        raise click.UsageError(
            "nothing to change; give --component-parallelism, --container-number or --runtime-config"
        )
    from heronpy.cli.change.update import UpdateOptions, update

    update(target, common, topology, UpdateOptions(**flags))
