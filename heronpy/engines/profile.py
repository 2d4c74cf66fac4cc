"""What a new cluster's settings may start with: what an engine of that kind says of itself on this host."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from heronpy.common.setting_types import SettingValue
from heronpy.engines.contract import EngineError

#: Of the text of Spark's properties.
DEFAULTS_MAX = 1 << 20
_MASTER_FIX = "set heron.spark_engine.master to spark://HOST:PORT"
IMAGE_PYTHON = "/usr/local/bin/python3"


@dataclass(frozen=True, slots=True)
class Profile:
    """Settings by room and field, and lines for people."""

    values: dict[str, dict[str, SettingValue]] = field(default_factory=dict)
    #: By room.
    notes: dict[str, list[str]] = field(default_factory=dict)
    #: Why nothing could be found; "" if the engine answered.
    unknown: str = ""


def profile_of(kind: str, variables: Mapping[str, str] | None = None) -> Profile:
    """What is found for a kind of engine, and what several hosts ask for: a standby topology master on another one."""
    found = _found_by(kind, variables)
    return replace(found, values={**found.values, "tmaster": {"standbys": 1}})


def _found_by(kind: str, variables: Mapping[str, str] | None) -> Profile:
    """Nothing for kinds that are installed apart."""
    if kind == "kubernetes":
        return _kubernetes()
    if kind == "spark":
        return _spark(os.environ if variables is None else variables)
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


def _spark(variables: Mapping[str, str]) -> Profile:
    """The master of the Spark that is set up on this host."""
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
    return Profile({"spark_engine": {"master": master}}, {"spark_engine": [f"spark.master of {file}"]})


def master_of(defaults: str) -> str:
    """The master in the text of a spark-defaults.conf; "" without one (pure)."""
    found = re.findall(r"^\s*spark\.master(?:\s*[=:]\s*|\s+)(\S+)\s*$", defaults, re.MULTILINE)
    return str(found[-1]) if found else ""


def _kubernetes() -> Profile:
    """Context and namespace of the kubeconfig, and where Python is in the images that most people start from."""
    from heronpy.engines.kubernetes.client import Api

    python: dict[str, SettingValue] = {"python": IMAGE_PYTHON}
    # What people of Kubernetes look for first is kubectl logs; the kubelet rotates it.
    echo: dict[str, SettingValue] = {"echo": True}
    notes = {"engine": [f"{IMAGE_PYTHON} is the Python of Docker's official images python:*"]}
    try:
        api = Api()
        place: dict[str, SettingValue] = {"namespace": api.namespace}
        if api.context:
            place["context"] = api.context
        server = f"the API server is {api.server}"
    except EngineError as error:
        return Profile({"engine": python, "logging": echo}, notes, unknown=str(error))
    return Profile({"engine": python, "logging": echo, "kubernetes": place}, {**notes, "kubernetes": [server]})
