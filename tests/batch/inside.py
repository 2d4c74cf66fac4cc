"""The keepers and workers of a batch run, driven in this process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from heronpy.api.topology import TopologyBuilder
from heronpy.batch.choice import hands_over
from heronpy.batch.keeper import BatchKeeper
from heronpy.batch.record import RunRecord
from heronpy.batch.run import Run, Runs
from heronpy.batch.stages import divide
from heronpy.batch.topology import RUN_KEY
from heronpy.batch.worker import BatchWorker
from heronpy.common.settings import resolve
from heronpy.plan.component_config import config_of, reliability_mode
from tests.ingest.test_units_inside import Context, Delegate
from tests.support.launch import launch_spec


class InsideRun:
    """One run with some workers and keepers, each driven in turn."""

    def __init__(self, home: Path, builder: TopologyBuilder, monkeypatch: pytest.MonkeyPatch, **about: Any) -> None:
        self.topology = builder.build()
        divide(self.topology)
        settings = resolve("local", (), config_of(self.topology), {}, ()).settings
        spec = launch_spec("visits", "visits-1", home, settings=settings)
        spec.save(home / "launch.json")
        monkeypatch.setenv("HERON_LAUNCH", str(home / "launch.json"))
        runs = Runs(home / "batch", self.topology.name)
        exact = reliability_mode(self.topology) == "EFFECTIVELY_ONCE"
        given: dict[str, Any] = {
            "saves": hands_over(self.topology),
            "savepoints": str(home / "checkpoints"),
            "key_groups": int(settings["checkpoint"]["key_groups"]) if exact else 0,  # type: ignore[arg-type]
        }
        with runs.locked():
            record = RunRecord(
                topology=self.topology.name, number=0, cluster="local", role="me", environ="default", code="",
                submitted_at=time.time(), **given | about,
            )  # fmt: skip
            self.run: Run = runs.begin(record, self.topology)
        self.delegate = Delegate()
        self.tasks: list[BatchWorker | BatchKeeper] = []

    def start(self, workers: int = 2, keepers: int = 1, after: str = "") -> None:
        for kind, name, count in ((BatchKeeper, "batch-keeper", keepers), (BatchWorker, "batch", workers)):
            for number in range(count):
                task = kind(Delegate())  # type: ignore[arg-type]
                task.initialize({RUN_KEY: str(self.run.folder)}, Context(name, number, after))  # type: ignore[arg-type]
                self.tasks.append(task)

    def to_the_end(self, limit_s: float = 60.0) -> None:
        """Drive all tasks until each has ended its input."""
        until = time.monotonic() + limit_s
        while not all(task.delegate.ended for task in self.tasks):
            for task in self.tasks:
                if not task.delegate.ended:
                    task.next_tuple()
            assert time.monotonic() < until, [task.delegate.said for task in self.tasks]

    def die(self) -> None:
        """Without a word to the ledger."""
        for task in self.tasks:
            if task._step_now is not None:  # noqa: SLF001
                task._asking.close()  # noqa: SLF001
        self.tasks.clear()

    def close(self) -> None:
        for task in self.tasks:
            task.close()
        self.tasks.clear()
