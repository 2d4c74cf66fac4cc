"""A Spark Connect server as the driver (`sc://HOST:PORT`): no JVM runs on this host.

Features that need a JVM fail with a one-sentence error. Requests have few retries, because the gateway restarts if the
server is unreachable. A token for the server is read from SPARK_CONNECT_AUTHENTICATE_TOKEN in the environment of the
gateway's host, never from the settings.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.api.user_code import prepare_path
from heronpy.common.errors import ConfigError
from heronpy.common.folders import make_folders
from heronpy.common.setting_types import SparkSettings
from heronpy.connectors.spark.requirements import check_master
from heronpy.spark import workers
from heronpy.spark.driver import SparkStartError

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("heronpy.spark")

#: Retries of each request, with pauses of at most a second.
RETRIES = 3
_PAUSE_MAX_MS = 1000
_STOP_S = 3.0


class ConnectDriver:
    """The session at a Spark Connect server; see `driver.Driver`."""

    def __init__(self, settings: SparkSettings, spark_dir: Path, name: str, package_dir: str | None) -> None:
        self._settings = settings
        self._package = spark_dir / ".package.zip"
        self._name = name
        self._package_dir = package_dir
        self._session: Any = None
        self._started = time.monotonic()

    def start(self) -> None:
        """Create a session at the server, check the server's workers, and run a first small batch."""
        started = self._started = time.monotonic()
        check_master(self._settings.master)
        for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE"):
            os.environ.pop(name, None)
        prepare_path(self._package_dir)
        if self._package_dir:
            make_folders(self._package.parent)
            workers.pack(self._package_dir, self._package)
        import pyarrow as pa
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.remote(self._settings.master).appName(self._name)
        for key, value in {"spark.sql.shuffle.partitions": "2", **self._settings.conf}.items():
            builder = builder.config(key, value)
        try:
            session = self._prepared(builder.getOrCreate())
            workers.check(
                session,
                self._settings.master,
                self._modules,
                "start the server with this Python as spark.pyspark.python",
            )
            rows = pa.table({"key": ["a", "b"], "value": [1, 2]})
            session.createDataFrame(rows).groupBy("key").sum("value").write.format("noop").mode("overwrite").save()
        except SparkStartError:
            raise
        except Exception as error:
            raise SparkStartError(
                f"Spark did not start at {self._settings.master}: {workers.telling(error)}"
            ) from error
        self._session = session
        log.info("Spark %s is ready after %.1f s", session.version, time.monotonic() - started)

    @property
    def _modules(self) -> list[str]:
        return workers.modules_in(self._package_dir) if self._package_dir else []

    def _prepared(self, session: Any) -> Any:
        from pyspark.sql.connect.client.retries import DefaultPolicy

        session.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES, max_backoff=_PAUSE_MAX_MS)])
        if self._package_dir:
            session.addArtifacts(str(self._package), pyfile=True)
        return session

    @property
    def session(self) -> Any:
        return self._session

    def new_session(self) -> Any:
        return self._prepared(self._session.newSession())

    def frame(self, session: Any, table: pa.Table) -> Any:
        """Return the rows of a batch as a DataFrame."""
        return session.createDataFrame(table)

    @property
    def overdue(self) -> SparkStartError | None:
        limit_s = self._settings.start_timeout_s
        if self._session is not None or time.monotonic() - self._started < limit_s:
            return None
        return SparkStartError(
            f"Spark has no session at {self._settings.master} after {limit_s:g} s (heron.spark.start_timeout_s)"
        )

    def is_lost(self) -> bool:
        """Return False, because only a failed request can reveal a lost server."""
        return False

    def is_lost_by(self, error: BaseException) -> bool:
        """Whether the server no longer answers, or has ended the session."""
        from pyspark.errors import PySparkException

        if not isinstance(error, PySparkException) and not type(error).__module__.startswith("grpc"):
            return False
        try:
            self._session.range(1).count()
        except Exception as again:
            log.warning("the connection to Spark at %s is lost: %s", self._settings.master, workers.telling(again))
            return True
        return False

    def explained(self, error: Exception) -> Exception:
        """Return an error that names the feature that a Spark Connect session lacks."""
        from pyspark.errors import PySparkAttributeError

        if isinstance(error, PySparkAttributeError) and error.getCondition() == "JVM_ATTRIBUTE_NOT_SUPPORTED":
            name = (error.getMessageParameters() or {}).get("attr_name", "it")
            return ConfigError(
                f"the function uses {name}, which a Spark Connect session ({self._settings.master}) does not have; use"
                " DataFrames only, or set heron.spark.master to a master with a local driver, such as spark://HOST:PORT"
            )
        return error

    @property
    def ui(self) -> str:
        return ""

    def stop(self) -> None:
        """Release the session; wait only briefly if the server is unreachable."""
        session, self._package_dir = self._session, None
        if session is not None:

            def release() -> None:
                with contextlib.suppress(Exception):
                    session.stop()

            thread = threading.Thread(target=release, name="connect-stop", daemon=True)
            thread.start()
            thread.join(_STOP_S)
        self._package.unlink(missing_ok=True)
