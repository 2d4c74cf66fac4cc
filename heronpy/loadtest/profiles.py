"""The named profiles: YAML files with a topology, its parameters and the defaults of a run.

A profile's keys are the fields of `Load`; the command line overrides single values.
Unknown keys and values out of range raise a ConfigError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from heronpy.common.errors import ConfigError
from heronpy.common.nearest import did_you_mean
from heronpy.common.setting_types import SettingValue

MODES = ("ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE")
#: Topologies whose tasks store their counts as state.
STATEFUL = ("words", "passthrough", "aggregate")
#: Folder of the profiles in the wheel; in a checkout they are in scripts/.
FOLDERS = (
    Path(__file__).with_name("profiles"),
    Path(__file__).parents[2] / "scripts" / "load_profiles",
)


@dataclass(frozen=True, slots=True)
class Load:
    """One profile, with all parameters of a run."""

    name: str
    about: str
    topology: str
    """Name of a module in heronpy.loadtest.topologies."""
    unit: str = "tuples"
    """The unit counted at the sinks."""
    mode: str = "ATMOST_ONCE"
    containers: int = 1
    rate: float = 0.0
    """Tuples per second of each spout task; 0 means as fast as possible."""
    duration_s: float = 15.0
    """Seconds for which the spouts emit, unless `tuples` is given."""
    tuples: int = 0
    """Total number of tuples that all spouts emit; 0 means that only the duration limits it."""
    payload_bytes: int = 0
    warmup_s: float = 3.0
    """Seconds at the start of the run that the steady figures exclude; at most a third of the run."""
    max_spout_pending: int = 20_000
    message_timeout_s: int = 60
    parameters: dict[str, Any] = field(default_factory=dict)
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    """Additional configuration of the topology, such as heron.instance.batch_tuples."""
    floors: dict[str, float] = field(default_factory=dict)
    """Limits of a scene's figures: a minimum if higher is better, otherwise a maximum."""
    scenes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Map from scene name to the fields and parameters that the scene overrides; the scenes run in this order."""

    def spec(self, name: str, out: str) -> dict[str, Any]:
        """Return the specification for the topology's program."""
        return {**asdict(self), "name": name, "out": out}

    def options(self) -> dict[str, Any]:
        """Return the options that identify a run, for results and comparisons."""
        return {key: value for key, value in asdict(self).items() if key not in _NO_OPTIONS}


_NO_OPTIONS = ("name", "about", "topology", "floors", "scenes")
_POSITIVE = ("containers", "duration_s", "max_spout_pending", "message_timeout_s")
_NOT_NEGATIVE = ("rate", "tuples", "payload_bytes", "warmup_s")
_BLANK = Load("", "", "")
_KEYS = [item.name for item in fields(Load) if item.name != "name"]


def folder() -> Path:
    found = next(filter(Path.is_dir, FOLDERS), None)
    if found is None:
        raise ConfigError("the load profiles are missing; install heronpy again")
    return found


def names() -> list[str]:
    return sorted(path.stem for path in folder().glob("*.yaml"))


def load(name: str) -> Load:
    """Load a profile by name. Raises ConfigError if it is missing or invalid."""
    import yaml

    path = folder() / f"{name}.yaml"
    if name not in names():
        raise ConfigError(f"there is no load profile '{name}'{_nearest(name, names())}")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    unknown = [key for key in content if key not in _KEYS]
    if unknown:
        raise ConfigError(f"load profile {path.name} has the unknown key '{unknown[0]}'{_nearest(unknown[0], _KEYS)}")
    try:
        values = {key: _like(key, value, getattr(_BLANK, key)) for key, value in content.items()}
    except ConfigError as error:
        raise ConfigError(f"load profile '{name}': {error}") from None
    return check(Load(name=name, **values))


def changed(profile: Load, changes: dict[str, Any], parameters: list[str]) -> Load:
    """Apply overrides from the command line; each item of `parameters` is KEY=VALUE for a parameter or a setting."""
    import yaml

    own, settings = dict(profile.parameters), dict(profile.settings)
    for text in parameters:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--set {text} must be KEY=VALUE")
        if key.startswith(("heron.", "topology.")):
            settings[key] = value
        elif key in own:
            own[key] = _like(key, yaml.safe_load(value), own[key])
        else:
            raise ConfigError(f"profile '{profile.name}' has no parameter '{key}'{_nearest(key, own)}")
    given = {key: value for key, value in changes.items() if value is not None}
    # The command line also overrides the values of a scene.
    told = {text.partition("=")[0] for text in parameters} | given.keys()
    scenes = {name: {key: scene[key] for key in scene.keys() - told} for name, scene in profile.scenes.items()}
    return check(replace(profile, parameters=own, settings=settings, scenes=scenes, **given))


def scenes_of(profile: Load) -> list[Load]:
    """Return a run per scene, or only the scene that `scene` names. A profile without scenes is its own only run."""
    chosen = profile.parameters.get("scene")
    if chosen and chosen not in profile.scenes:
        raise ConfigError(f"profile '{profile.name}' has no scene '{chosen}'{_nearest(chosen, profile.scenes)}")
    return [_scene(profile, name) for name in ([chosen] if chosen else profile.scenes)] or [profile]


def _scene(profile: Load, name: str) -> Load:
    scene = profile.scenes[name]
    unknown = [key for key in scene if key not in profile.parameters and key not in _KEYS]
    if unknown:
        raise ConfigError(f"scene '{name}' of load profile '{profile.name}' has the unknown key '{unknown[0]}'")
    fields = {key: value for key, value in scene.items() if key in _KEYS}
    parameters = {**profile.parameters, **{key: scene[key] for key in scene.keys() - fields.keys()}, "scene": name}
    return replace(profile, **{**fields, "parameters": parameters, "scenes": {}})


def check(profile: Load) -> Load:
    """Return the profile. Raises ConfigError if it is invalid."""
    for key in _POSITIVE:
        if getattr(profile, key) <= 0:
            raise ConfigError(f"{key} of load profile '{profile.name}' must be above 0, not {getattr(profile, key)}")
    for key in _NOT_NEGATIVE:
        if getattr(profile, key) < 0:
            raise ConfigError(f"{key} of load profile '{profile.name}' must not be negative")
    if profile.mode not in MODES:
        raise ConfigError(f"mode '{profile.mode}' cannot be measured; choose {' or '.join(MODES)}")
    if profile.mode == "EFFECTIVELY_ONCE" and profile.topology not in STATEFUL:
        raise ConfigError(f"load profile '{profile.name}' keeps no state; choose mode {' or '.join(MODES[:2])}")
    scenes_of(profile)
    if not program_of(profile).is_file():
        raise ConfigError(
            f"load profile '{profile.name}' names the topology '{profile.topology}', which does not exist"
        )
    return profile


def program_of(profile: Load) -> Path:
    return Path(__file__).with_name("topologies") / f"{profile.topology}.py"


def _like(key: str, value: Any, sample: Any) -> Any:
    kind = type(sample)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ConfigError(f"{key} must be of type {kind.__name__}, not {value!r}")
    return value


def _nearest(word: str, known: Iterable[str]) -> str:
    return did_you_mean(word, known) or f"; choose one of {', '.join(known)}"
