"""What the tests of the Spark room share: a launch file, a sink task in this process, a supervisor."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from heronpy.api.config_values import decode_config, encode_config
from heronpy.connectors.spark.sink import SparkSink
from tests.connectors import two_phase
from tests.connectors.two_phase import Context
from tests.support.launch import launch_spec

REPO = Path(__file__).resolve().parents[2]


def make_launch(folder: Path, sockets: Path, **spark: Any) -> Path:
    """Write a launch file of a topology that lives in `folder`."""
    sockets.mkdir(parents=True, exist_ok=True)
    settings = {"spark": spark, "logging": {"level": "INFO"}}
    launch = launch_spec("T", f"T-{folder.name}", folder, sockets_dir=str(sockets), needs_spark=True, settings=settings)
    launch.save(folder / "launch.json")
    return folder / "launch.json"


class Delegate(two_phase.Delegate):
    """Stands for the runtime around one sink task."""

    def wait_outside(self, outage: str, pause_s: float) -> None:
        time.sleep(pause_s)


def start_sink(component: str, task: int, mode: str = "ATLEAST_ONCE", **spec: Any) -> SparkSink:
    """A sink task in this process; its config went through the topology's message as in real life."""
    config = SparkSink.spec(component, **spec).custom_config
    sink = SparkSink(Delegate())
    merged = {"topology.reliability.mode": mode, **decode_config(encode_config(config))}
    sink.initialize(merged, Context(component=component, task=task))
    return sink


class GatewaySupervisor:
    """Starts the real gateway and starts it again, as an executor does."""

    def __init__(self, launch: Path) -> None:
        self.launch = launch
        self.log = launch.parent / "gateway.log"
        self.epoch = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.epoch += 1
        paths = os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")])
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "heronpy.spark", "--launch", str(self.launch), "--epoch", str(self.epoch)],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=self.launch.parent,
                env=os.environ | {"PYTHONPATH": paths, "HERON_LAUNCH": str(self.launch)},
            )  # fmt: skip

    def keep_running(self) -> None:
        assert self.process is not None
        code = self.process.poll()
        if code is not None:
            # The code 12 says that the JVM has ended.
            assert code in (1, 12, -9), f"gateway ended with {code}: {self.log.read_text()[-3000:]}"
            self.start()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(20)


class NoSpark:
    """Stands for the driver of a gateway; a frame is the table itself."""

    session: Any = object()

    def frame(self, session: Any, table: Any) -> Any:
        return table

    def start(self) -> None:
        pass

    def is_lost(self) -> bool:
        return False

    def is_lost_by(self, error: BaseException) -> bool:
        return False

    def explained(self, error: Exception) -> Exception:
        return error
