"""`heron tracker`, and `heron ui`, which needs one."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target

#: Of `heronpy.tracker.guard.Scope`, those that a token can have.
SCOPES = ("view", "all")


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


class Pages(click.Group):
    """`heron ui`: words that are none of its commands name a topology."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, or that which prints the page of a topology."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            return page_command.name, page_command, args
        return super().resolve_command(ctx, args)


@click.command("ui", cls=Reading)
@reading_target
@topology_argument
@common_flags
@click.pass_context
def page_command(ctx: click.Context, /, **flags: Any) -> None:
    """Print the address of the page of a topology, of one that runs or has ended."""
    from heronpy.cli.look.tracker import show_page

    given = ctx.parent.params.get("config_path") if ctx.parent is not None else None
    show_page(config_path=given, **flags)


@click.group("ui", cls=Pages, invoke_without_command=True, subcommand_metavar="[[CLUSTER] TOPOLOGY | COMMAND ...]")
@click.option("--config-path", metavar="DIR", help="Folder with <cluster>/<room>.yaml files of settings.")
@click.pass_context
def ui_command(ctx: click.Context, config_path: str | None) -> None:
    """Print the address of the pages, or of the page of a topology; starts the tracker on this machine if none runs.

    \b
    heron ui
    heron ui local word_count
    heron ui word_count

    A tracker started here ends after 30 minutes without a request. It serves this user only: the kernel tells it who
    asks. Each start makes a new random name, and with it a new address.
    """
    if ctx.invoked_subcommand is None:
        from heronpy.cli.look.tracker import show_address

        show_address(config_path)


@ui_command.command("status")
@json_flag
def status_command(**flags: Any) -> None:
    """Show whether a tracker runs, and where."""
    from heronpy.cli.look.tracker import show_status

    show_status(**flags)


@ui_command.command("stop")
def stop_command() -> None:
    """Stop the tracker that `heron ui` has started. Topologies do not notice."""
    from heronpy.cli.look.tracker import stop

    stop()


@ui_command.command("token")
@click.argument("scope", type=click.Choice(SCOPES))
@click.option("--remove", is_flag=True, help="Make the token void instead; it is refused from now on.")
def token_command(**flags: Any) -> None:
    """Make one of the two tokens and print it; it is not shown again, and the one before is void.

    The token 'view' allows figures: no logs, no settings, no values of tuples, no change. The token 'all' allows
    everything.

    \b
    heron ui token view > heron.token
    heron ui token all --remove
    """
    from heronpy.cli.look.tracker import set_token

    set_token(**flags)
