"""`heron tracker` and `heron ui`: serve the pages, find them, and make tokens."""

from __future__ import annotations

import click
from msgspec.structs import replace

from heronpy.cli.output import moment, print_json, say, warn
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import ConfigError
from heronpy.common.folders import heron_home
from heronpy.common.nearest import suggestion
from heronpy.tracker import finding
from heronpy.tracker.folder import folder_of
from heronpy.tracker.options import Options


def serve(
    clusters: tuple[str, ...],
    host: str,
    port: int | None,
    tls: tuple[str, str] | None,
    behind_proxy: str,
    common: Common,
) -> None:
    """Serve until a signal."""
    from heronpy.clusters.known import known_clusters
    from heronpy.common.logs import setup
    from heronpy.tracker.serve import run

    known = known_clusters(common.config_path)
    for cluster in clusters:
        if cluster not in known:
            hint = suggestion(cluster, known, f"; the clusters are {', '.join(known)}")
            raise ConfigError(f"there is no cluster '{cluster}'{hint}")
    setup("tracker", "INFO", 2)
    run(Options(clusters, host, port, tls or None, behind_proxy, common=common), say=say)


def show_address(config_path: str | None) -> None:
    """Print the address of the pages; starts a tracker if none runs."""
    click.echo(finding.find_or_start(heron_home(), config_path).address)


def show_page(target: Target, topology: str, config_path: str | None, common: Common) -> None:
    """Print the address of the page of a topology that runs, or else of the last of its name that has ended."""
    from heronpy.clusters.ended import last_ended
    from heronpy.clusters.session import Session
    from heronpy.tracker import place

    config_path = common.config_path or config_path
    session = Session(target, replace(common, config_path=config_path))
    record = session.record(topology) or last_ended(session, topology)
    if record is None:
        record = session.find(topology)  # which says that there is none, and what there is
    address = finding.find_or_start(heron_home(), config_path).address
    click.echo(place.page_of(address, record.cluster, record.role, record.environ, topology))


def show_status(as_json: bool) -> None:
    """Whether a tracker runs."""
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


def stop() -> None:
    """Stop what `heron ui` has started."""
    running = finding.stop(heron_home())
    say("No tracker runs" if running is None else f"Stopped the tracker at {running.address}")


def set_token(scope: str, remove: bool) -> None:
    """Make a token and print it, or make it void."""
    from heronpy.tracker.guard import Scope
    from heronpy.tracker.tokens import Tokens

    tokens = Tokens(folder_of(heron_home()))
    if remove:
        tokens.remove(Scope(scope))
        say(f"Removed the token '{scope}'")
        return
    click.echo(tokens.create(Scope(scope)))
    warn(f"It is shown only now; it is valid until 'heron ui token {scope}' makes another one, or --remove")
