"""Options of the driver's JVM (memory, class archive, compiler), and the number of parts of a batch. Pure.

Most of the cost of starting Spark is loading and compiling about twelve thousand classes. A class archive (JDK class
data sharing) contains loaded and verified classes; see archive.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from heronpy.common.setting_types import SparkSettings
from heronpy.common.units import GB, MB, parse_bytes

#: heronpy's options come before the user's `spark.driver.extraJavaOptions`.
JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
#: The optimising compiler compiles a method after ten times the usual number of calls. Starting Spark runs much
#: code only a few times; the code of each batch is compiled after some batches.
_COMPILE_LATER = {
    "Tier4InvocationThreshold": 50_000,
    "Tier4MinInvocationThreshold": 6_000,
    "Tier4CompileThreshold": 150_000,
    "Tier4BackEdgeThreshold": 400_000,
}
#: Up to this size, the driver puts the rows of a batch into the plan, as Spark does up to 48 MB: then Spark knows their
#: number, but converts the rows one by one in one thread. Larger batches stay Arrow until a task reads them.
LOCAL_MAX_BYTES = 256 * 1024
#: Maximum size of a part of a batch, unless Spark's own parts are larger. One task may get many parts, and the size of
#: its message is limited.
_PART_MAX_BYTES = 16 * MB
#: Options for the small JVM in which Spark's scripts only print the command line of the large JVM.
LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: The driver's share of its container's memory. It is small, because all tasks on the host need memory, too.
MEMORY_SHARE = 1 / 8
_MEMORY_MIN, _MEMORY_MAX = GB, 4 * GB
#: Spark refuses to start below 450 MB.
_MEMORY_LEAST = 512 * MB


def java_options(given: Mapping[str, str], archive: str | None, temporary: str) -> dict[str, str]:
    """Return the property with heronpy's options for the JVM; empty if the user's properties replace it.

    `temporary` is the folder for the JVM's temporary files, such as unpacked native libraries, instead of /tmp.
    """
    if JAVA_OPTIONS in given:
        return {}
    options = [f"-XX:{name}={value}" for name, value in _COMPILE_LATER.items()]
    # Shell quotes do not work here, so a folder with a space would break the command line.
    if archive is not None and " " not in archive:
        options.append(f"-XX:SharedArchiveFile={archive}")
    if " " not in temporary:
        options.append(f"-Djava.io.tmpdir={temporary}")
    return {JAVA_OPTIONS: " ".join(options)}


def driver_bytes(settings: SparkSettings) -> int:
    """Return the bytes of memory that container 0 needs for Spark, without the JVM's overhead: the driver's heap.

    With a Spark Connect server, the driver is on another host; the gateway then needs this memory for its batches.
    """
    if settings.master.startswith("sc://"):
        return _MEMORY_LEAST
    return parse_bytes(settings.driver_memory or driver_memory(0))


def driver_memory(container_bytes: int) -> str:
    """Return the driver's memory in Spark's notation: an eighth of the container's memory, 1 to 4 GB.

    In a container with less than 2 GB, the driver gets half of the memory, but at least Spark's minimum.
    """
    share = max(int(container_bytes * MEMORY_SHARE), min(_MEMORY_MIN, container_bytes // 2))
    return f"{min(_MEMORY_MAX, max(_MEMORY_LEAST, share)) // MB}m"


def part_rows(rows: int, size_bytes: int, cores: int, least: int) -> int:
    """Return the number of rows in each part of a batch, so that there are as many tasks as cores.

    `least`: the minimum, which is Spark's own number of rows per part. It avoids many small tasks, because each part
    becomes a task.
    """
    fitting = rows * _PART_MAX_BYTES // max(1, size_bytes)
    return max(least, min(-(-rows // max(1, cores)), fitting))
