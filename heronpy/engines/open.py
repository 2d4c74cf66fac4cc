"""Engines by their kind: ours, and what installed packages offer at the entry point `heronpy.engines`.

An entry point is a function `open(settings, topology_id, command) -> Engine`. Its module is loaded when an engine of
that kind is opened.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heronpy.common.engine_settings import EngineSettings, KubernetesSettings, SlurmSettings, SparkEngineSettings
from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import ExecutorSettings, SecuritySettings
from heronpy.common.settings import HasSettings, settings_for
from heronpy.engines.contract import Engine

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "heronpy.engines"
#: Of the text of a pod template.
TEMPLATE_MAX = 1 << 20
Opener = Callable[[HasSettings, str, Sequence[str]], Engine]


def open_engine(kind: str, settings: HasSettings, topology_id: str, command: Sequence[str]) -> Engine:
    """The engine that runs the containers of one topology; `command` is what each container runs there.

    ConfigError when there is no engine of that kind, or its settings contradict each other.
    """
    if kind in OWN:
        return OWN[kind](settings, topology_id, command)
    found = _offered()
    if kind not in found:
        known = ", ".join(sorted({*OWN, *found}))
        raise ConfigError(f"heron.engine.kind is {kind!r}, but there is no such engine; use one of {known}")
    opener: Opener = found[kind].load()
    return opener(settings, topology_id, command)


def way_in(kind: str, settings: HasSettings, cluster: str, port: int) -> str:
    """An address of this host that leads to a port of the scheduler of an engine's cluster; "" if the engine has none.

    EngineError when that fails.
    """
    if kind != "kubernetes":
        return ""
    from heronpy.engines.kubernetes.client import Api
    from heronpy.engines.kubernetes.forwarding import forwarded

    room = settings_for(settings, KubernetesSettings)
    return forwarded(Api(room.context, room.namespace), cluster, port)


def kinds() -> list[str]:
    """The kinds of engines that there are."""
    return sorted({*OWN, *_offered()})


def _offered() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # which takes a local submit longer than all else of this module

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
    """Port of container 0's metrics page, if pages are open to other hosts at a port that is known; else 0."""
    from heronpy.net.addresses import is_loopback

    executor = settings_for(settings, ExecutorSettings)
    # A page on loopback can only be scraped from inside the pod.
    return 0 if is_loopback(executor.metrics_host) else executor.metrics_port


def template_text(file: str) -> str:
    """The text of an operator's pod template; ConfigError when it cannot be read."""
    path = os.path.expanduser(file)
    if not os.path.isabs(path):
        raise ConfigError(f"heron.kubernetes.pod_template is {file!r} but must be an absolute path")
    try:
        with open(path, encoding="utf-8") as opened:
            found = opened.read(TEMPLATE_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"heron.kubernetes.pod_template {file} cannot be read: {why}") from None
    if len(found) > TEMPLATE_MAX:
        raise ConfigError(f"heron.kubernetes.pod_template {file} is longer than {TEMPLATE_MAX} characters")
    return found


def template_of(file: str) -> Mapping[str, Any]:
    """The pod template of an operator; ConfigError when there is none that can be read."""
    import yaml

    try:
        found = yaml.safe_load(template_text(file))
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())[:200]
        raise ConfigError(f"heron.kubernetes.pod_template {file} is no YAML: {said}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"heron.kubernetes.pod_template {file} is no map with the keys metadata and spec")
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


#: Engines that come with heronpy.
OWN: Mapping[str, Opener] = {"kubernetes": _kubernetes, "slurm": _slurm, "spark": _spark}
