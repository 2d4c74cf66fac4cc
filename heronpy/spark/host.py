"""`python -m heronpy.spark.host --topology-id ID`: a Spark driver whose tasks are the containers of a topology.

It is a child of the topology's scheduler, and hears it as lines of JSON on standard input: first the properties of the
application, then which containers to run or to end. It tells what became of them as lines on standard output, at least
every `TELL_S`. It ends, and with it all that runs in its application, when its standard input is closed.

With `--check MASTER` it says what is missing for that on this host, a line each.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import queue
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from heronpy.common import exit_codes, logs
from heronpy.common.errors import ConfigError, HeronError
from heronpy.connectors.spark.requirements import check_master, check_spark
from heronpy.spark.host_jobs import HostJobs
from heronpy.spark.jvm import Jvm, JvmError, write_properties
from heronpy.spark.session import connect

log = logging.getLogger("heronpy.spark")

TELL_S = 2.0
LOOK_S = 0.25
START_S = 300.0
STOP_S = 5.0
ENDS_S = 2.0
#: So begins the id of an application that no master of Spark's own has taken, so that it ran nothing.
_UNTAKEN = "spark-application-"


def main(argv: list[str] | None = None) -> int:
    """Run the driver; returns the exit code of the process."""
    parser = argparse.ArgumentParser(prog="python -m heronpy.spark.host", description=__doc__)
    parser.add_argument("--topology-id", required=True, help="id of the topology, for who looks at processes")
    parser.add_argument("--check", metavar="MASTER", help="say what is missing, and end")
    arguments = parser.parse_args(argv)
    if arguments.check:
        return check(arguments.check)
    # What Spark and its libraries print must not be taken for what we tell.
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logs.setup("spark-driver", descriptor=2)
    # It tells at length of each connection that ends with its JVM.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return Host(told).run()


def check(master: str) -> int:
    """Packages and Java, then the master; a line of JSON each."""
    tries: tuple[tuple[str, Callable[[], None], str, str], ...] = (
        ("Spark's driver", lambda: check_spark(master), "pyspark and Java are here", "install it on this host"),
        ("Spark's master", lambda: check_master(master), master, "correct heron.spark_engine.master"),
    )
    for what, attempt, detail, fix in tries:
        ok = True
        try:
            attempt()
        except ConfigError as error:
            ok, detail = False, str(error).replace("heron.spark.master", "heron.spark_engine.master")
            detail = detail.replace("this topology needs Spark", "the engine needs Spark's driver")
        print(json.dumps({"what": what, "ok": ok, "detail": detail, "fix": fix}), flush=True)
        if not ok:
            return int(exit_codes.FAILURE)
    return int(exit_codes.OK)


class Host:
    """One application; `told` is where its lines go."""

    def __init__(self, told: IO[str]) -> None:
        self._out = told
        #: Lines of the scheduler; None: there are no more.
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._jvm: Jvm | None = None
        self._context: Any = None
        self._jobs: HostJobs | None = None
        self._last: dict[str, Any] = {}
        self._told_at = float("-inf")

    def run(self) -> int:
        """Until the scheduler closes our standard input, or the application ends."""
        # Given by who starts us, and removes what we cannot.
        folder = Path(os.environ.get("HERON_SPARK_SCRATCH") or tempfile.mkdtemp(prefix="heron-spark-"))
        tempfile.tempdir = str(folder)
        threading.Thread(target=self._read, name="commands", daemon=True).start()
        try:
            first = self._lines.get()
            if first is None:
                return int(exit_codes.OK)
            self._start(first, folder)
            return self._serve()
        except (HeronError, OSError) as error:
            return self._fail(str(error))
        except Exception as error:
            if self._jvm is not None and self._has_ended(self._jvm):
                return self._fail(f"its JVM ended: {self._jvm.output.last_words(wait_s=1.0)}")
            java = getattr(error, "java_exception", None)
            said = str(java if java is not None else error).strip().splitlines()
            return self._fail(said[0] if said else type(error).__name__)
        finally:
            self._stop()
            shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def _has_ended(jvm: Jvm) -> bool:
        """Whether a JVM is gone, whose sockets close before it ends."""
        deadline = time.monotonic() + ENDS_S
        while jvm.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return jvm.process.poll() is not None

    def _fail(self, why: str) -> int:
        if self._over.is_set():
            return int(exit_codes.OK)
        self._tell({"failed": f"the application of Spark has ended: {why}"})
        return int(exit_codes.FAILURE)

    # ---- life -----------------------------------------------------------------------------------
    def _start(self, first: dict[str, Any], folder: Path) -> None:
        properties, python = dict(first["properties"]), str(first["python"])
        for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE", "SPARK_LOCAL_DIRS", "PYSPARK_GATEWAY_PORT"):
            os.environ.pop(name, None)
        os.environ["SPARK_LOCAL_IP"] = str(first["address"])
        os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = python, sys.executable
        properties["spark.local.dir"] = str(folder)
        file = folder / "spark.properties"
        write_properties(file, properties)

        def started(jvm: Jvm) -> None:
            self._jvm = jvm

        connect(file, time.monotonic() + START_S, started)
        from pyspark import SparkContext, cloudpickle
        from pyspark.serializers import NoOpSerializer

        from heronpy.spark import host_task

        cloudpickle.register_pickle_by_value(host_task)  # type: ignore[no-untyped-call]
        # Bytes come back as they are: nothing that another host has sent is unpickled here.
        self._context = SparkContext()
        self._context.serializer = NoOpSerializer()
        master = str(properties["spark.master"])
        if master.startswith("spark://") and str(self._context.applicationId).startswith(_UNTAKEN):
            raise JvmError(f"no master at {master} has taken it")
        self._jobs = HostJobs(self._context)
        log.info("application %s runs at %s", self._context.applicationId, self._context.master)

    def _serve(self) -> int:
        assert self._jobs is not None and self._jvm is not None
        while not self._over.is_set():
            try:
                line = self._lines.get(timeout=LOOK_S)
                while line is not None:
                    self._do(line)
                    line = self._lines.get_nowait()
            except queue.Empty:
                pass
            if (code := self._jvm.process.poll()) is not None:
                raise JvmError(f"its JVM ended ({code}): {self._jvm.output.last_words(wait_s=1.0)}")
            if self._context._jsc.sc().isStopped():
                raise JvmError(f"the cluster has removed it: {self._jvm.output.last_words()}")
            self._jobs.look()
            self._tell(
                {
                    "ready": True,
                    "application": self._context.applicationId,
                    "executors": self._jobs.executors(),
                    "jobs": self._jobs.told(),
                }
            )
        return int(exit_codes.OK)

    def _do(self, line: dict[str, Any]) -> None:
        assert self._jobs is not None
        if line.get("do") == "submit":
            self._jobs.submit(line)
        elif line.get("do") == "cancel":
            self._jobs.cancel(str(line["id"]), float(line["grace_s"]))

    def _tell(self, words: dict[str, Any]) -> None:
        """Say it if it is new, or nothing was said for a while."""
        now = time.monotonic()
        if words == self._last and now - self._told_at < TELL_S:
            return
        self._last, self._told_at = words, now
        try:
            self._out.write(json.dumps(words) + "\n")
            self._out.flush()
        except (OSError, ValueError):  # nobody is there
            self._over.set()

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            self._lines.put(json.loads(line))
        self._over.set()
        self._lines.put(None)
        # Whatever the other threads do: without a scheduler there is no application.
        time.sleep(3 * STOP_S if self._jobs is not None else 0.0)
        self._end_jvm()
        os._exit(int(exit_codes.FAILURE))

    def _stop(self) -> None:
        if self._context is not None and self._jvm is not None and self._jvm.process.poll() is None:
            stopping = threading.Thread(target=self._context.stop, name="stop", daemon=True)
            stopping.start()
            stopping.join(STOP_S)
        self._end_jvm()

    def _end_jvm(self) -> None:
        if self._jvm is not None:
            self._jvm.end()


if __name__ == "__main__":
    code = main()
    # Threads of jobs wait for tasks of an application that is gone.
    sys.stdout.flush()
    os._exit(code)
