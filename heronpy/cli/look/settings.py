"""Settings with their origin, and the client's own defaults of a cluster."""

from __future__ import annotations

import json

from heronpy.cli import exits
from heronpy.cli.output import print_json, print_table, say, warning
from heronpy.clusters.client_config import ClientConfig
from heronpy.clusters.known import known_clusters
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.nearest import suggestion
from heronpy.common.setting_types import ROOMS, SettingValue


def show(target: Target, room: str | None, topology: str | None, origin: bool, as_json: bool, common: Common) -> None:
    """The settings of a cluster or of a running topology, with their origin."""
    if room is not None and room not in ROOMS:
        hint = suggestion(room, ROOMS, f"; rooms are {', '.join(ROOMS)}")
        raise exits.Failure(f"there is no room '{room}'{hint}", exits.USAGE)
    session = Session(target, common)
    settings, origins, components = _values(session, topology)
    rooms = [room] if room else list(settings)
    if as_json:
        print_json(
            {
                "settings": {name: settings[name] for name in rooms},
                "origins": {key: origins.get(key, "default") for name in rooms for key in _keys(name, settings)},
                "components": components if "instance" in rooms else {},
            }
        )
        return
    rows = [
        (f"heron.{name}.{field}", _text(value), origins.get(f"{name}.{field}", "default"))
        for name in rooms
        for field, value in settings[name].items()
    ]
    rows += [
        (
            f"heron.instance.{field} of {component}",
            _text(value),
            origins.get(f"instance.{field}@{component}", f"config of component '{component}'"),
        )
        for component, values in components.items()
        for field, value in values.items()
        if "instance" in rooms
    ]
    columns = ("key", "value", "origin")
    print_table(columns if origin else columns[:2], [row if origin else row[:2] for row in rows])


def _keys(room: str, settings: dict[str, dict[str, SettingValue]]) -> list[str]:
    return [f"{room}.{field}" for field in settings[room]]


def _values(
    session: Session, topology: str | None
) -> tuple[dict[str, dict[str, SettingValue]], dict[str, str], dict[str, dict[str, SettingValue]]]:
    """Settings, origins and overrides of components: of a topology, or of the cluster."""
    if topology is not None:
        spec = session.launch_of(session.find(topology))
        return spec.settings, spec.origins, spec.component_settings
    resolved = session.resolve()
    return resolved.settings, resolved.origins, resolved.component_settings


def _text(value: SettingValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def show_defaults(target: Target, as_json: bool) -> None:
    """The client's defaults of a cluster."""
    config = ClientConfig(target.cluster)
    if as_json:
        print_json({"path": str(config.path), "values": config.values})
        return
    if not config.values:
        say(f"No client defaults are set for cluster {target.cluster}")
    for key, value in config.values.items():
        say(f"{key} = {value}")


def set_default(target: Target, key: str, value: str) -> None:
    """Set a client default; a Failure for a cluster that nothing configures."""
    known = known_clusters(value if key == "config-path" else None)
    if target.cluster not in known:
        hint = suggestion(target.cluster, known, f"; the clusters are {', '.join(known)}")
        raise exits.Failure(f"there is no cluster '{target.cluster}'{hint}", exits.USAGE)
    config = ClientConfig(target.cluster)
    for text in config.set(key, value):
        warning(text)
    say(f"Set {key} = {value} for cluster {target.cluster} in {config.path}")


def unset_default(target: Target, key: str) -> None:
    """Unset a client default."""
    config = ClientConfig(target.cluster)
    if not config.unset(key):
        hint = suggestion(key, config.values, f"; see 'heron config list {target.cluster}'")
        raise exits.Failure(f"'{key}' is not set for cluster {target.cluster}{hint}", exits.USAGE)
    say(f"Unset {key} for cluster {target.cluster}")
