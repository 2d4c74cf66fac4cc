"""`heron env`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.group("env")
def env_command() -> None:
    """Pack the dependencies of topologies for the hosts of a cluster."""


@env_command.command("pack")
@click.option("-r", "--requirement", "requirements", required=True, metavar="FILE",
              type=click.Path(dir_okay=False, path_type=Path), help="The requirements, as pip reads them.")  # fmt: skip
@click.option("-o", "--output", "into", required=True, metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="File to write; the digest of its content is added to the name: env.zip becomes"
              " env-DIGEST.zip.")  # fmt: skip
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=1.0), default=600.0, show_default=True,
              metavar="SECONDS", help="How long pip may take.")  # fmt: skip
def pack_command(**flags: Any) -> None:
    """Download what a requirements file asks for, as wheels, into one file: a wheelhouse.

    It is for hosts with this Python and platform. With heron.engine.environment in a cluster's engine.yaml, each host
    installs it once, without asking an index, and its topologies run there. The file's path is printed.
    """
    from heronpy.cli.output import say
    from heronpy.storage.wheelhouse import pack

    say(str(pack(**flags)))
