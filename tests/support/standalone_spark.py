"""Runs a standalone Spark cluster and a Spark Connect server on this machine, from the pyspark package."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import psutil

from tests.support.waiting import wait_for

_START_S = 180.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


class StandaloneSpark:
    """A master, and workers with one core each by default. `url` is the URL of the master."""

    def __init__(self, address: str, workers: int, folder: Path, cores: int = 1, memory: str = "1200m") -> None:
        self.address, self.folder = address, folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = free_port(address)
        self.url = f"spark://{address}:{self._port}"
        self._workers = workers
        self._size = ("-c", str(cores), "-m", memory)
        self.workers: list[subprocess.Popen[bytes]] = []
        self.master: subprocess.Popen[bytes]

    def start(self) -> None:
        address, port, folder, workers = self.address, self._port, self.folder, self._workers
        self.master = self._run("master", _MASTER, "--host", address, "--port", str(port), "--webui-port", "0")
        wait_for(lambda: answers(address, port), _START_S, "the master of Spark")
        self.workers = [
            self._run(f"worker-{n}", _WORKER, "--host", address, *self._size, "-d", str(folder / f"w{n}"),
                      "--webui-port", "0", self.url)
            for n in range(workers)
        ]  # fmt: skip
        wait_for(lambda: self._registered() == workers, _START_S, "the workers of Spark")

    def _registered(self) -> int:
        log = (self.folder / "master.log").read_text(errors="replace")
        return log.count("Registering worker")

    def _run(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.log", "wb") as out:
            process = subprocess.Popen(
                [str(spark_home() / "bin" / "spark-class"), main, *arguments],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(self.address), start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def executors(self) -> list[psutil.Process]:
        """Return the executor processes, which run the tasks of applications."""
        below: list[psutil.Process] = []
        for worker in self.workers:
            with suppress(psutil.Error):
                below += psutil.Process(worker.pid).children(recursive=True)
        return [one for one in below if _runs(one, "CoarseGrainedExecutorBackend")]

    def lose(self, daemon: subprocess.Popen[bytes], but: Container[int] = ()) -> None:
        """Kill a daemon and its descendants immediately, as if their host were lost, except the pids in `but`."""
        processes = [psutil.Process(daemon.pid), *psutil.Process(daemon.pid).children(recursive=True)]
        processes = [one for one in processes if one.pid not in but]
        for process in processes:
            with suppress(psutil.Error):
                process.suspend()
        for process in processes:
            with suppress(psutil.Error):
                process.kill()

    def kill_application(self) -> None:
        """Kill the newest application, as a user does on the master's page."""
        log = (self.folder / "master.log").read_text(errors="replace")
        page = re.search(r"MasterWebUI: .*started at \S+:(\d+)", log)
        applications = re.findall(r"Registered app .* with ID (\S+)", log)
        assert page is not None and applications
        address = f"http://{self.address}:{page[1]}"
        browser = build_opener(HTTPCookieProcessor())
        with browser.open(f"{address}/", timeout=20) as answer:
            # Later releases accept requests only from their own page.
            token = re.search(r'csrfToken"[^>]*value="([^"]+)"', answer.read().decode())
        fields = {"id": applications[-1], "terminate": "true"} | ({"csrfToken": token[1]} if token else {})
        with browser.open(f"{address}/app/kill/", urlencode(fields).encode(), timeout=20):
            pass

    def close(self) -> None:
        for process in reversed(self._processes):
            end_all(process)


@contextmanager
def standalone_spark(
    address: str = "127.0.0.1", workers: int = 2, cores: int = 1, memory: str = "1200m"
) -> Iterator[StandaloneSpark]:
    with tempfile.TemporaryDirectory(prefix="hp-spark-", dir="/var/tmp") as folder:
        spark = StandaloneSpark(address, workers, Path(folder), cores, memory)
        try:
            spark.start()
            yield spark
        finally:
            spark.close()


@contextmanager
def spark_connect(address: str = "127.0.0.1") -> Iterator[str]:
    """Start a Spark Connect server; yield its URL."""
    port = free_port(address)
    settings = {
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": address,
        "spark.connect.grpc.binding.port": str(port),
        "spark.pyspark.python": sys.executable,
    }
    confs = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    command = [str(spark_home() / "bin" / "spark-submit"), "--class", _CONNECT, "--name", "connect"]
    command += ["--master", "local[2]", "--driver-memory", "1g", *confs, "spark-internal"]
    with tempfile.TemporaryDirectory(prefix="hp-connect-") as folder:
        with open(Path(folder) / "log", "wb") as out:
            process = subprocess.Popen(
                # Spark runs this server as a daemon, so the daemons' memory setting has precedence.
                command, env=environment(address) | {"SPARK_DAEMON_MEMORY": "1g"},
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, start_new_session=True,
            )  # fmt: skip
        try:
            try:
                wait_for(lambda: answers(address, port), _START_S, "the Spark Connect server")
            except AssertionError:
                print((Path(folder) / "log").read_text(errors="replace")[-4000:])
                raise
            yield f"sc://{address}:{port}"
        finally:
            end_all(process)


def environment(address: str) -> dict[str, str]:
    environ = {k: v for k, v in os.environ.items() if k not in ("SPARK_CONNECT_MODE", "SPARK_REMOTE")}
    return environ | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": address,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }


def spark_home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin
    return Path(spec.origin).parent


def _runs(process: psutil.Process, main: str) -> bool:
    """Whether a process has this word among its arguments; False if it has just ended."""
    try:
        return any(main in word for word in process.cmdline())
    except psutil.Error:
        return False


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def end_all(process: subprocess.Popen[bytes]) -> None:
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
    process.kill()
    process.wait()
