"""The Spark driver: one session and its JVM, started, watched and ended.

The only module that imports pyspark. The JVM ends with this process (its stdin is a pipe of ours);
one that outlived a killed gateway is ended by the next. Everything Spark writes for itself stays below
`<working_dir>/spark`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from heronpy.api.user_code import prepare_path
from heronpy.common.rooms import SparkSettings
from heronpy.connectors.durable_files import read_json, write_record

log = logging.getLogger("heronpy.spark")


class SparkDriver:
    """The one SparkSession of the gateway."""

    def __init__(self, settings: SparkSettings, spark_dir: Path, name: str, python: str, package_dir: str | None):
        self._settings = settings
        self._local_dir = spark_dir / ".local"
        self._record = spark_dir / ".driver.json"
        self._warehouse = spark_dir / ".warehouse"
        self._name = name
        self._python = python
        self._package_dir = package_dir
        self._process: Any = None
        self._session: Any = None

    def start(self) -> None:
        """Start the JVM and run a first small job, which costs Spark several seconds once."""
        self._end_predecessor()
        self._set_environment()
        import pyarrow as pa
        from pyspark.sql import SparkSession

        started = time.monotonic()
        builder = SparkSession.builder.appName(self._name)
        for key, value in self._properties().items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        self._process = getattr(session.sparkContext._gateway, "proc", None)
        if self._process is not None:
            self._remember(self._process.pid)
        rows = pa.table({"key": ["a", "b"], "value": [1, 2]})
        session.createDataFrame(rows).groupBy("key").sum("value").collect()
        self._session = session
        log.info("Spark %s is ready after %.1f s", session.version, time.monotonic() - started)

    @property
    def session(self) -> Any:
        """The SparkSession; None before `start` is done."""
        return self._session

    @property
    def pid(self) -> int | None:
        """Process id of the JVM."""
        return self._process.pid if self._process is not None else None

    def is_lost(self, wait_s: float = 0.0) -> bool:
        """Has the JVM ended? Waits so long for it to do so, as its sockets close before it ends."""
        if self._process is None:
            return False
        deadline = time.monotonic() + wait_s
        while self._process.poll() is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True

    def stop(self) -> None:
        """End the JVM at once: what counts is on disk, and nobody waits for its farewell."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(Exception):
                self._process.wait(2)
        shutil.rmtree(self._local_dir, ignore_errors=True)
        self._record.unlink(missing_ok=True)

    # -- details ------------------------------------------------------------------------------

    def _properties(self) -> dict[str, str]:
        settings = self._settings
        properties = {
            "spark.master": settings.master,
            "spark.driver.memory": settings.driver_memory,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            "spark.sql.warehouse.dir": str(self._warehouse),
            "spark.local.dir": str(self._local_dir),
            "spark.pyspark.python": self._python,
            "spark.pyspark.driver.python": self._python,
        }
        if settings.master.startswith("local"):
            properties["spark.driver.host"] = properties["spark.driver.bindAddress"] = "127.0.0.1"
        return properties | {str(key): _spark_text(value) for key, value in settings.conf.items()}

    def _set_environment(self) -> None:
        shutil.rmtree(self._local_dir, ignore_errors=True)
        self._local_dir.mkdir(mode=0o700, parents=True)
        for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE", "SPARK_LOCAL_DIRS", "PYSPARK_GATEWAY_PORT"):
            os.environ.pop(name, None)
        if self._settings.master.startswith("local"):
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = self._python
        # The user's function imports the package's modules here, and in Spark's own Python workers.
        before = list(sys.path)
        prepare_path(self._package_dir)
        ours = str(Path(__file__).resolve().parents[2])
        paths = [*(path for path in sys.path if path not in before), ours, os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)

    def _remember(self, pid: int) -> None:
        with contextlib.suppress(psutil.Error):
            record = {"pid": pid, "created": psutil.Process(pid).create_time()}
            write_record(self._record, json.dumps(record).encode())

    def _end_predecessor(self) -> None:
        record = read_json(self._record)
        if record is None:
            return
        with contextlib.suppress(psutil.Error, KeyError):
            process = psutil.Process(record["pid"])
            if abs(process.create_time() - record["created"]) < 0.01:
                log.warning("ending the Spark driver of an earlier gateway, process %d", process.pid)
                process.kill()
                process.wait(5)


def _spark_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
