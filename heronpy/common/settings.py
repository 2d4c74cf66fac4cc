"""Typed settings: origin, checks and precedence of their values.

Later sources take precedence: defaults in `setting_types`, `<conf>/<cluster>/<room>.yaml`, the topology's own config,
the config of one component (`instance` settings only), `--config-property`.  Outside the YAML files a key is
`heron.<room>.<field>`. Invariants: Every resolved value has its declared type and is in its range. The origin of each
value is known. An unknown `heron.*` or `topology.*` key is an error that names the nearest key, unless it is a key of
Apache Heron. Any other key belongs to the user and is kept unchanged.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct, field

from heronpy.common import topology_keys
from heronpy.common.errors import ConfigError
from heronpy.common.nearest import did_you_mean
from heronpy.common.setting_types import ALIASES, OPERATORS_KEYS, ORDERED, PROFILES, ROOM_OF, ROOMS, SettingValue
from heronpy.common.units import GB, KB, MB, format_bytes, parse_bytes, parse_duration_s

S = TypeVar("S")

DEFAULT: Final = "default"
COMMAND_LINE: Final = "--config-property"
TOPOLOGY: Final = "topology config"
#: The only YAML file in a cluster's folder that contains no settings; see `heronpy.jobs.base`.
JOBS_FILE: Final = "jobs.yaml"
_YAML_MAX_BYTES: Final = 1 << 20
_UNITS: Final = {
    "_bytes": "bytes",
    "_bytes_max": "bytes",
    "_s": "s",
    "_ms": "ms",
    "_us": "us",
    "_percent": "percent",
    "per_s": "",
}
_PER_SECOND: Final = {"s": 1, "ms": 1000, "us": 1_000_000}
_TRUE: Final = frozenset({"true", "yes", "on"})
_FALSE: Final = frozenset({"false", "no", "off"})


class Setting(Struct, frozen=True):
    """One setting, for documentation and tools."""

    room: str
    name: str
    type: str
    unit: str
    default: Any
    doc: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    absolute: bool = False

    @property
    def key(self) -> str:
        """The full key, as used everywhere except in the group's own YAML file."""
        return f"heron.{self.room}.{self.name}"

    @property
    def default_text(self) -> str:
        if self.unit == "bytes":
            for name, size in (("GB", GB), ("MB", MB), ("KB", KB)):
                if self.default and self.default % size == 0:
                    return f"{self.default // size}{name}"
        if isinstance(self.default, float):
            return f"{self.default:g}" if self.default < 1e6 else f"{self.default:.0f}"
        return self.default or '""' if self.type == "str" else json.dumps(self.default)

    @property
    def expected(self) -> str:
        """The valid values, in words."""
        kinds = {"bool": "true or false", "int": "a whole number", "float": "a number"}
        what = kinds.get(self.type, "a map" if self.type.startswith("dict") else "text")
        if self.unit == "bytes":
            what = "a size such as 512KB or 64MB"
        elif self.unit in _PER_SECOND:
            what = f"a duration such as 250ms or 2s (a bare number is in {self.unit})"
        if self.choices:
            what = "one of " + ", ".join(self.choices)
        elif self.absolute:
            what = "an absolute path, or empty"
        elif self.low is not None and self.high is not None:
            what += f", from {self.low:g} to {self.high:g}"
        elif self.low and self.unit == "bytes":
            what += f", at least {format_bytes(int(self.low))}"
        elif self.low is not None and self.type in ("int", "float"):
            what += f", at least {self.low:g} {self.unit}".rstrip() if self.low else ", not negative"
        return what


class Resolved(Struct, frozen=True):
    """All settings of one topology, ready for its launch file."""

    settings: dict[str, dict[str, SettingValue]] = field(default_factory=dict)
    """Map from settings group to field to value."""
    origins: dict[str, str] = field(default_factory=dict)
    """Map from `group.field`, or `instance.field@component`, to the origin of the value."""
    component_settings: dict[str, dict[str, SettingValue]] = field(default_factory=dict)
    """Map from component to the `instance` settings that the component overrides."""
    ignored: list[str] = field(default_factory=list)
    """A sentence for each key or file that has no effect."""


class HasSettings(Protocol):
    """The part of a launch specification that `settings_for` needs."""

    @property
    def settings(self) -> Mapping[str, Mapping[str, SettingValue]]: ...

    @property
    def component_settings(self) -> Mapping[str, Mapping[str, SettingValue]]: ...


def describe() -> Iterator[Setting]:
    """Yield every setting, in the order of `ROOMS`."""
    for room, cls in ROOMS.items():
        for name, item in cls.described.items():
            suffix = max((end for end in _UNITS if name.endswith(end)), key=len, default="")
            yield Setting(
                room=room,
                name=name,
                type=cls.__annotations__[name],
                unit=_UNITS.get(suffix, ""),
                default=item.default,
                doc=item.doc,
                low=item.low,
                high=item.high,
                choices=item.choices,
                absolute=item.absolute,
            )


_SETTINGS: Final[dict[str, Setting]] = {item.key: item for item in describe()}


def conf_text(room: str, given: Mapping[str, SettingValue] | None = None, notes: Sequence[str] = ()) -> str:
    """Return the text of conf/<cluster>/<room>.yaml: every key with its meaning, commented out unless it is set.

    `notes` are comments for people, one line each.
    """
    lines = [
        f"# {ROOMS[room].__doc__}",
        "# Every key is shown with its default; remove '# ' to set it.",
        *(f"# {' '.join(note.split())}" for note in notes),
    ]
    for item in _SETTINGS.values():
        if item.room == room:
            lines += ["", f"# {item.doc}", f"# It must be {item.expected}."]
            value = (given or {}).get(item.name)
            lines.append(
                f"# {item.name}: {item.default_text}" if value is None else f"{item.name}: {json.dumps(value)}"
            )
    return "\n".join(lines) + "\n"


def find_conf(config_path: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the configuration directories, least important first.

    They are the directory shipped with heronpy, the directory in HERON_CONF, and `config_path`; each
    contains one directory per cluster.
    """
    package = Path(__file__).resolve().parent.parent
    shipped = [path for path in (package / "conf", package.parent / "conf") if path.is_dir()]
    found = shipped[:1]
    for name, value in (
        ("HERON_CONF", os.environ.get("HERON_CONF")),
        ("--config-path", config_path),
    ):
        if value:
            path = Path(value).expanduser().absolute()
            if not path.is_dir():
                raise ConfigError(f"{name} names {value}, which is not a directory")
            found.append(path)
    return found


def split_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Convert the `key=value` texts of --config-property to a map; the last value of a repeated key applies."""
    result: dict[str, str] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{COMMAND_LINE} {text!r} must have the form key=value")
        result[key.strip()] = value.strip()
    return result


def resolve(
    cluster: str,
    conf_dirs: Sequence[str | os.PathLike[str]],
    topology_config: Mapping[str, Any],
    component_configs: Mapping[str, Mapping[str, Any]],
    overrides: Sequence[str],
    lenient: bool = False,
    given_in: Mapping[str, str] | None = None,
) -> Resolved:
    """Merge all layers into the settings of one topology, checking each value on the way.

    `given_in` maps overrides that are not from the command line to their origins.
    With `lenient`, an invalid key or value is left out and reported in `ignored`, for commands that must work
    with any configuration.
    """
    result = Resolved()
    put = _leniently if lenient else _apply
    for item in _SETTINGS.values():
        default = dict(item.default) if isinstance(item.default, dict) else item.default
        result.settings.setdefault(item.room, {})[item.name] = default
        result.origins[f"{item.room}.{item.name}"] = DEFAULT
    for file in _conf_files(cluster, [Path(path) for path in conf_dirs]):
        for name, (value, line) in _fields_of(file, result, lenient).items():
            key = name if name.startswith("heron.") else f"heron.{file.stem}.{name}"
            put(result, key, value, f"{file}:{line}")
    for key, value in topology_config.items():
        put(result, key, value, TOPOLOGY)
    for component, config in component_configs.items():
        for key, value in config.items():
            _apply_component(result, component, key, value)
    for key, value in split_overrides(overrides).items():
        put(result, key, value, (given_in or {}).get(key, COMMAND_LINE))
        for component, values in result.component_settings.items():
            name = key.removeprefix("heron.instance.")
            if name != key and name in values:
                del values[name]
                del result.origins[f"instance.{name}@{component}"]
    _apply_profiles(result)
    for component in [name for name, values in result.component_settings.items() if not values]:
        del result.component_settings[component]
    if not lenient:
        _check_order(result)
    return result


def _apply_profiles(result: Resolved) -> None:
    instance, origins = result.settings["instance"], result.origins
    for name, value in PROFILES[str(instance["profile"])].items():
        if origins[f"instance.{name}"] == DEFAULT:
            instance[name], origins[f"instance.{name}"] = value, f"profile {instance['profile']}"
    for component, values in result.component_settings.items():
        chosen = values.get("profile")
        if chosen is not None:
            for name in PROFILES["latency"].keys() - values.keys():
                values[name] = PROFILES[str(chosen)].get(name, ROOMS["instance"].described[name].default)
                origins[f"instance.{name}@{component}"] = f"profile {chosen} of component {component!r}"


def prefer(result: Resolved, component: str, profile: str, name: str, why: str) -> None:
    """Give a component another profile's default for one setting, unless the user has chosen a profile or value.

    `why` is shown as the origin of the value.
    """
    own = result.component_settings.get(component, {})
    chosen = {result.origins["instance.profile"], result.origins[f"instance.{name}"]} != {DEFAULT}
    if chosen or "profile" in own or name in own:
        return
    result.component_settings.setdefault(component, {})[name] = PROFILES[profile][name]
    result.origins[f"instance.{name}@{component}"] = f"profile {profile} of component {component!r}: {why}"


def settings_for(launch: HasSettings, kind: type[S], component: str | None = None) -> S:
    """Return the settings of this kind; `InstanceSettings` include the overrides of the component.

    Raises ConfigError if the launch file is from another release.
    """
    room = ROOM_OF[kind]
    values = dict(launch.settings.get(room, {}))
    if room == "instance" and component is not None:
        values.update(launch.component_settings.get(component, {}))
    for name in values:
        if f"heron.{room}.{name}" not in _SETTINGS:
            raise ConfigError(
                f"the launch file has unknown setting heron.{room}.{name}; it was written by"
                " another release of heronpy; submit the topology again"
            )
    return kind(**values)


def parse_value(item: Setting, value: object, origin: str) -> SettingValue:
    """Convert a value to the type of its setting. Raises ConfigError with key, value and origin if it is invalid."""
    try:
        parsed = _convert(item, value)
        if isinstance(parsed, (int, float)) and not isinstance(parsed, bool):
            low = item.low if item.low is not None else -math.inf
            high = item.high if item.high is not None else math.inf
            if not low <= parsed <= high or math.isinf(parsed):
                raise ValueError
        if item.absolute and parsed and not os.path.isabs(str(parsed)):
            raise ValueError
        if item.choices:
            parsed = {choice.lower(): choice for choice in item.choices}[str(parsed).lower()]
    except (ValueError, TypeError, KeyError, OverflowError, ConfigError):
        shown = "empty" if value is None else repr(value)[:200]
        raise ConfigError(f"{origin}: {item.key} is {shown} but must be {item.expected}") from None
    return parsed


def _convert(item: Setting, value: Any) -> SettingValue:
    if item.type.startswith("dict"):
        parsed = json.loads(value) if isinstance(value, str) else value
        if not isinstance(parsed, Mapping) or not all(isinstance(key, str) for key in parsed):
            raise ValueError
        return dict(parsed)
    if item.type == "bool":
        text = str(value).strip().lower()
        if text not in _TRUE | _FALSE:
            raise ValueError
        return text in _TRUE
    if isinstance(value, bool) and "on" in item.choices:
        return "on" if value else "off"  # YAML 1.1 reads a bare on or off as a boolean
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError
    if item.type == "str":
        return str(value)
    if item.unit == "bytes":
        return parse_bytes(value)
    number = _number(value)
    if item.unit in _PER_SECOND and number is None:
        return round(parse_duration_s(value) * _PER_SECOND[item.unit], 9)
    if number is None or (item.type == "int" and number != int(number)):
        raise ValueError
    return int(number) if item.type == "int" else float(number)


def _number(value: str | int | float) -> int | float | None:
    """Convert a value to a number; returns None for text that is not a number."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return None


def _leniently(result: Resolved, key: str, value: Any, origin: str) -> None:
    try:
        _apply(result, key, value, origin)
    except ConfigError as error:
        result.ignored.append(f"left out: {error}")


def _apply(result: Resolved, key: str, value: Any, origin: str) -> None:
    item = _known(result, key, origin)
    if item is not None:
        result.settings[item.room][item.name] = parse_value(item, value, origin)
        result.origins[f"{item.room}.{item.name}"] = origin


def _apply_component(result: Resolved, component: str, key: str, value: Any) -> None:
    origin = f"config of component {component!r}"
    item = _known(result, key, origin)
    if item is None:
        return
    if item.room != "instance":
        raise ConfigError(f"{origin}: {key} belongs to the whole topology; a component can set only heron.instance.*")
    result.component_settings.setdefault(component, {})[item.name] = parse_value(item, value, origin)
    result.origins[f"instance.{item.name}@{component}"] = origin


def _known(result: Resolved, key: str, origin: str) -> Setting | None:
    """Return the setting with this key; None, with a note in `result`, for a key that only Apache Heron uses."""
    if not isinstance(key, str):
        return None
    if key not in _SETTINGS and topology_keys.is_system_key(key):
        result.ignored.append(topology_keys.without_effect(key, origin))
        return None
    key = ALIASES.get(key, key)
    if key in OPERATORS_KEYS and origin == TOPOLOGY:
        raise ConfigError(
            f"{origin}: {key} protects other topologies; set it in {key.split('.')[1]}.yaml of the cluster"
        )
    if key in _SETTINGS:
        return _SETTINGS[key]
    if key.startswith("heron."):
        raise ConfigError(f"{origin}: unknown key {_unknown(key, _SETTINGS)}")
    if origin == COMMAND_LINE and key in topology_keys.KINDS:
        raise ConfigError(f"{COMMAND_LINE} cannot set {key}; set it in the program, with set_config")
    if key.startswith("topology.") and key not in topology_keys.KINDS and key not in topology_keys.TOPOLOGY_KEYS:
        raise ConfigError(f"{origin}: unknown key {_unknown(key, topology_keys.KINDS)}")
    return None


def _unknown(key: str, known: Iterable[str]) -> str:
    return f"{key}{did_you_mean(key, known) or '; `heron config show` lists the known ones'}"


def _check_order(result: Resolved) -> None:
    for component in ["", *result.component_settings]:
        overrides = result.component_settings.get(component, {})
        for smaller, larger, factor in ORDERED:
            values = []
            named = []
            for at in (smaller, larger):
                room, name = at.split(".")
                own = room == "instance" and name in overrides
                limit = overrides[name] if own else result.settings[room][name]
                assert isinstance(limit, int | float), "limits are numbers"
                values.append(limit)
                origin = result.origins[f"{at}@{component}" if own else at]
                named.append(f"heron.{at} ({limit}, {origin})")
            if values[0] * factor > values[1]:
                raise ConfigError(f"{named[0]} must not exceed {named[1]}")


def clusters_of(conf_dirs: Iterable[Path]) -> list[str]:
    """Return the clusters with a folder of settings in one of these directories."""
    return sorted({entry.name for path in conf_dirs if path.is_dir() for entry in path.iterdir() if entry.is_dir()})


def check_cluster(cluster: str, conf_dirs: Sequence[Path], others: Iterable[str] = ()) -> None:
    """Raise ConfigError with the nearest name if no folder contains settings of the cluster; `others` are further
    valid names.
    """
    if not conf_dirs or any((path / cluster).is_dir() for path in conf_dirs):
        return
    known = sorted({*clusters_of(conf_dirs), *others})
    raise ConfigError(
        f"there is no configuration directory for cluster {cluster!r}{did_you_mean(cluster, known)} in"
        f" {', '.join(map(str, conf_dirs))}; known clusters: {', '.join(known) or 'none'}; run heron cluster init"
    )


def _conf_files(cluster: str, conf_dirs: Sequence[Path]) -> Iterator[Path]:
    """Yield the YAML files of the cluster, least important first."""
    if not cluster or "/" in cluster or cluster in (".", ".."):
        raise ConfigError(f"{cluster!r} is not the name of a cluster")
    check_cluster(cluster, conf_dirs)
    directories = [path / cluster for path in conf_dirs if (path / cluster).is_dir()]
    for directory in directories:
        yield from sorted(file for file in directory.glob("*.yaml") if file.name != JOBS_FILE)


def _fields_of(file: Path, result: Resolved, lenient: bool) -> dict[str, tuple[Any, int]]:
    """Read one YAML file as a map from field to value and line, which is empty if the file is left out."""
    try:
        if file.stem in ROOMS:
            return read_yaml(file)
        if file.stem not in topology_keys.FILES:
            rooms = ", ".join(f"{room}.yaml" for room in ROOMS)
            raise ConfigError(f"{file} is not a settings file of heronpy; use one of {rooms}")
        result.ignored.append(f"{file} is a file of Apache Heron and has no effect here")
    except ConfigError as error:
        if not lenient:
            raise
        result.ignored.append(f"left out: {error}")
    return {}


def read_yaml(file: Path) -> dict[str, tuple[Any, int]]:
    """Map each key in a file to value and line. Raises ConfigError, with file and line, unless the file is a map."""
    try:
        with open(file, "rb") as opened:
            content = opened.read(_YAML_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    if len(content) > _YAML_MAX_BYTES:
        raise ConfigError(f"{file} is larger than {_YAML_MAX_BYTES} bytes")
    if content.isascii() and all(not line.strip() or line.lstrip().startswith(b"#") for line in content.splitlines()):
        # it has only comments, like the files shipped with heronpy, whose parsing would take most of a command's time
        return {}
    import yaml

    try:
        loader = yaml.SafeLoader(content)
        try:
            root = loader.get_single_node()
            if root is None or root.tag == "tag:yaml.org,2002:null":
                return {}
            if not isinstance(root, yaml.MappingNode):
                raise ConfigError(f"{file}:1: the file must contain lines of the form key: value")
            found: dict[str, tuple[Any, int]] = {}
            for key_node, value_node in root.value:
                line = key_node.start_mark.line + 1
                name = str(key_node.value)
                if name in found:
                    raise ConfigError(f"{file}:{line}: {name} is set twice; remove one of the two")
                found[name] = (loader.construct_object(value_node, deep=True), line)
            return found
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{file}:{line}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid YAML: {str(error).splitlines()[0]}") from None
