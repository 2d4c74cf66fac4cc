"""The Spark driver in a JVM: starts, watches and stops one session and its JVM.

The JVM ends with this process, because its stdin is a pipe from this process. If a JVM outlives a killed gateway, the
next gateway kills that JVM. Spark's own files stay below `<working_dir>/spark`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from heronpy.api.user_code import prepare_path
from heronpy.common.folders import make_folders
from heronpy.common.setting_types import SparkSettings
from heronpy.connectors.durable_files import read_json, write_record
from heronpy.procs.cgroups import memory_max_bytes
from heronpy.spark import workers
from heronpy.spark.driver import SparkStartError
from heronpy.spark.jvm import Jvm, write_properties
from heronpy.spark.tuning import LAUNCHER_OPTIONS, LOCAL_MAX_BYTES, driver_memory, java_options, part_rows

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("heronpy.spark")

#: Options: rows per part of a DataFrame from Arrow, and size up to which Spark puts the rows into the plan.
_PART_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_LOCAL_MAX = "spark.sql.execution.arrow.localRelationThreshold"
#: Size of the first batch: large enough for Spark to run tasks.
_FIRST_PAIRS = LOCAL_MAX_BYTES // 16
#: Maximum time in seconds between the closing of a JVM's sockets and the end of the JVM.
_ENDS_S = 2.0


class SparkDriver:
    """The one SparkSession of the gateway; see `driver.Driver`."""

    def __init__(
        self,
        settings: SparkSettings,
        spark_dir: Path,
        name: str,
        python: str,
        package_dir: str | None,
        archive: str | None = None,
        address: str = "",
        ports: range | None = None,
    ):
        """`archive`: the class archive of archive.py, which must belong to this user.

        `address`, `ports`: address and ports at which Spark's workers on other hosts reach the driver; if not given,
        Spark chooses.
        """
        self._settings = settings
        self._archive = archive
        self._local_dir = spark_dir / ".local"
        self._record = spark_dir / ".driver.json"
        self._warehouse = spark_dir / ".warehouse"
        self._name = name
        self._python = python
        self._package_dir = package_dir
        self._address = address
        self._ports = ports
        self._jvm: Jvm | None = None
        self._session: Any = None
        self._started = time.monotonic()

    def start(self) -> None:
        """Start the JVM, and run a first small batch, so that no real batch has to wait for Spark to load its code.

        Errors quote the JVM's output.
        """
        started = self._started = time.monotonic()
        self._end_predecessor()
        self._set_environment()
        self._connect(started + self._settings.start_timeout_s)
        import pyarrow as pa
        from py4j.protocol import Py4JJavaError
        from pyspark.sql import SparkSession

        try:
            session = SparkSession.builder.getOrCreate()
            if self._is_remote:
                self._equip_workers(session)
            # Processed like a real batch, so that Spark loads and compiles the code before the first real batch.
            rows = pa.table({"key": ["a", "b"] * _FIRST_PAIRS, "value": [1, 2] * _FIRST_PAIRS})
            sums = self.frame(session, rows).groupBy("key").sum("value")
            sums.coalesce(1).write.mode("overwrite").format("noop" if self._is_remote else "parquet").save(
                f"file://{self._local_dir}/first"
            )
        except Exception as error:
            if self._has_ended(_ENDS_S) and self._jvm is not None:
                raise self._jvm.ended() or error from error
            if isinstance(error, SparkStartError):
                raise
            said = error.java_exception if isinstance(error, Py4JJavaError) else error
            raise SparkStartError(f"Spark did not start: {said}") from error
        self._session = session
        log.info("Spark %s is ready after %.1f s", session.version, time.monotonic() - started)

    def _connect(self, deadline: float) -> None:
        properties = self._local_dir / "spark.properties"
        write_properties(properties, self._properties())

        def started(jvm: Jvm) -> None:
            self._jvm = jvm
            self._remember(jvm.process.pid)

        connect(properties, deadline, started)

    @property
    def overdue(self) -> SparkStartError | None:
        """The error if Spark has not started before its timeout; otherwise None."""
        limit_s = self._settings.start_timeout_s
        # The limit is slightly longer, because `start` has the same limit and a more precise error.
        if self._session is not None or time.monotonic() - self._started < limit_s + 2.0:
            return None
        words = self._jvm.output.termination_report() if self._jvm is not None else ""
        said = f"; the last lines of its JVM: {words}" if words else ""
        return SparkStartError(f"Spark has no session after {limit_s:g} s (heron.spark.start_timeout_s){said}")

    @property
    def session(self) -> Any:
        """The SparkSession; None before `start` has returned."""
        return self._session

    @property
    def pid(self) -> int | None:
        return self._jvm.process.pid if self._jvm is not None else None

    def new_session(self) -> Any:
        """Return a session with separate temporary views."""
        return self._session.newSession()

    def frame(self, session: Any, table: pa.Table) -> Any:
        """Return the rows of a batch as a DataFrame of a few parts, which stay Arrow data until a task reads them."""
        conf, cores = session.conf, session.sparkContext.defaultParallelism
        least = int(conf.get(_PART_ROWS))
        ours = {_PART_ROWS: part_rows(table.num_rows, table.nbytes, cores, least), _LOCAL_MAX: LOCAL_MAX_BYTES}
        # Set only for this frame, because these options would also affect other frames of the user's function.
        before = {key: conf.get(key) for key in ours if key not in self._settings.conf}
        try:
            for key in before:
                conf.set(key, str(ours[key]))
            return session.createDataFrame(table)
        finally:
            for key, value in before.items():
                conf.set(key, value)

    def is_lost(self) -> bool:
        """Whether the JVM has ended."""
        return self._has_ended(0.0)

    def is_lost_by(self, error: BaseException) -> bool:
        """Whether the JVM has ended. Errors of a dying JVM have several types, so only the exit distinguishes them from
        errors of the user's function.
        """
        return self._has_ended(_ENDS_S if _speaks_of_the_driver(error) else 0.0)

    def explained(self, error: Exception) -> Exception:
        """Return the error unchanged."""
        return error

    def _has_ended(self, wait_s: float) -> bool:
        """Wait up to `wait_s` seconds for a JVM whose sockets may have closed; return whether it has ended."""
        if self._jvm is None:
            return False
        deadline = time.monotonic() + wait_s
        while self._jvm.process.poll() is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True

    @property
    def ui(self) -> str:
        """The URL of Spark's web UI; empty if the UI is off (`spark.ui.enabled`) or there is no session."""
        return str(self._session.sparkContext.uiWebUrl or "") if self._session is not None else ""

    def end_in_order(self, wait_s: float) -> None:
        """Stop the session and wait until the JVM ends. Raises JvmError after `wait_s` seconds."""
        assert self._session is not None and self._jvm is not None
        self._session.stop()
        self._jvm.end_in_order(wait_s)

    def stop(self) -> None:
        """Kill the JVM; no data is lost, because all important data is on disk."""
        if self._jvm is not None:
            self._jvm.end()
        shutil.rmtree(self._local_dir, ignore_errors=True)
        self._record.unlink(missing_ok=True)

    # -- details ------------------------------------------------------------------------------

    @property
    def _is_remote(self) -> bool:
        """Whether executors may run on hosts without access to this host's files."""
        return not self._settings.master.startswith("local")

    def _properties(self) -> dict[str, str]:
        settings = self._settings
        given = {str(key): _spark_text(value) for key, value in settings.conf.items()}
        properties = {
            "spark.app.name": self._name,
            "spark.master": settings.master,
            "spark.driver.memory": settings.driver_memory or driver_memory(_memory_bytes()),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            "spark.sql.warehouse.dir": str(self._warehouse),
            "spark.local.dir": str(self._local_dir),
            "spark.pyspark.python": self._python,
            "spark.pyspark.driver.python": self._python,
            **java_options(given, self._archive, str(self._local_dir)),
        }
        if not self._is_remote:
            properties["spark.driver.host"] = properties["spark.driver.bindAddress"] = "127.0.0.1"
            # Ports on loopback are open to all users of the machine, and Spark deserialises Java objects from
            # every peer that may connect. For a local master, Spark itself creates the secret in memory.
            properties |= {
                "spark.authenticate": "true",
                "spark.network.crypto.enabled": "true",
                "spark.network.crypto.saslFallback": "false",
            }
        else:
            properties |= self._reachable()
        if properties.get("spark.authenticate") and given.get("spark.authenticate") == "false":
            # Spark encrypts only with authentication.
            del properties["spark.network.crypto.enabled"], properties["spark.network.crypto.saslFallback"]
        return properties | given

    def _equip_workers(self, session: Any) -> None:
        """Send the user's package to Spark's workers on other hosts, and check that the workers can use it."""
        modules: list[str] = []
        if self._package_dir:
            package = self._local_dir / "package.zip"
            workers.pack(self._package_dir, package)
            session.sparkContext.addPyFile(str(package))
            modules = workers.modules_in(self._package_dir)
        workers.check(session, self._settings.master, modules, "name it in heron.spark.conf as spark.pyspark.python")

    def _reachable(self) -> dict[str, str]:
        """Return the address at which workers on other hosts reach the driver."""
        if not self._address:
            return {}
        found = {"spark.driver.host": self._address, "spark.driver.bindAddress": self._address}
        if self._ports is not None:
            # Spark uses the next free port.
            first = str(self._ports[0])
            found |= {"spark.driver.port": first, "spark.driver.blockManager.port": first}
            found["spark.port.maxRetries"] = str(len(self._ports) - 1)
        return found

    def _set_environment(self) -> None:
        shutil.rmtree(self._local_dir, ignore_errors=True)
        make_folders(self._local_dir)
        for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE", "SPARK_LOCAL_DIRS", "PYSPARK_GATEWAY_PORT"):
            os.environ.pop(name, None)
        if not self._is_remote:
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        elif self._address:
            os.environ["SPARK_LOCAL_IP"] = self._address
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = self._python
        if self._is_remote and "spark.pyspark.python" in self._settings.conf:
            # pyspark reads the Python of the workers only from this variable.
            os.environ["PYSPARK_PYTHON"] = str(self._settings.conf["spark.pyspark.python"])
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
                log.warning("killing the Spark driver of an earlier gateway, process %d", process.pid)
                process.kill()
                process.wait(5)


def connect(properties: Path, deadline: float, started: Callable[[Jvm], None]) -> None:
    """Start a JVM with the properties from a file, and pass the JVM's address to pyspark.

    `started` is called with the JVM before the JVM is ready. Raises JvmError if the JVM ends, or is not ready at the
    monotonic time `deadline`.
    """
    # A separate folder, because a JVM may still write to the folder of a killed gateway. The folder is next to the
    # properties, so that the next gateway removes it.
    info = Path(tempfile.mkdtemp(prefix="connection-", dir=properties.parent)) / "connection"
    command = [os.path.join(_spark_home(), "bin", "spark-submit"), "--properties-file", str(properties)]
    command += ["--load-spark-defaults", *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))]
    environ = {"SPARK_LAUNCHER_OPTS": LAUNCHER_OPTIONS} | os.environ
    environ |= {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info)}
    try:
        jvm = Jvm.start(command, environ)
        started(jvm)
        # Done while the JVM starts.
        import pyspark.sql  # noqa: F401
        from pyspark.core.context import SparkContext
        from pyspark.java_gateway import launch_gateway

        jvm.listen(info, deadline)
    finally:
        shutil.rmtree(info.parent, ignore_errors=True)
    # pyspark finds a running JVM through these variables; no other process may inherit them.
    os.environ["PYSPARK_GATEWAY_PORT"] = str(jvm.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = jvm.secret
    try:
        SparkContext._ensure_initialized(gateway=launch_gateway())  # type: ignore[no-untyped-call]
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def _spark_home() -> str:
    """Return Spark's folder, if possible without importing pyspark, so that the JVM starts sooner."""
    spec = importlib.util.find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or (os.path.dirname(spec.origin) if spec and spec.origin else "")
    if home and os.path.isfile(os.path.join(home, "bin", "spark-submit")):
        return home
    from pyspark.find_spark_home import _find_spark_home

    return str(_find_spark_home())


def _speaks_of_the_driver(error: BaseException) -> bool:
    names = {type(e).__name__ for e in (error, error.__cause__, error.__context__) if e is not None}
    return bool(names & {"Py4JNetworkError", "Py4JError", "ConnectionRefusedError", "ConnectionResetError",
                         "BrokenPipeError", "EOFError", "Py4JJavaError"})  # fmt: skip


def _memory_bytes() -> int:
    total = psutil.virtual_memory().total
    return min(total, memory_max_bytes() or total)


def _spark_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
