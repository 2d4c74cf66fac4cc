"""`heron cluster access`: the key and the doors by which commands on another host reach a cluster's topologies."""

from __future__ import annotations

import socket
import sys

from heronpy.cli import exits
from heronpy.cli.output import command, say
from heronpy.clusters.records import Records
from heronpy.clusters.target import Common, Target
from heronpy.common.units import counted
from heronpy.net.access import BROUGHT_MAX_BYTES, bring, to_text
from heronpy.net.access_place import folder_of


def access(target: Target, install: bool, common: Common) -> None:
    """Print it, or take what another host has printed."""
    Records(target, common).check_cluster()
    cluster = target.cluster
    if not install:
        if sys.stdout.isatty():
            raise exits.Failure(
                "the access to a cluster has a secret key, which is not shown on a terminal; write it into a pipe: ssh"
                f" HERE heron cluster access {cluster} | heron cluster access {cluster} --install",
                exits.USAGE,
            )
        sys.stdout.write(to_text(cluster, socket.gethostname()) + "\n")
        return
    text = sys.stdin.read(BROUGHT_MAX_BYTES + 1)
    if len(text) > BROUGHT_MAX_BYTES:
        raise exits.Failure(f"the access to a cluster has {BROUGHT_MAX_BYTES >> 20} MB at most", exits.USAGE)
    count = bring(cluster, text)
    say(f"Wrote the key of your commands, and {counted(count, 'door')}, to {folder_of(cluster)}")
    say(f"  next: {command('heron', 'list', cluster)}")
