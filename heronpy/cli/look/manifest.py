"""`heron cluster manifest`: what an operator applies to a Kubernetes cluster."""

from __future__ import annotations

from dataclasses import replace

import click

from heronpy.cli import exits
from heronpy.clusters.engines import kind_of, python_of
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.engine_settings import KubernetesSettings
from heronpy.common.setting_types import SettingValue
from heronpy.common.settings import conf_text, settings_for
from heronpy.engines.open import open_engine, template_text


def manifest(target: Target, nodes: bool, common: Common) -> None:
    """Print the objects as YAML; a Failure for a cluster on another engine."""
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
        raise exits.Failure(f"{what}; make one: heron cluster init NAME --engine kubernetes", exits.USAGE)
    # What would be refused at submit is refused here.
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
    given.setdefault("engine", {})["door_host"] = host.door_host
    there: dict[str, SettingValue] = {"namespace": namespace, "context": ""}
    given.setdefault("kubernetes", {}).update(there | ({"pod_template": TEMPLATE} if template else {}))
    rooms = {name: conf_text(name, values) for name, values in sorted(given.items())}
    click.echo(yaml.safe_dump_all(objects(replace(host, rooms=rooms)), sort_keys=False, width=120), nl=False)
