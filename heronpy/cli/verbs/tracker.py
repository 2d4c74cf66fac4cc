"""`heron tracker`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags


@click.command("tracker")
@click.option("--cluster", "clusters", multiple=True, metavar="CLUSTER", shell_complete=complete.clusters,
              help="Serve this cluster; may be repeated. Without it all that are configured.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N",
              help="Port to listen on; 0 is any free one. Without it 8889, or the next that is free.")  # fmt: skip
@click.option("--tls", nargs=2, metavar="CERT KEY", help="PEM files of the certificate and its key.")
@click.option("--behind-proxy", default="", metavar="NAME",
              help="A proxy with TLS asks for others, under this name. Everybody then needs a token.")  # fmt: skip
@common_flags
def tracker_command(**flags: Any) -> None:
    """Serve the REST API and pages of the topologies of clusters, until Ctrl-C.

    On loopback the browser of the user who runs it needs no token. Programs and other users need one, and from another
    machine also TLS: heron ui token view

    \b
    heron tracker
    heron tracker --cluster prod --host 10.0.0.7 --tls cert.pem key.pem
    """
    from heronpy.cli.look.tracker import serve

    serve(**flags)
