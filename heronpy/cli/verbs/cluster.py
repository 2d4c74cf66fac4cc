"""`heron cluster`: the settings of a cluster whose containers an engine runs; `heron env`: what its hosts install."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import verb


@click.group("cluster")
def cluster_command() -> None:
    """Set up a cluster whose containers an engine runs: Kubernetes, Slurm, Spark, or this machine (local)."""


@cluster_command.command("init")
@click.argument("name")
@click.option("--engine", required=True, metavar="KIND", shell_complete=complete.engines,
              help="Kind of engine: kubernetes, slurm, spark or local.")  # fmt: skip
@click.option("--config-path", metavar="DIR", help="Folder to make NAME in; default: HERON_CONF, else the folder conf"
              " of the client's configuration.")  # fmt: skip
def init_command(**flags: Any) -> None:
    """Write NAME/*.yaml: every setting with its meaning, and what was found on this host filled in.

    Unless HERON_CONF names the folder already, the client's configuration remembers it, so that all verbs find the
    cluster.
    """
    from heronpy.cli.change.cluster import init

    init(**flags)


@verb("check", cluster_command, topology=None)
@click.option("--no-container", is_flag=True, help="Do not run a throw-away container.")
def check_command(**flags: Any) -> None:
    """Try what a cluster needs: a line for each requirement, with a fix for each failure.

    The last is a throw-away container: whether a host of the cluster runs it, has the same Python and heronpy, sees the
    shared folders, and reaches this host. Nothing of it stays. `wait`: there is no room to try it now; `skip`: nobody
    here can tell; the line says why. Exit code 0: nothing that was tried is wrong; 1: something is.
    """
    from heronpy.cli.change.cluster import check

    check(**flags)


@verb("access", cluster_command, topology=None, json=False)
@click.option("--install", is_flag=True, help="Read what another host has printed from the standard input.")
def access_command(**flags: Any) -> None:
    """Let commands on another host reach the topologies that were submitted from this one.

    Prints the key of your commands, and where the schedulers' control endpoints are. It is a secret: whoever has it can
    do to these topologies what you can. The other host reads it with --install, and needs the cluster's settings, too:

      ssh login heron cluster access hpc | heron cluster access hpc --install
    """
    from heronpy.cli.change.cluster import access

    access(**flags)


@verb("hosts", cluster_command, topology=None)
@click.option("--lift", metavar="HOST", help="A host that may get containers again, of all topologies.")
def hosts_command(**flags: Any) -> None:
    """Show the hosts that get no containers, of which topology, why and for how long; --lift ends that.

    A host is avoided for heron.engine.avoid_s after it has lost a container or was drained. It is used all the same
    when it is ready and nothing else has room.
    """
    from heronpy.cli.change.cluster import hosts

    hosts(**flags)


@verb("manifest", cluster_command, topology=None, json=False)
@click.option("--nodes", is_flag=True, help="Also the right to list nodes (a ClusterRole): then sizes are checked.")
def manifest_command(**flags: Any) -> None:
    """Print what to apply to a Kubernetes cluster: the least Role, and a pod from which topologies are submitted.

    The pod is a Deployment of one with a volume for HERON_HOME and a Service for its address; `heron submit` is run in
    it by `kubectl exec`. Whoever submits from elsewhere needs the Role only.
    """
    from heronpy.cli.change.cluster import manifest

    manifest(**flags)


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
