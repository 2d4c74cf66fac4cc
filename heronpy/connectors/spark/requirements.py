"""What Spark needs from this machine, checked cheaply: without importing pyspark or keeping a JVM running.

`heron submit` checks before it starts anything; the gateway checks again on its host.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess

from heronpy.common.errors import ConfigError
from heronpy.proto import topology_pb2

JAVA_MIN = 17
#: A component with this configuration key set to "true" hands batches to the Spark gateway.
SINK_KEY = "spark.sink"
_INSTALL = "pip install 'heronpy[spark]'"


def needs_spark(topology: topology_pb2.Topology) -> bool:
    """Whether any component of this topology hands batches to Spark. Reads plain strings only."""
    components = [spout.comp for spout in topology.spouts] + [bolt.comp for bolt in topology.bolts]
    return any(kv.key == SINK_KEY and kv.value == "true" for c in components for kv in c.config.kvs)


def check_spark() -> None:
    """Raise a ConfigError, one sentence with the fix, when Spark cannot run here."""
    for module in ("pyspark", "pyarrow", "pandas"):
        if importlib.util.find_spec(module) is None:
            raise ConfigError(f"this topology needs Spark and the package {module} is missing; run: {_INSTALL}")
    java = find_java()
    if java is None:
        raise ConfigError(
            f"this topology needs Spark and no Java was found; install Java {JAVA_MIN} or newer, or set JAVA_HOME"
        )
    version = java_version(java)
    if version < JAVA_MIN:
        raise ConfigError(
            f"{java} is Java {version} and Spark needs Java {JAVA_MIN} or newer; install it or point JAVA_HOME at it"
        )


def find_java() -> str | None:
    """The `java` that Spark's own scripts would run."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        return shutil.which("java")
    candidate = os.path.join(home, "bin", "java")
    if not os.access(candidate, os.X_OK):
        raise ConfigError(f"JAVA_HOME is {home} but {candidate} is not a program; correct or unset JAVA_HOME")
    return candidate


def java_version(java: str) -> int:
    """Major version of a Java program (8 for "1.8.0_292")."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{java} does not run ({error}); install Java {JAVA_MIN} or newer") from None
    version = parse_java_version(done.stderr + done.stdout)
    if version is None:
        raise ConfigError(f"{java} -version says nothing about its version; install Java {JAVA_MIN} or newer")
    return version


def parse_java_version(text: str) -> int | None:
    """Major version from the output of `java -version`."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None
