"""Options of the driver's JVM (memory, class archive, compiler), and the number of parts of a batch. Pure.

Most of the cost of a start of Spark is loading and compiling about twelve thousand classes. An archive (JDK class
data sharing) holds them loaded and verified: see archive.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from heronpy.common.setting_types import SparkSettings
from heronpy.common.units import GB, MB, parse_bytes

#: heronpy's options come before the user's `spark.driver.extraJavaOptions`.
JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
#: The optimising compiler takes a method after ten times as many calls and loops as usual. Starting Spark runs much
#: code only a few times; the code of each batch is compiled after some batches.
_COMPILE_LATER = {
    "Tier4InvocationThreshold": 50_000,
    "Tier4MinInvocationThreshold": 6_000,
    "Tier4CompileThreshold": 150_000,
    "Tier4BackEdgeThreshold": 400_000,
}
#: Up to this size the rows of a batch become rows of a plan in the driver, as Spark does up to 48 MB: then Spark knows
#: their number, but converts them one by one in one thread. Larger batches stay Arrow until a task reads them.
LOCAL_MAX_BYTES = 256 * 1024
#: Maximum size of a part of a batch, unless Spark makes parts larger: one task may take many parts, and its message has
#: a limit.
_PART_MAX_BYTES = 16 * MB
#: Options for the small JVM of Spark's scripts that only prints the command line of the large one.
LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: The tasks use the rest, because all containers of one machine share its memory.
MEMORY_SHARE = 1 / 8
_MEMORY_MIN, _MEMORY_MAX = GB, 4 * GB
#: Spark refuses to start below 450 MB.
_MEMORY_LEAST = 512 * MB


def java_options(given: Mapping[str, str], archive: str | None, temporary: str) -> dict[str, str]:
    """The property with our options for the JVM; empty when the user's properties replace it.

    `temporary` is the folder for its temporary files, such as native libraries that it unpacks and would leave in /tmp.
    """
    if JAVA_OPTIONS in given:
        return {}
    options = [f"-XX:{name}={value}" for name, value in _COMPILE_LATER.items()]
    # Quotes of a shell do not work here, so a folder with a blank would break the command line.
    if archive is not None and " " not in archive:
        options.append(f"-XX:SharedArchiveFile={archive}")
    if " " not in temporary:
        options.append(f"-Djava.io.tmpdir={temporary}")
    return {JAVA_OPTIONS: " ".join(options)}


def driver_bytes(settings: SparkSettings) -> int:
    """The memory that container 0 needs for Spark, without the overhead of a JVM: the driver's heap.

    With a Spark Connect server the driver is on another host, and this is the memory of the gateway itself for its
    batches.
    """
    if settings.master.startswith("sc://"):
        return _MEMORY_LEAST
    return parse_bytes(settings.driver_memory or driver_memory(0))


def driver_memory(container_bytes: int) -> str:
    """Memory of the driver in Spark's notation, for a container with this memory: an eighth of it, 1 to 4 GB.

    A container with less than 2 GB gives half of it, at least what Spark needs to start.
    """
    share = max(int(container_bytes * MEMORY_SHARE), min(_MEMORY_MIN, container_bytes // 2))
    return f"{min(_MEMORY_MAX, max(_MEMORY_LEAST, share)) // MB}m"


def part_rows(rows: int, size_bytes: int, cores: int, least: int) -> int:
    """Rows of each part into which a batch is cut, for as many tasks as there are cores.

    `least`: Spark's own number of rows. Spark makes a task of each part, so more rows than that would give many tasks.
    """
    fitting = rows * _PART_MAX_BYTES // max(1, size_bytes)
    return max(least, min(-(-rows // max(1, cores)), fitting))
