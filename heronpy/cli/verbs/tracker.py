"""`heron tracker` and `heron ui`: serve the pages, find them, and create tokens."""

from __future__ import annotations

import click
from msgspec.structs import replace

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target
from heronpy.cli.output import moment, print_json, say, warn
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import ConfigError
from heronpy.common.folders import heron_home
from heronpy.common.nearest import suggestion
from heronpy.tracker import finding
from heronpy.tracker.folder import folder_of

#: The scopes of `heronpy.tracker.guard.Scope` that a token can have.
SCOPES = ("view", "all")


@click.command("tracker")
@click.option("--cluster", "clusters", multiple=True, metavar="CLUSTER", shell_complete=complete.clusters,
              help="Serve this cluster; may be repeated.  [default: all configured clusters]")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N",
              help="Port to listen on; 0: any free port.  [default: 8889, or the next free port]")  # fmt: skip
@click.option("--tls", nargs=2, metavar="CERT KEY", help="PEM files of the certificate and its key.")
@click.option("--behind-proxy", default="", metavar="NAME",
              help="Host name of a TLS proxy that forwards requests. Every user then needs a token.")  # fmt: skip
@common_flags
def tracker_command(
    clusters: tuple[str, ...],
    host: str,
    port: int | None,
    tls: tuple[str, str] | None,
    behind_proxy: str,
    common: Common,
) -> None:
    """Serve the REST API and the pages of the clusters' topologies until Ctrl-C.

    On loopback, the browser of the user who runs the tracker needs no token. Programs and other users need a token
    ('heron ui token view'). From another machine, they also need TLS.

    \b
    heron tracker
    heron tracker --cluster prod --host 10.0.0.7 --tls cert.pem key.pem
    """
    from heronpy.clusters.client_config import known_clusters
    from heronpy.common.logs import setup
    from heronpy.tracker.serve import Options, run

    known = known_clusters(common.config_path)
    for cluster in clusters:
        if cluster not in known:
            hint = suggestion(cluster, known, f"; the clusters are {', '.join(known)}")
            raise ConfigError(f"there is no cluster '{cluster}'{hint}")
    setup("tracker", "INFO", 2)
    run(Options(clusters, host, port, tls or None, behind_proxy, common=common), say=say)


class Pages(click.Group):
    """`heron ui`: a word that is not one of its commands names a topology."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the named command, or else the command that prints the page of a topology."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            return page_command.name, page_command, args
        return super().resolve_command(ctx, args)


@click.command("ui", cls=Reading)
@reading_target
@topology_argument
@common_flags
@click.pass_context
def page_command(ctx: click.Context, target: Target, topology: str, common: Common) -> None:
    """Print the address of the page of a running or ended topology."""
    from heronpy.clusters.ended import last_ended
    from heronpy.clusters.session import Session
    from heronpy.tracker import place

    given = ctx.parent.params.get("config_path") if ctx.parent is not None else None
    config_path = common.config_path or given
    session = Session(target, replace(common, config_path=config_path))
    record = session.record(topology) or last_ended(session, topology)
    if record is None:
        record = session.find(topology)  # raises an error that names the existing topologies
    address = finding.find_or_start(heron_home(), config_path).address
    click.echo(place.page_of(address, record.cluster, record.role, record.environ, topology))


@click.group("ui", cls=Pages, invoke_without_command=True, subcommand_metavar="[[CLUSTER] TOPOLOGY | COMMAND ...]")
@click.option("--config-path", metavar="DIR", help="Folder with the settings files <cluster>/<room>.yaml.")
@click.pass_context
def ui_command(ctx: click.Context, config_path: str | None) -> None:
    """Print the address of the pages, or of one topology's page; starts the tracker on this machine if none runs.

    \b
    heron ui
    heron ui local word_count
    heron ui word_count

    A tracker that this command has started ends after 30 minutes without a request. The tracker serves only this user,
    whom the kernel identifies. Each start creates a new random host name, and therefore a new address.
    """
    if ctx.invoked_subcommand is None:
        click.echo(finding.find_or_start(heron_home(), config_path).address)


@ui_command.command("status")
@json_flag
def status_command(as_json: bool) -> None:
    """Show whether a tracker runs, and where."""
    running = finding.find(heron_home())
    if as_json:
        shown = {"running": running is not None}
        if running is None:
            print_json(shown)
        else:
            print_json({**shown, "address": running.address, "pid": running.pid, "started_at": running.started_at,
                        "release": running.release, "by_ui": running.by_ui})  # fmt: skip
        return
    if running is None:
        say("No tracker runs; 'heron ui' starts one")
        return
    by = "heron ui" if running.by_ui else "heron tracker"
    say(f"{running.address}  (pid {running.pid}, started by '{by}' {moment(running.started_at)})")


@ui_command.command("stop")
def stop_command() -> None:
    """Stop the tracker that `heron ui` has started; topologies are not affected."""
    running = finding.stop(heron_home())
    say("No tracker runs" if running is None else f"Stopped the tracker at {running.address}")


@ui_command.command("token")
@click.argument("scope", type=click.Choice(SCOPES))
@click.option("--remove", is_flag=True, help="Revoke the token instead.")
def token_command(scope: str, remove: bool) -> None:
    """Create one of the two tokens and print it once; the previous token of this scope is revoked.

    The token 'view' gives access to figures, but not to logs, settings or values of tuples, and allows no changes. The
    token 'all' allows everything.

    \b
    heron ui token view > heron.token
    heron ui token all --remove
    """
    from heronpy.tracker.guard import Scope
    from heronpy.tracker.tokens import Tokens

    tokens = Tokens(folder_of(heron_home()))
    if remove:
        tokens.remove(Scope(scope))
        say(f"Removed the token '{scope}'")
        return
    click.echo(tokens.create(Scope(scope)))
    warn(f"The token is not shown again; it is valid until 'heron ui token {scope}' replaces it or --remove revokes it")
