"""The document of a job: its keys and their valid values. Pure.

A layer is given as a map of maps and stored flat: each leaf has a path, such as ("scale", "max", "work"). Values are
converted to the type and unit of their path, so equal settings compare as equal. Every error is one sentence that names
the key, the layer and the fix.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from heronpy.common.errors import ConfigError
from heronpy.common.log_format import is_plain
from heronpy.common.nearest import did_you_mean
from heronpy.common.settings import Setting, describe, parse_value
from heronpy.common.units import MB, parse_bytes
from heronpy.plan.component_config import CONCURRENCY_MAX, auto_typed, key_problem, runtime_key_problem
from heronpy.scaling.figures import Goal

#: Version of the format of job nodes; a release that changes the format increments it.
FORMAT: Final = 1
#: The layers, from the weakest to the strongest.
LAYERS: Final = ("base", "provisioner", "scaler", "oncall")
#: Layers that people cannot write, and the command to use instead.
NOT_BY_HAND: Final = {
    "base": "change jobs.yaml, next to the settings of the cluster",
    "scaler": "change layer oncall, which overrides it",
}
#: The only keys that the scaler writes.
SCALER_KEYS: Final = ("parallelism", "resources", "concurrency")
#: Maximum number of leaves in one layer.
LEAVES_MAX: Final = 1000
KEY_CHARS_MAX: Final = 200

Path: TypeAlias = tuple[str, ...]
#: Settings whose values are maps; each such map is one leaf.
Value: TypeAlias = str | int | float | bool | dict[str, Any]
Leaves: TypeAlias = dict[Path, Value]

Count = Annotated[int, Meta(ge=1, le=100_000, description="a whole number from 1 to 100000")]
Concurrency = Annotated[int, Meta(ge=1, le=CONCURRENCY_MAX, description=f"a whole number from 1 to {CONCURRENCY_MAX}")]
Priority = Annotated[int, Meta(ge=0, le=1000, description="a whole number from 0 to 1000")]
Bytes = Annotated[
    int,
    Meta(ge=MB, le=1 << 50, description="an amount of bytes of 1MB or more, such as 256MB", extra={"unit": "bytes"}),
]
Cores = Annotated[
    float, Meta(gt=0, le=4096, description="a number of cores above 0, such as 0.5", extra={"unit": "cores"})
]
Seconds = Annotated[float, Meta(gt=0, le=1e9, description="a number of seconds above 0", extra={"unit": "s"})]
Name = Annotated[
    str, Meta(pattern=r"^\w[\w.-]{0,199}\Z", description="a name of at most 200 letters, digits, '_', '-' and '.'")
]
Flag = Annotated[bool, Meta(description="true or false")]
Run = Annotated[Literal["running", "paused", "stopped"], Meta(description="running, paused or stopped")]
Restore = Annotated[Literal["latest", "allow_dropped", "empty"], Meta(description="latest, allow_dropped or empty")]
Mode = Annotated[Literal["act", "advise", "off"], Meta(description="act, advise or off")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z", description="the digest of a stored definition")]
Text = Annotated[str, Meta(max_length=4096)]
Plain = Annotated[
    Text | int | float | bool, Meta(description="text of at most 4096 characters, a number, true or false")
]


class Resources(Struct, frozen=True, forbid_unknown_fields=True):
    """The resources that each task of a component may use; 0 means the program's value."""

    ram: Annotated[Bytes, Meta(title="memory of each task of the component")] = 0
    cpu: Annotated[Cores, Meta(title="cores of each task of the component")] = 0.0


class Slo(Struct, frozen=True, forbid_unknown_fields=True):
    """Service level objectives of the job; 0 means no objective."""

    lag_s: Annotated[Seconds, Meta(title="the largest lag that the job promises")] = 0.0


class Scale(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the scaler, which scales only components with a maximum."""

    mode: Annotated[Mode, Meta(title="whether the scaler acts, only advises, or is off")] = "act"
    max: dict[str, Annotated[Count, Meta(title="maximum number of tasks that the scaler gives the component")]] = {}
    min: dict[str, Annotated[Count, Meta(title="minimum number of tasks that the scaler gives the component")]] = {}
    drain_s: Annotated[Seconds, Meta(title="the time within which the scaler plans to clear a backlog")] = 1800.0
    day_s: Annotated[Seconds, Meta(title="the length of the load's daily cycle, which scales the scaler's times")] = (
        86_400.0
    )


class Place(Struct, frozen=True, forbid_unknown_fields=True):
    """The place where the job runs."""

    pool: Annotated[Name, Meta(title="the pool whose slots run the job")] = ""


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    """The desired state of a job; defaults apply to keys that no layer sets. The title of a field explains the key."""

    definition: Annotated[Digest, Meta(title="the program; 'heron job deploy' sets it")] = ""
    run: Annotated[Run, Meta(title="whether the topology runs, is paused or is stopped")] = "running"
    restore: Annotated[
        Restore,
        Meta(
            title="the initial state: the latest checkpoint, the latest checkpoint without removed components, or empty"
        ),
    ] = "latest"
    parallelism: dict[str, Annotated[Count, Meta(title="number of tasks of the component")]] = {}
    resources: dict[str, Resources] = {}
    concurrency: dict[
        str, Annotated[Concurrency, Meta(title="maximum number of tuples in progress in a task of an async bolt")]
    ] = {}
    config: dict[str, Annotated[Plain, Meta(title="a key of the topology's configuration")]] = {}
    component_config: dict[str, dict[str, Annotated[Plain, Meta(title="a key of the component's configuration")]]] = {}
    settings: dict[str, Value] = {}
    slo: Slo = Slo()
    scale: Scale = Scale()
    place: Place = Place()
    role: Annotated[Name, Meta(title="the role whose quota the job uses")] = ""
    priority: Annotated[Priority, Meta(title="jobs with a higher priority get a pool's resources first")] = 100
    privileged: Annotated[Flag, Meta(title="whether the job takes precedence over all other jobs")] = False


#: Values of `restore` other than `latest`.
ALLOW_DROPPED: Final = "allow_dropped"
EMPTY: Final = "empty"
#: Maps whose keys are names of components.
_BY_COMPONENT: Final = frozenset(
    {("parallelism",), ("resources",), ("concurrency",), ("component_config",), ("scale", "max"), ("scale", "min")}
)


def name_of(path: Path) -> str:
    """Return the name of a path for users, such as `scale.max.work`."""
    return ".".join(path)


def component_of(path: Path) -> str | None:
    """Return the component of a leaf; None for a leaf that concerns the whole job."""
    return next((path[at] for at in (1, 2) if len(path) > at and path[:at] in _BY_COMPONENT), None)


def check_layer(layer: str) -> None:
    if layer not in LAYERS:
        raise ConfigError(f"there is no layer '{layer}'{did_you_mean(layer, LAYERS)}; layers are {', '.join(LAYERS)}")


def check_by_hand(layer: str, given: Collection[str] = ()) -> None:
    """Raise ConfigError if people may not write this layer or one of these keys."""
    by_hand = [one for one in LAYERS if one not in NOT_BY_HAND]
    if layer not in LAYERS:
        raise ConfigError(f"there is no layer '{layer}'{did_you_mean(layer, by_hand)}; use {' or '.join(by_hand)}")
    if layer in NOT_BY_HAND:
        raise ConfigError(f"layer {layer} cannot be written by hand; {NOT_BY_HAND[layer]}")
    if "definition" in given:
        raise ConfigError("'definition' is set by heron job deploy; leave the key out")


def leaves_of(given: object, layer: str) -> Leaves:
    """Return the leaves of a layer given as YAML or JSON. Raises ConfigError if a key or value is invalid."""
    check_layer(layer)
    found = dict(_leaves(given, (), Document, layer))
    of_one = [path for path in found if layer == "base" and not _in_base(path)]
    if of_one:
        raise ConfigError(
            f"'{name_of(of_one[0])}' of layer base is specific to one program, but the layer applies to all jobs; leave"
            " the key out"
        )
    return found


def _in_base(path: Path) -> bool:
    """Whether layer base may set this leaf for all jobs."""
    return component_of(path) is None and path != ("definition",)


def keys(path: Path = (), kind: Any = Document, default: Any = None) -> Iterator[dict[str, Any]]:
    """Return each key that a layer may set, in the order of the document. Words in capitals are placeholders.

    The default applies if no layer sets the key; None means that the program's value applies.
    """
    if path == ("settings",):
        for item in _settings().values():
            yield _key((*path, item.key), item.type, item.unit, item.expected, item.default, item.doc)
    elif _fields(kind):
        for field in msgspec.structs.fields(kind):
            yield from keys((*path, field.name), field.type, None if path[1:] else field.default)
    elif get_origin(kind) is dict:
        yield from keys((*path, "COMPONENT" if path in _BY_COMPONENT else "KEY"), get_args(kind)[1])
    else:
        limits, base = kind.__metadata__[0], kind.__origin__
        types = (str,) if get_origin(base) is Literal else get_args(base) or (base,)
        name = " | ".join(getattr(one, "__origin__", one).__name__ for one in types)
        unit, default = (limits.extra or {}).get("unit", ""), None if default == "" else default
        yield _key(path, name, unit, limits.description, default, kind.__metadata__[-1].title)


def _key(path: Path, *facts: Any) -> dict[str, Any]:
    layers = [name for name in LAYERS if name != "scaler" or path[0] in SCALER_KEYS]
    layers = ["provisioner"] if path == ("definition",) else layers if _in_base(path) else layers[1:]
    names = ("type", "unit", "range", "default", "meaning")
    return {"key": name_of(path), **dict(zip(names, facts, strict=True)), "layers": layers}


def nested(leaves: Mapping[Path, Value]) -> dict[str, Any]:
    """Return the leaves as a map of maps, sorted by path."""
    tree: dict[str, Any] = {}
    for path in sorted(leaves):
        at = tree
        for part in path[:-1]:
            at = at.setdefault(part, {})
        at[path[-1]] = leaves[path]
    return tree


def document_of(leaves: Mapping[Path, Value]) -> Document:
    """Return the document of these leaves. Raises `msgspec.ValidationError` if a leaf is invalid."""
    return msgspec.convert(nested(leaves), Document)


def needs_scaler(leaves: Mapping[Path, Value]) -> bool:
    """Whether the scaler must observe a job with this document."""
    aims = any(path[:2] in (("scale", "max"), ("slo", "lag_s")) for path in leaves)
    return aims and leaves.get(("run",), "running") == "running" and leaves.get(("scale", "mode")) != "off"


def goal_of(document: Document) -> Goal:
    """Return the objectives of a job and the allowed actions, for the scaler."""
    scale = document.scale
    return Goal(document.slo.lag_s, scale.mode, scale.max, scale.min, scale.drain_s)


@functools.cache
def _settings() -> dict[str, Setting]:
    return {item.key: item for item in describe()}


@functools.cache
def _fields(kind: Any) -> dict[str, Any]:
    """Return the type of each key of a struct; empty for any other type."""
    is_struct = isinstance(kind, type) and issubclass(kind, Struct)
    return {field.name: field.type for field in msgspec.structs.fields(kind)} if is_struct else {}


def _leaves(value: Any, path: Path, kind: Any, layer: str) -> Iterator[tuple[Path, Value]]:
    where = f"'{name_of(path)}' of layer {layer}" if path else f"layer {layer}"
    fields = _fields(kind)
    if value is None:
        raise ConfigError(f"{where} is null, but a layer cannot delete keys; leave the key out, or unset it")
    if not fields and get_origin(kind) is not dict:
        leaf = _leaf(value, path, kind, where)
        try:
            if msgspec.json.decode(msgspec.json.encode(leaf), type=Value) != leaf:
                raise ValueError
        except (ValueError, msgspec.MsgspecError):
            raise ConfigError(f"{where} is {value!r:.200}, which a job cannot store; give another value") from None
        yield path, leaf
        return
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is {value!r:.200}; it must be a map of keys to values")
    for key, inner in value.items():
        if fields and key not in fields:
            near = did_you_mean(str(key), fields)
            known = ", ".join(one for one in fields if path or one != "definition")  # only a deploy sets it
            raise ConfigError(f"{where} has the unknown key {key!r:.200}{near}; its keys are {known}")
        if not isinstance(key, str) or not 0 < len(key) <= KEY_CHARS_MAX or not is_plain(key):
            raise ConfigError(f"{where} has the key {key!r:.200}; a key is one line of 1 to {KEY_CHARS_MAX} characters")
        if layer == "scaler" and not path and key not in SCALER_KEYS:
            raise ConfigError(f"{where} cannot contain '{key}', only {', '.join(SCALER_KEYS)}; use layer oncall")
        yield from _leaves(inner, (*path, key), fields[key] if fields else get_args(kind)[1], layer)


def _leaf(value: Any, path: Path, kind: Any, where: str) -> Value:
    key = path[-1]
    if path[0] == "settings":
        if key not in _settings():
            raise ConfigError(
                f"{where} is unknown{did_you_mean(key, _settings())}; `heron config show` lists all settings"
            )
        return parse_value(_settings()[key], value, where)
    try:
        if path == ("scale", "mode") and value is False:
            value = "off"  # YAML 1.1 reads a bare off as a boolean
        if kind.__metadata__[0].extra == {"unit": "bytes"} and isinstance(value, str):
            value = parse_bytes(value)
        leaf: Value = msgspec.convert(value, kind)
    except (ConfigError, msgspec.ValidationError):
        raise ConfigError(f"{where} is {value!r:.200}; it must be {kind.__metadata__[0].description}") from None
    if path[0] in ("config", "component_config"):
        wrong = key_problem(key, auto_typed(leaf) if isinstance(leaf, str) else leaf)
        if wrong:
            raise ConfigError(f"{where} {wrong}")
        if runtime_key_problem(key, str(leaf)):
            raise ConfigError(
                f"{where} cannot change while the topology runs; write it below 'settings', 'parallelism', 'resources'"
                " or 'concurrency', or set it in the program and deploy the program"
            )
    return leaf
