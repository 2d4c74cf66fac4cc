"""`heron metrics targets|rules|dashboard`: configuration for Prometheus and Grafana."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from heronpy.cli import exits
from heronpy.cli.output import print_json, warning
from heronpy.clusters.client_config import known_clusters
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import HeronError
from heronpy.common.folders import heron_home, replace_file
from heronpy.common.setting_types import ExecutorSettings
from heronpy.common.settings import settings_for
from heronpy.metrics.monitoring import dashboard, rules
from heronpy.net.addresses import is_loopback
from heronpy.proto import control_pb2, plan_pb2

ASK_S = 2.0
ASKED_AT_ONCE = 16
#: Addresses that stand for every address of a machine.
_EVERYWHERE = ("0.0.0.0", "::", "")

Targets = list[dict[str, Any]]


def show_targets(targets: tuple[Target, ...], tracker: bool, output: Path | None, common: Common) -> None:
    """Print the targets in the format of Prometheus's file_sd, or write them to a file atomically."""
    if tracker and targets:
        raise click.UsageError("--tracker prints one target for all clusters; leave out the clusters")
    found = _of_tracker() if tracker else list(_of_clusters(targets, common))
    if output is None:
        print_json(found)
    else:
        # All users may read the file, because Prometheus may run as another user; the file contains only addresses.
        replace_file(output, (json.dumps(found, indent=2) + "\n").encode(), durable=False, mode=0o644)


def show_rules() -> None:
    """Print the alert rules."""
    import yaml

    click.echo("# Alert rules of heronpy for Prometheus; adapt times and limits to your needs.")
    click.echo(yaml.safe_dump(rules(), sort_keys=False, width=1000), nl=False)


def show_dashboard() -> None:
    print_json(dashboard())


def _of_tracker() -> Targets:
    # Imported here: listing the executors' pages does not need the tracker.
    from heronpy.tracker import finding

    running = finding.find(heron_home())
    if running is None:
        raise exits.Failure("no tracker runs; start one with 'heron tracker'", exits.FAILED)
    return [{"targets": [running.for_programs], "labels": {"__scheme__": urlsplit(running.address).scheme}}]


def _of_clusters(targets: tuple[Target, ...], common: Common) -> Iterator[dict[str, Any]]:
    for target in targets or tuple(Target(name) for name in known_clusters(common.config_path)):
        session = Session(target, common)
        if targets:
            session.check_cluster()
        try:
            records = session.topologies()
        except HeronError as error:
            warning(f"cluster {target.cluster} is left out: {error}")
            continue
        with ThreadPoolExecutor(max_workers=max(1, min(len(records), ASKED_AT_ONCE))) as pool:
            answers = list(pool.map(lambda record: _pages(session, record), records))  # noqa: B023
        for record, pages in zip(records, answers, strict=True):
            if isinstance(pages, str):
                warning(f"topology '{record.topology}' is left out: {pages}")
                continue
            if pages.hidden:
                warning(
                    f"topology '{record.topology}': the metrics pages of {', '.join(pages.hidden)} listen on loopback,"
                    " so other hosts cannot reach them; submit the topology with heron.executor.metrics_host=host"
                )
            if pages.targets:
                labels = {"cluster": record.cluster, "role": record.role, "environ": record.environ}
                yield {"targets": pages.targets, "labels": labels}


@dataclass(frozen=True, slots=True)
class _Pages:
    targets: list[str]
    #: Containers whose pages are on loopback of another host.
    hidden: list[str]


def _pages(session: Session, record: plan_pb2.ExecutionState) -> _Pages | str:
    """Return the metrics pages of a topology's executors, or the reason why they are unknown."""
    try:
        listens = settings_for(session.settings_of(record), ExecutorSettings).metrics_host
        elsewhere = bool(session.engine_of(record.topology))
        status = session.ask(record.topology, control_pb2.GetStatus(), ASK_S)
    except HeronError as error:
        return str(error)
    found = _Pages([], [])
    for executor in sorted(status.executors, key=lambda one: one.container):
        # An executor of an earlier release does not report its address.
        host = executor.metrics_host or listens
        if elsewhere and is_loopback(host) and executor.host != socket.gethostname():
            found.hidden.append(f"container {executor.container} on {executor.host}")
        elif executor.metrics_port:
            host = executor.host if host in _EVERYWHERE else host
            found.targets.append(_address(host, executor.metrics_port))
    return found


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
