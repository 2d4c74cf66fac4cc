"""Checks Spark's requirements on this machine, without importing pyspark or keeping a JVM running.

`heron submit` checks before it starts anything; the gateway checks again on its host.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess

from heronpy.common.errors import ConfigError
from heronpy.proto import components_of, topology_pb2

JAVA_MIN = 17
#: A component with this configuration key set to "true" hands batches to the Spark gateway.
SINK_KEY = "spark.sink"
#: A component with this key hands dispatches of work units to the gateway; the value is the folder of the dispatches.
DISPATCH_KEY = "spark.dispatches"
#: Names in the folder of a batch run: the folder of the dispatch of its SparkSinks, and the file of Spark's plans.
RUN_HOME, RUN_PLAN = "spark", "spark-plan.txt"
_INSTALL = "pip install 'heronpy[spark]'"
_INSTALL_CONNECT = "pip install 'heronpy[spark-connect]'"
_MASTER = re.compile(r"local(-cluster)?(\[[^\]]*\])?|yarn|k8s://.+")
#: Maps the kind of a master to its default port.
_PORTS = {"spark": "7077", "sc": "15002"}
_REACH_S = 5.0


def needs_spark(topology: topology_pb2.Topology) -> bool:
    """Whether any component of this topology hands batches to Spark; reads only plain strings."""
    return bool(spark_sinks(topology) or dispatch_homes(topology))


def spark_sinks(topology: topology_pb2.Topology) -> frozenset[str]:
    """Return the components whose tuples become Spark batches."""
    return frozenset(name for name, value in _values_of(topology, SINK_KEY) if value == "true")


def dispatch_homes(topology: topology_pb2.Topology) -> dict[str, str]:
    """Return the components that hand dispatches of work units to Spark, each with the folder of its dispatches."""
    return {name: value for name, value in _values_of(topology, DISPATCH_KEY) if value}


def _values_of(topology: topology_pb2.Topology, key: str) -> list[tuple[str, str]]:
    parts = components_of(topology).items()
    return [(name, kv.value) for name, part in parts for kv in part.comp.config.kvs if kv.key == key]


def is_connect(master: str) -> bool:
    """Whether a master is a Spark Connect server."""
    return master.startswith("sc://")


def check_spark(master: str = "") -> None:
    """Raise a ConfigError, with the fix, if Spark cannot run here with this master."""
    check_packages(master)
    if is_connect(master):
        return  # The JVM is on another host.
    java = find_java()
    if java is None:
        raise ConfigError(
            f"this topology needs Spark, but no Java was found; install Java {JAVA_MIN} or newer, or set JAVA_HOME"
        )
    version = java_version(java)
    if version < JAVA_MIN:
        raise ConfigError(
            f"{java} is Java {version}, but Spark needs Java {JAVA_MIN} or newer; install a newer Java or point"
            " JAVA_HOME at one"
        )


def check_packages(master: str) -> None:
    """Raise a ConfigError if this Python lacks a package that the master needs."""
    needed = [(module, _INSTALL) for module in ("pyspark", "pyarrow", "pandas")]
    if is_connect(master):
        needed += [(module, _INSTALL_CONNECT) for module in ("grpc", "grpc_status")]
    for module, install in needed:
        if importlib.util.find_spec(module) is None:
            raise ConfigError(f"this topology needs Spark, but the package {module} is missing; run: {install}")


def check_master(master: str) -> None:
    """Raise a ConfigError if a master is invalid or unreachable; YARN and Kubernetes masters are not tested."""
    scheme, _, rest = master.partition("://")
    if scheme not in ("spark", "sc") or not rest:
        if not _MASTER.fullmatch(master):
            raise ConfigError(
                f"heron.spark.master {master!r} is not a Spark master; use local[N], spark://HOST:PORT, yarn, k8s://URL"
                " or sc://HOST:PORT"
            )
        return
    if scheme == "sc" and "token=" in rest:
        raise ConfigError(
            "heron.spark.master contains a token, which other users could read; pass the token to the hosts as"
            " SPARK_CONNECT_AUTHENTICATE_TOKEN in their environment"
        )
    default = _PORTS[scheme]
    reasons = []
    for place in rest.split("/")[0].split(";")[0].split(","):
        host, _, port = place.rpartition(":") if ":" in place else (place, "", default)
        try:
            with socket.create_connection((host, int(port)), timeout=_REACH_S):
                return
        except (OSError, ValueError) as error:
            reasons.append(str(getattr(error, "strerror", None) or error))
    raise ConfigError(
        f"heron.spark.master {scheme}://{rest.split('/')[0]} cannot be reached from this host ({reasons[-1]}); start"
        " the master, or correct the address"
    )


def find_java() -> str | None:
    """Return the path of the `java` that Spark's own scripts would run."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        return shutil.which("java")
    candidate = os.path.join(home, "bin", "java")
    if not os.access(candidate, os.X_OK):
        raise ConfigError(f"JAVA_HOME is {home} but {candidate} is not a program; correct or unset JAVA_HOME")
    return candidate


def java_version(java: str) -> int:
    """Return the major Java version of a `java` executable (8 for "1.8.0_292")."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{java} does not run ({error}); install Java {JAVA_MIN} or newer") from None
    version = parse_java_version(done.stderr + done.stdout)
    if version is None:
        raise ConfigError(f"{java} -version does not print a version; install Java {JAVA_MIN} or newer")
    return version


def parse_java_version(text: str) -> int | None:
    """Return the major version from the output of `java -version`."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
