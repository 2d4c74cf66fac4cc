"""`heron config`: settings with their origin, and the client's defaults for a cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from heronpy.cli import exits
from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import verb
from heronpy.cli.flags.reading import reading
from heronpy.cli.output import print_json, print_table, say, warning
from heronpy.clusters.client_config import ClientConfig, known_clusters
from heronpy.clusters.target import Common, Target
from heronpy.common.nearest import suggestion
from heronpy.common.setting_types import ROOMS, SettingValue

if TYPE_CHECKING:
    from heronpy.clusters.session import Session


class _ConfigGroup(click.Group):
    """A group that also accepts the cluster before the subcommand, as Apache's command does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [word for word in args if not word.startswith("-")]
        if words and words[0] not in self.commands:
            if len(words) > 1 and words[1] in self.commands:
                first, second = args.index(words[0]), args.index(words[1], args.index(words[0]) + 1)
                args[first], args[second] = words[1], words[0]
            elif args == words and len(words) == 1:
                args = ["list", *words]
        return super().parse_args(ctx, args)


@click.group("config", cls=_ConfigGroup)
def config_command() -> None:
    """Show settings and their origin; list, set and unset a cluster's client defaults.

    Apache Heron's word order works as well: heron config CLUSTER set KEY VALUE.
    """


@reading("show", config_command, topology=None)
@click.argument("room", required=False, shell_complete=complete.rooms)
@click.option("--topology", metavar="NAME", help="Show the settings with which a running topology was launched.",
              shell_complete=complete.topologies)  # fmt: skip
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
def show_command(
    target: Target, room: str | None, topology: str | None, origin: bool, as_json: bool, common: Common
) -> None:
    """Show the settings of a cluster: all groups (rooms), or one group.

    The keys are heron.<room>.<field>; set them in conf/<cluster>/<room>.yaml, in the topology's
    configuration, or with --config-property.
    """
    from heronpy.clusters.session import Session  # imported here, because it imports all code of clusters

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


@reading("list", config_command, topology=None, common=False)
def list_command(target: Target, as_json: bool) -> None:
    """List the client defaults for a cluster."""
    config = ClientConfig(target.cluster)
    if as_json:
        print_json({"path": str(config.path), "values": config.values})
        return
    if not config.values:
        say(f"No client defaults are set for cluster {target.cluster}")
    for key, value in config.values.items():
        say(f"{key} = {value}")


@verb("set", config_command, topology=None, json=False, common=False)
@click.argument("key", shell_complete=complete.client_keys)
@click.argument("value")
def set_command(target: Target, key: str, value: str) -> None:
    """Set a client default for a cluster: config-path, role, environ or heron.<room>.<field>."""
    known = known_clusters(value if key == "config-path" else None)
    if target.cluster not in known:
        hint = suggestion(target.cluster, known, f"; the clusters are {', '.join(known)}")
        raise exits.Failure(f"there is no cluster '{target.cluster}'{hint}", exits.USAGE)
    config = ClientConfig(target.cluster)
    for text in config.set(key, value):
        warning(text)
    say(f"Set {key} = {value} for cluster {target.cluster} in {config.path}")


@verb("unset", config_command, topology=None, json=False, common=False)
@click.argument("key", shell_complete=complete.client_keys)
def unset_command(target: Target, key: str) -> None:
    """Remove a client default for a cluster."""
    config = ClientConfig(target.cluster)
    if not config.unset(key):
        hint = suggestion(key, config.values, f"; see 'heron config list {target.cluster}'")
        raise exits.Failure(f"'{key}' is not set for cluster {target.cluster}{hint}", exits.USAGE)
    say(f"Unset {key} for cluster {target.cluster}")


def _keys(room: str, settings: dict[str, dict[str, SettingValue]]) -> list[str]:
    return [f"{room}.{field}" for field in settings[room]]


def _values(
    session: Session, topology: str | None
) -> tuple[dict[str, dict[str, SettingValue]], dict[str, str], dict[str, dict[str, SettingValue]]]:
    """Return the settings, their origins and the overrides by component, for a topology or for the cluster."""
    if topology is not None:
        spec = session.launch_of(session.find(topology))
        return spec.settings, spec.origins, spec.component_settings
    resolved = session.resolve()
    return resolved.settings, resolved.origins, resolved.component_settings


def _text(value: SettingValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)
