"""Convert configuration values to and from a topology message. Pure.

Strings and numbers are sent as strings, and booleans as "true" and "false". Other values are pickled.
When read, a string that represents a bool, int or float is converted to that type.
"""

from __future__ import annotations

from typing import Any

from heronpy.api.serializer import default_serializer
from heronpy.common.errors import ConfigError
from heronpy.proto import topology_pb2

_STRING = topology_pb2.STRING_VALUE
_PICKLED = topology_pb2.PYTHON_SERIALIZED_VALUE


def sanitize_config(config: Any, owner: str) -> dict[str, Any]:
    """Return a copy of `config`; values that are sent as strings are converted to strings.

    Raises a TypeError that names `owner` unless `config` is a dict with str keys.
    """
    if not isinstance(config, dict):
        raise TypeError(f"configuration of {owner} must be a dict, given {type(config).__name__}: {config!r}")
    sanitized: dict[str, Any] = {}
    for key, value in config.items():
        if not isinstance(key, str):
            raise TypeError(f"configuration keys of {owner} must be strings, given {type(key).__name__}: {key!r}")
        sanitized[key] = _as_string(value)
    return sanitized


def _as_string(value: Any) -> Any:
    # Call the base types' methods, so that a str or int that is also an Enum gives its value.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    return value


def encode_config(config: dict[str, Any], owner: str = "the topology") -> topology_pb2.Config:
    """Return the protobuf message of a configuration."""
    message = topology_pb2.Config()
    for key, value in sanitize_config(config, owner).items():
        kv = message.kvs.add()
        kv.key = key
        if isinstance(value, str):
            kv.value = value
            kv.type = _STRING
            continue
        try:
            kv.serialized_value = default_serializer.serialize(value)
        except Exception as error:
            raise TypeError(
                f"value of {key!r} in the configuration of {owner} cannot be serialized "
                f"({type(error).__name__}: {error}); give plain data or a function "
                "that creates the value"
            ) from error
        kv.type = _PICKLED
    return message


def auto_type(text: str) -> Any:
    """Return the bool, int or float that `text` represents, or else `text`."""
    lowered = text.lower()
    if lowered == "true":
        return True
    if lowered == "false":
        return False
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def decode_config(message: topology_pb2.Config, *, unpickle: bool = True) -> dict[str, Any]:
    """Return the configuration in a message, auto-typed.

    Unpickling a value may run user code; `unpickle=False` omits pickled values.
    """
    config: dict[str, Any] = {}
    for kv in message.kvs:
        if kv.HasField("value"):
            config[kv.key] = auto_type(kv.value)
        elif kv.type != _PICKLED:
            raise ConfigError(f"configuration value of {kv.key!r} has a type that Python cannot read; give a string")
        elif unpickle:
            try:
                config[kv.key] = default_serializer.deserialize(kv.serialized_value)
            except Exception as error:
                raise ConfigError(
                    f"configuration value of {kv.key!r} cannot be unpickled "
                    f"({type(error).__name__}: {error}); add the module that defines "
                    "the value to the package"
                ) from error
    return config
