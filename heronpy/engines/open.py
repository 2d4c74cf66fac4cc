"""Opens engines by kind: heronpy's own, and those that installed packages add with the entry point `heronpy.engines`.

An entry point is a function `open(settings, topology_id, command) -> Engine`. Its module is loaded when an engine of
that kind is opened.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from heronpy.common.engine_settings import EngineSettings, KubernetesSettings, SlurmSettings, SparkEngineSettings
from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import ExecutorSettings, SecuritySettings, SettingValue
from heronpy.common.settings import HasSettings, settings_for
from heronpy.engines.contract import Engine, EngineError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "heronpy.engines"
#: Size limit of a pod template.
TEMPLATE_MAX = 1 << 20
Opener = Callable[[HasSettings, str, Sequence[str]], Engine]
#: Size limit of Spark's properties file.
DEFAULTS_MAX = 1 << 20
_MASTER_FIX = "set heron.spark_engine.master to spark://HOST:PORT"
IMAGE_PYTHON = "/usr/local/bin/python3"


def open_engine(kind: str, settings: HasSettings, topology_id: str, command: Sequence[str]) -> Engine:
    """The engine for the containers of one topology; each container runs `command`.

    Raises ConfigError for an unknown kind, or for settings that contradict each other.
    """
    if kind in OWN:
        return OWN[kind](settings, topology_id, command)
    found = _offered()
    if kind not in found:
        known = ", ".join(sorted({*OWN, *found}))
        raise ConfigError(f"heron.engine.kind is {kind!r}, which is not an engine; use one of {known}")
    opener: Opener = found[kind].load()
    return opener(settings, topology_id, command)


def way_in(kind: str, settings: HasSettings, cluster: str, port: int) -> str:
    """A local address that is forwarded to a port of the scheduler in an engine's cluster; "" if the engine needs none.

    Raises EngineError if the connection fails.
    """
    if kind != "kubernetes":
        return ""
    from heronpy.engines.kubernetes.client import Api
    from heronpy.engines.kubernetes.forwarding import forwarded

    room = settings_for(settings, KubernetesSettings)
    return forwarded(Api(room.context, room.namespace), cluster, port)


def kinds() -> list[str]:
    """The available kinds of engines."""
    return sorted({*OWN, *_offered()})


def _offered() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # importing it takes a local submit longer than the rest of this module

    return {point.name: point for point in entry_points(group=GROUP)}


def _kubernetes(settings: HasSettings, topology_id: str, command: Sequence[str]) -> Engine:
    from heronpy.engines.kubernetes.client import Api
    from heronpy.engines.kubernetes.engine import KubernetesEngine
    from heronpy.engines.kubernetes.pods import PodOptions

    room, engine = settings_for(settings, KubernetesSettings), settings_for(settings, EngineSettings)
    template = template_of(room.pod_template) if room.pod_template else {}
    options = PodOptions(
        room.image, int(engine.leave_s), engine.home, template, room.pod_template, scraped_port(settings)
    )
    return KubernetesEngine(topology_id, options, command, Api(room.context, room.namespace), engine.poll_s)


def scraped_port(settings: HasSettings) -> int:
    """The fixed port of container 0's metrics page; 0 if the port is not fixed, or if the page is on loopback."""
    from heronpy.net.addresses import is_loopback

    executor = settings_for(settings, ExecutorSettings)
    # A page on loopback can only be scraped from inside the pod.
    return 0 if is_loopback(executor.metrics_host) else executor.metrics_port


def template_text(file: str) -> str:
    """The text of an operator's pod template; raises ConfigError if it cannot be read."""
    path = os.path.expanduser(file)
    if not os.path.isabs(path):
        raise ConfigError(f"heron.kubernetes.pod_template is {file!r} but must be an absolute path")
    try:
        with open(path, encoding="utf-8") as opened:
            found = opened.read(TEMPLATE_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"heron.kubernetes.pod_template {file} cannot be read: {why}") from None
    if len(found) > TEMPLATE_MAX:
        raise ConfigError(f"heron.kubernetes.pod_template {file} is longer than {TEMPLATE_MAX} characters")
    return found


def template_of(file: str) -> Mapping[str, Any]:
    """The parsed pod template of an operator; raises ConfigError if it cannot be read."""
    import yaml

    try:
        found = yaml.safe_load(template_text(file))
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())[:200]
        raise ConfigError(f"heron.kubernetes.pod_template {file} is not YAML: {said}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"heron.kubernetes.pod_template {file} is not a map with the keys metadata and spec")
    return found


def _slurm(settings: HasSettings, topology_id: str, command: Sequence[str]) -> Engine:
    from heronpy.engines.slurm.batch import SlurmOptions
    from heronpy.engines.slurm.engine import SlurmEngine

    slurm, engine = settings_for(settings, SlurmSettings), settings_for(settings, EngineSettings)
    options = SlurmOptions(
        slurm.partition,
        slurm.account,
        slurm.qos,
        int(slurm.time_limit_s),
        int(engine.leave_s),
        tuple(slurm.prologue.splitlines()),
        _words(slurm.options),
        slurm.output_dir,
    )
    return SlurmEngine(topology_id, options, command, poll_s=engine.poll_s)


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"heron.slurm.options cannot be read: {error}") from None


def _spark(settings: HasSettings, topology_id: str, command: Sequence[str]) -> Engine:
    from heronpy.engines.spark.application import SparkOptions
    from heronpy.engines.spark.engine import SparkEngine
    from heronpy.net.addresses import ports_of

    room, engine = settings_for(settings, SparkEngineSettings), settings_for(settings, EngineSettings)
    security = settings_for(settings, SecuritySettings)
    options = SparkOptions(
        room.master, room.cores, room.memory_bytes, room.driver_memory, room.conf, engine.python, engine.lost_s
    )
    ports = ports_of(security.port_range)
    return SparkEngine(topology_id, options, command, security.network, ports, engine.poll_s)


def _local(settings: HasSettings, topology_id: str, command: Sequence[str]) -> Engine:
    from heronpy.engines.local.engine import LocalEngine

    return LocalEngine(topology_id, command, settings_for(settings, EngineSettings).poll_s)


#: Engines that come with heronpy.
OWN: Mapping[str, Opener] = {"kubernetes": _kubernetes, "local": _local, "slurm": _slurm, "spark": _spark}


@dataclass(frozen=True, slots=True)
class Profile:
    """Initial settings of a cluster, by group and field, and lines to print."""

    values: dict[str, dict[str, SettingValue]] = field(default_factory=dict)
    #: By room.
    notes: dict[str, list[str]] = field(default_factory=dict)
    #: Why nothing could be found; "" if the engine answered.
    unknown: str = ""


def profile_of(kind: str, variables: Mapping[str, str] | None = None) -> Profile:
    """Initial settings for a new cluster with an engine of this kind, derived from this host.

    They include a standby topology master, because a cluster has several hosts.
    """
    if kind == "local":
        return Profile({"engine": {"poll_s": 0.5}})
    found = _found_by(kind, variables)
    return replace(found, values={**found.values, "tmaster": {"standbys": 1}})


def _found_by(kind: str, variables: Mapping[str, str] | None) -> Profile:
    """The profile for a kind of engine; empty if the engine belongs to a separate package."""
    if kind == "kubernetes":
        return _kubernetes_profile()
    if kind == "spark":
        return _spark_profile(os.environ if variables is None else variables)
    if kind != "slurm":
        return Profile()
    from heronpy.engines.slurm.batch import SlurmOptions
    from heronpy.engines.slurm.engine import SlurmEngine

    try:
        partitions = SlurmEngine("heron-init", SlurmOptions(), [], variables).partitions()
    except EngineError as error:
        return Profile(unknown=str(error))
    up = [one for one in partitions if one.up]
    default = next((one for one in up if one.default), None)
    chosen = default if default is not None else up[0] if len({one.name for one in up}) == 1 else None
    notes = [f"partition {one.name}{' (default)' if one.default else ''}: {one.words}" for one in partitions]
    return Profile({"slurm": {"partition": chosen.name}} if chosen is not None else {}, {"slurm": notes})


def _spark_profile(variables: Mapping[str, str]) -> Profile:
    """The profile with the Spark master that is configured on this host."""
    home = variables.get("SPARK_HOME", "")
    folder = variables.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else "")
    if not folder:
        return Profile(unknown=f"SPARK_CONF_DIR and SPARK_HOME are not set; {_MASTER_FIX}")
    file = os.path.join(folder, "spark-defaults.conf")
    try:
        with open(file, encoding="utf-8") as opened:
            master = master_of(opened.read(DEFAULTS_MAX))
    except (OSError, UnicodeDecodeError):
        master = ""
    if not master:
        return Profile(unknown=f"no spark.master in {file}; {_MASTER_FIX}")
    return Profile({"spark_engine": {"master": master}}, {"spark_engine": [f"from spark.master in {file}"]})


def master_of(defaults: str) -> str:
    """The Spark master that the text of a spark-defaults.conf names; "" if it names none."""
    found = re.findall(r"^\s*spark\.master(?:\s*[=:]\s*|\s+)(\S+)\s*$", defaults, re.MULTILINE)
    return str(found[-1]) if found else ""


def _kubernetes_profile() -> Profile:
    """The profile with context and namespace from the kubeconfig, and the path of Python in the usual images."""
    from heronpy.engines.kubernetes.client import Api

    python: dict[str, SettingValue] = {"python": IMAGE_PYTHON}
    # Users of Kubernetes look at kubectl logs first; the kubelet rotates them.
    echo: dict[str, SettingValue] = {"echo": True}
    notes = {"engine": [f"{IMAGE_PYTHON} is the path of Python in Docker's official images python:*"]}
    try:
        api = Api()
        place: dict[str, SettingValue] = {"namespace": api.namespace}
        if api.context:
            place["context"] = api.context
        server = f"the API server is {api.server}"
    except EngineError as error:
        return Profile({"engine": python, "logging": echo}, notes, unknown=str(error))
    return Profile({"engine": python, "logging": echo, "kubernetes": place}, {**notes, "kubernetes": [server]})
