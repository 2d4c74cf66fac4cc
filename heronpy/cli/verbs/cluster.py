"""`heron cluster`: settings of a cluster whose containers an engine runs; `heron env`: what the hosts install."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import verb


@click.group("cluster")
def cluster_command() -> None:
    """Set up a cluster that runs its containers on Kubernetes, Slurm, Spark or this machine (local)."""


@cluster_command.command("init")
@click.argument("name")
@click.option("--engine", required=True, metavar="KIND", shell_complete=complete.engines,
              help="Kind of engine: kubernetes, slurm, spark or local.")  # fmt: skip
@click.option("--config-path", metavar="DIR", help="Folder in which to create NAME; default: HERON_CONF, else the"
              " folder conf of the client's configuration.")  # fmt: skip
def init_command(**flags: Any) -> None:
    """Write NAME/*.yaml: every setting with its meaning; values detected on this host are filled in.

    The client's configuration stores the folder, unless HERON_CONF already names it, so that all verbs find the
    cluster.
    """
    from heronpy.cli.change.cluster import init

    init(**flags)


@verb("check", cluster_command, topology=None)
@click.option("--no-container", is_flag=True, help="Do not run a test container.")
def check_command(**flags: Any) -> None:
    """Test the requirements of a cluster: one line each, with a fix for each failure.

    The last test runs a container. It shows whether a host of the cluster runs the container, has the same Python and
    heronpy, sees the shared folders, and reaches this host. The test leaves nothing behind. `wait` means that the
    cluster has no free capacity now, and `skip` means that this host cannot test the requirement; the line says why.
    Exit code 0: no test failed; 1: a test failed.
    """
    from heronpy.cli.change.cluster import check

    check(**flags)


@verb("access", cluster_command, topology=None, json=False)
@click.option("--install", is_flag=True, help="Read the output of another host from standard input.")
def access_command(**flags: Any) -> None:
    """Let commands on another host reach the topologies that were submitted from this host.

    Prints your command key and the addresses of the schedulers' control endpoints. The output is a secret: it gives
    full control of these topologies. The other host reads it with --install, and also needs the cluster's settings:

      ssh login heron cluster access hpc | heron cluster access hpc --install
    """
    from heronpy.cli.change.cluster import access

    access(**flags)


@verb("hosts", cluster_command, topology=None)
@click.option("--lift", metavar="HOST", help="Let this host run containers of all topologies again.")
def hosts_command(**flags: Any) -> None:
    """Show the hosts that get no containers, each with its topology, the reason and the remaining time.

    A host is avoided for heron.engine.avoid_s after it lost a container or was drained. It is still used if it is ready
    and no other host has free capacity.
    """
    from heronpy.cli.change.cluster import hosts

    hosts(**flags)


@verb("manifest", cluster_command, topology=None, json=False)
@click.option("--nodes", is_flag=True,
              help="Also grant the right to list nodes (a ClusterRole), to check container sizes.")  # fmt: skip
def manifest_command(**flags: Any) -> None:
    """Print a manifest for a Kubernetes cluster: the minimal Role, and a pod from which topologies are submitted.

    The pod is a Deployment with one replica, a volume for HERON_HOME and a Service for its address. Run `heron submit`
    in it with `kubectl exec`. To submit from elsewhere, only the Role is needed.
    """
    from heronpy.cli.change.cluster import manifest

    manifest(**flags)


@click.group("env")
def env_command() -> None:
    """Pack the dependencies of topologies for the hosts of a cluster."""


@env_command.command("pack")
@click.option("-r", "--requirement", "requirements", required=True, metavar="FILE",
              type=click.Path(dir_okay=False, path_type=Path), help="Requirements file for pip.")  # fmt: skip
@click.option("-o", "--output", "into", required=True, metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="File to write; the digest of its content is added to the name: env.zip becomes"
              " env-DIGEST.zip.")  # fmt: skip
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=1.0), default=600.0, show_default=True,
              metavar="SECONDS", help="Seconds that pip may take.")  # fmt: skip
def pack_command(**flags: Any) -> None:
    """Download the wheels for a requirements file into one file, a wheelhouse.

    The file fits hosts with this Python and platform. If heron.engine.environment in a cluster's engine.yaml names
    the file, each host installs the wheels once, without a package index, and runs topologies in that environment.
    Prints the path of the file.
    """
    from heronpy.cli.output import say
    from heronpy.storage.wheelhouse import pack

    say(str(pack(**flags)))
