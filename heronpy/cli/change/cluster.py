"""`heron cluster`: a cluster's settings, requirements, manifest, access and avoided hosts."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from heronpy.cli import exits
from heronpy.cli.output import clean, command, picked, print_json, print_table, say, warning
from heronpy.clusters.client_config import ClientConfig, config_home, known_clusters
from heronpy.clusters.engines import check_kind, kind_of, python_of
from heronpy.clusters.records import Records
from heronpy.clusters.requirements import check as requirements
from heronpy.clusters.session import Session
from heronpy.clusters.target import NAME, NAME_RULE, Common, Target, caller
from heronpy.common.engine_settings import KubernetesSettings
from heronpy.common.errors import HeronError
from heronpy.common.folders import absolute, make_folders, write_private_text
from heronpy.common.setting_types import ROOMS, SettingValue
from heronpy.common.settings import conf_text, settings_for
from heronpy.common.units import counted, format_duration
from heronpy.engines.open import open_engine, profile_of, template_text
from heronpy.net.access import BROUGHT_MAX_BYTES, bring, to_text
from heronpy.net.access_place import folder_of
from heronpy.proto import control_pb2


def check(target: Target, no_container: bool, as_json: bool, common: Common) -> None:
    """Print each requirement as it is tested; exit with code 1 if one is not met. Skipped tests are not failures."""
    session = Session(target, common)
    session.check_cluster()
    found = []
    for one in requirements(session, container=not no_container):
        found.append(one)
        if not as_json:
            how = one.untried.value if one.untried else "ok" if one.ok else "FAIL"
            say(f"{how:<4}  {clean(one.what)}: {clean(one.detail)}")
            if one.fix and (one.untried or not one.ok):
                say(f"{'':6}fix: {clean(one.fix)}")
    if as_json:
        lines = [
            {
                "what": one.what,
                "ok": None if one.untried else one.ok,
                "untried": one.untried.value if one.untried else None,
                "detail": one.detail,
                "fix": one.fix if one.untried or not one.ok else None,
            }
            for one in found
        ]
        print_json({"cluster": target.cluster, "ok": all(one.ok for one in found), "requirements": lines})
    if not all(one.ok for one in found):
        raise click.exceptions.Exit(exits.FAILED)


def manifest(target: Target, nodes: bool, common: Common) -> None:
    """Print the objects as YAML; raises a Failure for a cluster that is not on Kubernetes."""
    import yaml

    from heronpy.engines.kubernetes.submit_host import TEMPLATE, SubmitHost
    from heronpy.engines.kubernetes.submit_host import manifest as objects

    session = Session(target, common)
    session.check_cluster()
    resolved = session.resolve()
    kind = kind_of(resolved)
    if kind != "kubernetes":
        engine = f"is on engine {kind}" if kind else "has no engine"
        what = f"cluster '{target.cluster}' {engine}, and only clusters on Kubernetes have a manifest"
        raise exits.Failure(f"{what}; create such a cluster: heron cluster init NAME --engine kubernetes", exits.USAGE)
    # Refuse settings that a submit would refuse.
    open_engine(kind, resolved, "manifest", [python_of(resolved)])
    room = settings_for(resolved, KubernetesSettings)
    namespace = room.namespace or "default"
    template = template_text(room.pod_template) if room.pod_template else ""
    host = SubmitHost(
        target.cluster, namespace, room.image, python_of(resolved), room.state_volume_bytes, {}, template, nodes
    )
    given: dict[str, dict[str, SettingValue]] = {}
    for key, origin in resolved.origins.items():
        name, _, field = key.partition(".")
        if origin != "default" and field in resolved.settings.get(name, {}):
            given.setdefault(name, {})[field] = resolved.settings[name][field]
    given.setdefault("engine", {})["endpoint_host"] = host.endpoint_host
    there: dict[str, SettingValue] = {"namespace": namespace, "context": ""}
    given.setdefault("kubernetes", {}).update(there | ({"pod_template": TEMPLATE} if template else {}))
    rooms = {name: conf_text(name, values) for name, values in sorted(given.items())}
    click.echo(yaml.safe_dump_all(objects(replace(host, rooms=rooms)), sort_keys=False, width=120), nl=False)


def hosts(target: Target, lift: str | None, as_json: bool, common: Common) -> None:
    """Print the avoided hosts, or let schedulers use the host `lift` again.

    Raises a Failure if a scheduler does not answer, or if no scheduler avoids `lift`.
    """
    session = Session(target, common, warn=warning)
    names = [one.topology for one in session.topologies() if session.engine_of(one.topology)]
    failed, avoided, lifted = False, list[dict[str, Any]](), list[str]()
    for name in names:
        try:
            found = list(session.ask_scheduler(name, control_pb2.GetContainers(), 5.0).avoided)
            if lift and any(one.host == lift for one in found):
                session.ask_scheduler(name, control_pb2.DrainHost(host=lift, lift=True, by=caller()), 5.0)
                lifted.append(name)
                found = [one for one in found if one.host != lift]
        except HeronError as error:
            failed = True
            warning(f"'{name}': {error}")
            continue
        avoided += [
            {"topology": name, **picked(one, "host", "why", "draining"), "left_s": round(one.left_s)} for one in found
        ]
    if as_json:
        print_json(avoided)
    else:
        for name in lifted:
            say(f"Host {lift} may get containers of '{name}' again")
        if avoided:
            rows = [(one["host"], one["topology"], _how_long(one), one["why"]) for one in avoided]
            print_table(("host", "topology", "avoided for", "why"), rows)
        elif not lift:
            say("No hosts are avoided")
    if failed:
        raise exits.Failure("some topologies could not be queried; the reasons are above")
    if lift and not lifted:
        raise exits.Failure(f"no topology in {target} avoids host '{lift}'", exits.NOT_FOUND)


def _how_long(one: dict[str, Any]) -> str:
    return "until its drain is over" if one["draining"] else format_duration(one["left_s"])


def access(target: Target, install: bool, common: Common) -> None:
    """Print the access data of this host, or install the access data that another host has printed."""
    Records(target, common).check_cluster()
    cluster = target.cluster
    if not install:
        if sys.stdout.isatty():
            raise exits.Failure(
                "the output contains a secret key, which is not shown on a terminal; use a pipe: ssh"
                f" THIS_HOST heron cluster access {cluster} | heron cluster access {cluster} --install",
                exits.USAGE,
            )
        sys.stdout.write(to_text(cluster, socket.gethostname()) + "\n")
        return
    text = sys.stdin.read(BROUGHT_MAX_BYTES + 1)
    if len(text) > BROUGHT_MAX_BYTES:
        raise exits.Failure(f"the input is larger than {BROUGHT_MAX_BYTES >> 20} MB", exits.USAGE)
    count = bring(cluster, text)
    say(f"Wrote your command key, and {counted(count, 'control endpoint')}, to {folder_of(cluster)}")
    say(f"  next: {command('heron', 'list', cluster)}")


def init(name: str, engine: str, config_path: str | None) -> None:
    """Write the settings of a cluster; raises a Failure when it already has settings."""
    if not NAME.fullmatch(name):
        raise exits.Failure(f"'{name}' cannot be the name of a cluster; {NAME_RULE}", exits.USAGE)
    check_kind(engine)
    given = config_path or os.environ.get("HERON_CONF")
    base = absolute(given) if given else config_home() / "conf"
    folder = base / name
    if folder.exists() or name in known_clusters():
        where = f"{folder} exists" if folder.exists() else f"cluster '{name}' already exists"
        raise exits.Failure(f"{where}, and is not overwritten; choose another name, or remove the folder", exits.EXISTS)
    found = profile_of(engine)
    if found.unknown:
        warning(f"no settings are filled in, because {engine} does not answer on this host: {found.unknown}")
    values: dict[str, dict[str, SettingValue]] = {"engine": {"kind": engine}}
    for room, fields in found.values.items():
        values.setdefault(room, {}).update(fields)
    _write(folder, values, found.notes)
    say(f"Wrote the settings of cluster {name} to {folder}")
    for room, given_values in values.items():
        for field, value in given_values.items():
            say(f"  {room}.yaml: {field}: {value}")
    if absolute(os.environ.get("HERON_CONF") or "/") != base:
        config = ClientConfig(name)
        config.set("config-path", str(base))
        say(f"  stored in {config.path}: config-path")
    say(f"  next: {command('heron', 'cluster', 'check', name)}")


def _write(folder: Path, values: dict[str, dict[str, SettingValue]], notes: dict[str, list[str]]) -> None:
    """Write all settings files into a hidden folder, then rename it, so that no command finds an incomplete cluster."""
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    make_folders(draft)
    host = socket.gethostname()
    for room in ROOMS:
        lines = [f"found on host {host}: {note}" for note in notes.get(room, ())]
        write_private_text(draft / f"{room}.yaml", conf_text(room, values.get(room), lines))
    draft.rename(folder)
