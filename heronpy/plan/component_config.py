"""The configuration of a topology and of its components, read from the topology message. Pure.

This module implements the typing rule of Apache Heron (text that reads as a number or a boolean is converted), the
layering (a component overrides its topology), and the rules for `topology.` keys. Serialized values are loaded only on
request, because loading runs user code.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from heronpy.common import topology_keys
from heronpy.common.errors import ConfigError, TopologyError
from heronpy.common.nearest import did_you_mean
from heronpy.common.topology_keys import (
    BATCH_RUN,
    DROP_NEWEST,
    KINDS,
    RELIABILITY_MODES,
    SAMPLE,
    TOPOLOGY_COMPONENT_CPU,
    TOPOLOGY_COMPONENT_PARALLELISM,
    TOPOLOGY_COMPONENT_RAM,
    TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE,
    TOPOLOGY_NAME,
    TOPOLOGY_RELIABILITY_MODE,
    TOPOLOGY_SERIALIZER_CLASSNAME,
    TOPOLOGY_STMGRS,
    TOPOLOGY_TICK_TUPLE_FREQ_MS,
    TOPOLOGY_TICK_TUPLE_FREQ_SECS,
    KeyKind,
)
from heronpy.common.units import parse_bytes
from heronpy.proto import components_of, topology_pb2

ConfigMap = dict[str, Any]
#: The messages that have a configuration or are a configuration.
Configured = (
    topology_pb2.Topology | topology_pb2.Spout | topology_pb2.Bolt | topology_pb2.Component | topology_pb2.Config
)

DEFAULT_PARALLELISM = 1
#: The keys that set the interval of ticks, with their unit in seconds. The first key that is set applies.
_TICK_KEYS = {TOPOLOGY_TICK_TUPLE_FREQ_MS: 0.001, TOPOLOGY_TICK_TUPLE_FREQ_SECS: 1.0}


class SerializedValue(Struct, frozen=True):
    """A configuration value as serialized bytes, not loaded yet."""

    data: bytes
    is_python: bool

    def __repr__(self) -> str:
        """Return the text that represents this value in error messages."""
        return "None" if self.is_python and self.data in _NONES else "a serialized object"

    def load(self) -> Any:
        """Load the value; this may run code from the user's package."""
        if not self.is_python:
            raise ConfigError("the value was serialized by Java; only Python values can be loaded")
        return pickle.loads(self.data)

    def plain(self) -> Any:
        """Return the value if it is plain data, such as a list of strings, else None. Runs no user code."""
        try:
            return _PlainUnpickler(io.BytesIO(self.data)).load() if self.is_python else None
        except Exception:
            return None  # the code that loads the value reports the error


#: The encodings of None, one for each pickle protocol.
_NONES = {pickle.dumps(None, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)}


class _PlainUnpickler(pickle.Unpickler):
    """Unpickles plain data, and refuses global names, because a name could refer to any function."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def auto_typed(text: str) -> str | int | float | bool:
    """Convert a configuration text to int, float or bool if it reads as such, else return the text."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        pass
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    return text


def config_of(message: Configured, *, load: bool = False) -> ConfigMap:
    """Return the typed configuration of a Topology, Spout, Bolt, Component or Config message.

    Serialized values are `SerializedValue`s; with `load`, values serialized by Python are loaded.
    """
    result: ConfigMap = {}
    for pair in _config_message(message).kvs:
        if not pair.HasField("serialized_value"):
            result[pair.key] = auto_typed(pair.value)
            continue
        kept = SerializedValue(pair.serialized_value, pair.type != topology_pb2.JAVA_SERIALIZED_VALUE)
        result[pair.key] = _loaded(pair.key, kept) if load and kept.is_python else kept
    return result


def component_config(topology: topology_pb2.Topology, component: str, *, load: bool = False) -> ConfigMap:
    """Return the configuration of the topology, overridden by the component's own configuration."""
    parts = components_of(topology)
    if component not in parts:
        hint = did_you_mean(component, parts)
        raise TopologyError(f"topology '{topology.name}' has no component '{component}'{hint}")
    return {**config_of(topology, load=load), **config_of(parts[component], load=load)}


def parallelism_of(config: Mapping[str, Any], component: str) -> int:
    """Return the number of tasks of a component. Raises TopologyError unless it is a whole number of at least 1."""
    value = config.get(TOPOLOGY_COMPONENT_PARALLELISM, DEFAULT_PARALLELISM)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TopologyError(
            f"the parallelism of component '{component}' is {value!r}; it must be a whole number of 1 or more"
        )
    return value


def reliability_mode(topology: topology_pb2.Topology) -> str:
    """Return the reliability mode of a topology, ATMOST_ONCE by default."""
    return str(config_of(topology).get(TOPOLOGY_RELIABILITY_MODE, RELIABILITY_MODES[0]))


def is_batch(topology: topology_pb2.Topology) -> bool:
    """Whether the topology is part of a batch run."""
    return any(BATCH_RUN in config_of(spout) for spout in topology.spouts)


def shown_mode(topology: topology_pb2.Topology) -> str:
    """Return the mode to show to users: BATCH for a batch run, whose guarantees do not depend on the mode."""
    return "BATCH" if is_batch(topology) else reliability_mode(topology)


def drop_policy(config: Mapping[str, Any]) -> str:
    """Return the policy for dropping tuples; "" to hold back spouts instead. The value True means DROP_NEWEST."""
    value = config.get(TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE)
    return DROP_NEWEST if value is True else str(value or "")


def tick_interval_s(config: Mapping[str, Any]) -> float | None:
    """Return the seconds between a component's ticks, None if there are no ticks. Raises ConfigError unless positive.

    Call this after `initialize`, in which window bolts set the interval.
    """
    for key, unit_s in _TICK_KEYS.items():
        value = config.get(key)
        if value is None:
            continue
        try:
            seconds = float(value) * unit_s
        except (TypeError, ValueError):
            seconds = 0.0
        if not seconds > 0:
            raise ConfigError(f"config {key} is {value!r}; it must be {KeyKind.POSITIVE.value}")
        return seconds
    return None


#: Keys that would change the behaviour of a topology but that this release does not support, with a hint for each.
UNSUPPORTED_KEYS: dict[str, str] = {
    "topology.component.output.bps": "rate limits are not available; limit the rate in next_tuple",
    "topology.timer.events": "timers are not available; use tick tuples (topology.tick.tuple.freq.ms)",
}
#: Prefix of the keys of Heron's Java windows, which are also not supported.
_JAVA_WINDOWS = "topology.bolts."
#: Harmless keys: keys for other languages or for processes that heronpy does not have, and labels.
IGNORED_KEYS: frozenset[str] = frozenset(
    f"topology.{name}"
    for name in """additional.classpath component.jvmopts component.resourcemap worker.childopts
        remote.debugging.enable stmgr.ram metricsmgr.ram update.deactivate.wait.secs update.reactivate.wait.secs
        stateful.checkpointmanager.ram stateful.ckptmgr.ram stateful.spill.state
        stateful.spill.state.location""".split()
) | (topology_keys.TOPOLOGY_KEYS - set(topology_keys.OTHER_NAMES))
#: Keys that matter only under EFFECTIVELY_ONCE.
_STATEFUL_KEYS = "topology.stateful."


def keys_without_effect(config: Mapping[str, Any], mode: str) -> set[str]:
    """Return the known keys of a configuration that have no effect in this reliability mode."""
    stateful = mode == "EFFECTIVELY_ONCE"
    return {
        key
        for key in config
        if key in IGNORED_KEYS or (not stateful and key.startswith(_STATEFUL_KEYS) and key in KINDS)
    }


def unsupported_problems(config: Mapping[str, Any], owner: str) -> list[str]:
    """Return one sentence for each entry that this release does not support."""
    problems = []
    for key, value in config.items():
        if value in (False, None, "", 0):
            continue
        if key in UNSUPPORTED_KEYS:
            problems.append(f"{owner} sets '{key}', which this release does not support: {UNSUPPORTED_KEYS[key]}")
        elif key.startswith(_JAVA_WINDOWS) and key in KINDS:
            problems.append(
                f"{owner} sets '{key}', which is for windows in Java; use SlidingWindowBolt or TumblingWindowBolt"
            )
    return problems


def add_our_names(topology: topology_pb2.Topology) -> None:
    """For each key with a name of Apache Heron, also set heronpy's name, in the topology and its components."""
    for config in (topology.topology_config, *(part.comp.config for part in components_of(topology).values())):
        there = {pair.key for pair in config.kvs}
        for pair in list(config.kvs):
            name = topology_keys.OTHER_NAMES.get(pair.key)
            if name is not None and name not in there:
                config.kvs.add().CopyFrom(pair)
                config.kvs[-1].key = name


def set_key(config: topology_pb2.Config, key: str, value: str) -> None:
    """Set one key of a configuration message to a text, replacing an earlier value."""
    fresh = topology_pb2.Config(kvs=[item for item in config.kvs if item.key != key])
    fresh.kvs.add(key=key, value=value, type=topology_pb2.STRING_VALUE)
    config.CopyFrom(fresh)


def key_problem(key: str, value: Any) -> str | None:
    """Return a clause that describes the problem with an entry; None for a valid entry or a custom key."""
    if not key.startswith("topology."):
        return None
    kind = KINDS.get(topology_keys.OTHER_NAMES.get(key, key))
    if kind is None and key in topology_keys.TOPOLOGY_KEYS:
        return None
    if kind is None:
        hint = did_you_mean(key, KINDS)
        return f"has the unknown key '{key}'{hint}; custom keys must not start with 'topology.'"
    if _fits(kind, value):
        return None
    return f"sets '{key}' to {value!r}; it must be {kind.value}"


#: Keys that define the topology itself, so that only a new submit can change them.
_FIXED_KEYS = frozenset({TOPOLOGY_NAME, TOPOLOGY_RELIABILITY_MODE, TOPOLOGY_SERIALIZER_CLASSNAME, "topology.id"})
_FIXED_KEYS |= {TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE}
_UPDATED_KEYS = {
    TOPOLOGY_COMPONENT_PARALLELISM: "--component-parallelism",
    TOPOLOGY_COMPONENT_RAM: "--component-ram",
    TOPOLOGY_COMPONENT_CPU: "--component-cpu",
    TOPOLOGY_STMGRS: "--container-number",
}


#: Number of tuples that an asynchronous bolt processes concurrently. This is the only setting that can change while a
#: topology is running.
ASYNC_CONCURRENCY: Final = "heron.instance.async_concurrency"
CONCURRENCY_MAX: Final = 512


def live_concurrency(topology: topology_pb2.Topology, component: str) -> int:
    """Return the concurrency from the configuration of a component; 0 means the submitted value."""
    return int(config_of(components_of(topology)[component]).get(ASYNC_CONCURRENCY, 0))


def runtime_problem(topology: topology_pb2.Topology, component: str, key: str, value: str) -> str | None:
    """Return why this entry of a running topology or component cannot be changed; None if it can."""
    if key != ASYNC_CONCURRENCY:
        return runtime_key_problem(key, value)
    part = components_of(topology).get(component)
    if part is None or not part.comp.asynchronous:
        return f"'{key}' can change in a running topology only for a single asynchronous bolt: use BOLT:{key}:64"
    if not re.fullmatch("[0-9]{1,3}", value) or int(value) > CONCURRENCY_MAX:
        return (
            f"'{key}' is {value!r}; it must be a whole number from 1 to {CONCURRENCY_MAX}, or 0 for the submitted value"
        )
    return None


def runtime_key_problem(key: str, value: str) -> str | None:
    """Return a sentence on why this entry of a running topology cannot be changed; None if it can."""
    if key in _UPDATED_KEYS:
        return f"'{key}' cannot be changed as a setting; use {_UPDATED_KEYS[key]}"
    if key in _FIXED_KEYS or key.startswith(("heron.", _STATEFUL_KEYS)):
        return f"'{key}' cannot be changed in a running topology; kill the topology and submit it again"
    wrong = key_problem(key, auto_typed(value))
    return f"the setting {wrong}" if wrong else None


def split_setting(text: str, components: Iterable[str]) -> tuple[str, str, str]:
    """Split `[component:]key:value`; the component is "" for the topology. Raises ConfigError for other forms."""
    known = list(components)
    head, separator, rest = text.partition(":")
    if not separator or not head.strip():
        raise ConfigError(f"'{text}' does not have the form [component:]key:value; for example 'count:limit:10'")
    if head in known and ":" in rest:
        key, _, value = rest.partition(":")
        if not key.strip():
            raise ConfigError(f"'{text}' has no key; write component:key:value")
        return head, key, value
    # A value may contain colons; component names rarely contain a dot, keys mostly do.
    if ":" in rest and "." not in head and re.match(r"[A-Za-z_][\w.\-]*:(?!//)", rest):
        raise ConfigError(
            f"the topology has no component '{head}'{did_you_mean(head, known)}; it has {', '.join(known)}"
        )
    return "", head, rest


def _config_message(message: Configured) -> topology_pb2.Config:
    if isinstance(message, topology_pb2.Config):
        return message
    if isinstance(message, topology_pb2.Topology):
        return message.topology_config
    if isinstance(message, (topology_pb2.Spout, topology_pb2.Bolt)):
        return message.comp.config
    if isinstance(message, topology_pb2.Component):
        return message.config
    raise TypeError(f"a {type(message).__name__} message has no configuration")


def _loaded(key: str, value: SerializedValue) -> Any:
    try:
        return value.load()
    except Exception as error:
        raise ConfigError(
            f"the value of '{key}' cannot be loaded ({type(error).__name__}: {error}); "
            "its class must be importable from the topology's package"
        ) from error


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _fits(kind: KeyKind, value: Any) -> bool:
    if kind is KeyKind.ANY:
        return True
    if kind is KeyKind.TEXT:
        return not isinstance(value, SerializedValue)
    if kind is KeyKind.BOOL:
        return isinstance(value, bool)
    if kind is KeyKind.MODE:
        return value in RELIABILITY_MODES
    if kind is KeyKind.DROP:
        return isinstance(value, bool) or value in (DROP_NEWEST, SAMPLE)
    if kind is KeyKind.COUNT:
        return _is_number(value) and isinstance(value, int) and value >= 1
    if kind is KeyKind.BYTES:
        try:
            return not isinstance(value, SerializedValue) and parse_bytes(value) >= 0
        except ConfigError:
            return False
    return _is_number(value) and (value > 0 if kind is KeyKind.POSITIVE else value >= 0)
