"""The hand-over of dispatches: groups of work units (`heronpy.ingest`) whose rows are already in Parquet files.

No task owns a dispatch: several keepers, even of several submissions, hand over the same dispatch with the same
content. So the records of a dispatch, in the format of `records.py`, are in the pipeline's home, not in a submission's
folder:

    <home>/_units/dispatches/sinks/<component>.json               the function and its options
    <home>/_units/dispatches/<component>/batches/<stem>.json      the dispatch: a `Manifest` with `inputs`
    <home>/_units/dispatches/<component>/lineage/<stem>.json      the bytes from which the rows were made
    <home>/_units/dispatches/<component>/{attempts,fates,done}/   as in records.py
    <home>/_units/.gateway.lock                                   held while a gateway works for the pipeline

The stem combines the number of the dispatch with a token of its inputs, because another generation of the ledger may
have a dispatch with the same number.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from heronpy.common.errors import ConfigError
from heronpy.common.flock import open_lock, try_flock
from heronpy.common.folders import check_root, make_folders
from heronpy.connectors.spark.handover import Manifest, Outcome, stem_order
from heronpy.connectors.spark.records import Fate, RunRecords, SinkFolder
from heronpy.connectors.spark.tables import publish_once
from heronpy.storage.objects.folder import FolderObjects

_NAME = "dispatches"
_LINEAGE = "lineage"
_LOCK = ".gateway.lock"


class DispatchRun(RunRecords):
    """The dispatches of a pipeline; `units` is the folder `_units` of the pipeline's home."""

    def __init__(self, units: Path) -> None:
        check_root(units, "the folder of work units")
        self.objects = FolderObjects(units)
        self.name = _NAME


class DispatchFolder:
    """Hands the dispatches of keepers over to the gateway, and reads the outcomes."""

    def __init__(self, units: Path, component: str, safe_component: str, run: str) -> None:
        """`run` is the `run_token` of the keeper's submission."""
        self._units, self._component = units, component
        self._run = run
        self._folder: SinkFolder = DispatchRun(units).folder(safe_component)

    def write_function(self, aggregate: str, options: dict[str, Any]) -> None:
        """Set the function, encoded by `encode_aggregate`, that the gateway calls from now on."""
        record = {"component": self._component, "aggregate": aggregate, "options": options}
        self._folder.write_sink(json.dumps(record).encode())

    def manifest(self, name: str, number: int, token: int, rows: int, size_bytes: int, inputs: list[str]) -> Manifest:
        """Return the manifest of a dispatch that will be published as `batch=<name>`.

        `token`: a digest of the dispatch's inputs, below 2^48. `inputs`: folders of Parquet files.
        """
        whose = self._run, self._component, 0, token
        return Manifest(name, *whose, number, rows, True, size_bytes=size_bytes, inputs=inputs)

    def hand_over_run(self, manifest: Manifest) -> None:
        """Hand over the dispatch of a batch run; idempotent."""
        self._folder.hand_over(replace(manifest, of_run=True))

    def hand_over(self, manifest: Manifest, lineage: bytes) -> None:
        """Hand a dispatch over; idempotent, because other keepers write the same record."""
        key = self._folder.key(_LINEAGE, f"{manifest.stem}.json")
        self._folder.objects.put_if_absent(key, lineage)
        self._folder.hand_over(replace(manifest, lineage=str(self._units / key)))

    def is_handed_over(self, stem: str) -> bool:
        """Whether the dispatch has been handed over and the gateway has not finished it yet."""
        return self._folder.manifest("batches", stem) is not None

    def outcome(self, stem: str) -> Outcome | None:
        """Return the outcome of a dispatch; None if the dispatch has not ended."""
        return self._folder.outcome(stem)

    def tables(self, stem: str) -> list[list[str]]:
        """Return the published output of a dispatch: pairs [staged, published]."""
        decision = self._folder.decision(stem)
        return decision.tables if decision is not None else []

    def forget(self, stem: str) -> None:
        """Remove the records of a dispatch whose outcome is in the ledger; the most recent outcomes are kept."""
        self._folder.remove(stem, _LINEAGE)


def hold_gateway_lock(units: Path) -> int:
    """Lock a pipeline, to show that a gateway on this host is using it; return the descriptor that holds the lock."""
    make_folders(units)
    lock = open_lock(units / _LOCK)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def lock_out_gateways(units: Path) -> int:
    """Lock a pipeline against gateways on this host; return the descriptor that holds the lock. Raises ConfigError if a
    gateway is using the pipeline."""
    make_folders(units)
    lock = open_lock(units / _LOCK)
    if not try_flock(lock):
        os.close(lock)
        raise ConfigError(f"a Spark gateway is still using {units}; kill its topology first")
    return lock


def is_home(units: Path) -> bool:
    """Whether a pipeline has handed over dispatches in this home."""
    return (units / _NAME).is_dir()


def finish_decided(units: Path) -> None:
    """Publish dispatches that a gateway had decided to publish but did not. No gateway may be running."""
    run = DispatchRun(units)
    for component in run.components():
        folder = run.folder(component)
        for stem in folder.stems("fates"):
            decision = folder.decision(stem)
            if decision is not None and decision.fate is Fate.PUBLISHED and folder.outcome(stem) is None:
                publish_once(decision.tables, stem_order(stem)[2])


def forget_all(units: Path) -> None:
    """Remove all records of dispatches; no gateway may be running."""
    shutil.rmtree(units / _NAME, ignore_errors=True)
