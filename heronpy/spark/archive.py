"""`python -m heronpy.spark.archive`: create the class archive, which halves the time and CPU of starting Spark.

The archives are `<HERON_HOME>/cache/spark/<key>.jsa`, one per user, Spark and Java. Each has about 180 MB; the newest
three are kept. The JVM ignores an archive that does not fit its version and jars. The classes are recorded while a
driver starts and runs its first batch, and are written when that JVM ends.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from heronpy.common.errors import ConfigError, HeronError
from heronpy.common.exit_codes import FAILURE, OK
from heronpy.common.folders import WRITABLE_BY_OTHERS, heron_home, make_folders
from heronpy.common.setting_types import SparkSettings
from heronpy.connectors.spark.requirements import check_spark, find_java
from heronpy.spark.session import SparkDriver
from heronpy.spark.tuning import JAVA_OPTIONS

#: Timeout in seconds. Starting Spark and writing the archive take about ten seconds each. The archive only saves time,
#: so no process waits long for it.
_START_S, _WRITE_S = 120.0, 120.0
#: Number of archives kept, one per installation in use.
_KEPT = 3


def archive_path(java: str) -> Path:
    """Return the path of the class archive for this `java` executable and the installed Spark."""
    spec = importlib.util.find_spec("pyspark")
    # These values identify the installation; a new installation has other files.
    installed = f"{spec.origin}\n{os.stat(spec.origin).st_mtime_ns}" if spec and spec.origin else ""
    who = f"{os.path.realpath(java)}\n{installed}\n{os.environ.get('SPARK_HOME', '')}"
    return heron_home() / "cache" / "spark" / f"{hashlib.sha256(who.encode()).hexdigest()[:16]}.jsa"


def find_archive() -> str | None:
    """Return the class archive for this host; None if it is missing, or if other users could have written it."""
    java = find_java()
    if java is None:
        return None
    path = archive_path(java)
    try:
        status = path.lstat()
    except OSError:
        return None
    # An archive can run code in the driver, so other users must not be able to write it.
    is_ours = status.st_uid in (os.geteuid(), 0) and not status.st_mode & WRITABLE_BY_OTHERS
    return str(path) if stat.S_ISREG(status.st_mode) and is_ours else None


def make_archive() -> Path:
    """Start Spark once and write the archive. Raises HeronError if that fails."""
    check_spark()
    java = find_java()
    assert java is not None
    target = archive_path(java)
    make_folders(target.parent)
    work = Path(tempfile.mkdtemp(prefix=".making-", dir=target.parent))
    try:
        made = work / "spark.jsa"
        if " " in str(made):
            raise ConfigError(
                f"the path of HERON_HOME contains a space, which Java options cannot contain: {target.parent}"
            )
        # The quick compiler is enough, because this JVM runs only one batch.
        options = f"-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={made}"
        settings = SparkSettings(driver_memory="1g", conf={JAVA_OPTIONS: options}, start_timeout_s=_START_S)
        driver = SparkDriver(settings, work, "heron-spark-archive", sys.executable, None)
        try:
            driver.start()
            driver.end_in_order(_WRITE_S)
        finally:
            driver.stop()
        if not made.exists():
            raise HeronError("the JVM wrote no class archive; install Java 17 or newer with the default CDS archive")
        os.replace(made, target)
        # Remove archives of replaced installations; a JVM that uses such an archive keeps the open file.
        for old in sorted(target.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
            old.unlink(missing_ok=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def main(argv: list[str] | None = None) -> int:
    """Create the archive; return the exit code of the process."""
    argparse.ArgumentParser(prog="python -m heronpy.spark.archive", description=__doc__).parse_args(argv)
    # Spark's startup messages are not shown; an error quotes their last lines.
    logging.getLogger("heronpy").addHandler(logging.NullHandler())
    started = time.monotonic()
    try:
        path = make_archive()
    except (HeronError, OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return int(FAILURE)
    size_mb = path.stat().st_size / 1e6
    print(f"{path}: {size_mb:.0f} MB, created in {time.monotonic() - started:.0f} s; Spark now uses this archive")
    return int(OK)


if __name__ == "__main__":
    sys.exit(main())
