"""`heron batches`: a topology's failed Spark batches whose rows are kept."""

from __future__ import annotations

from typing import Any

from heronpy.cli import exits
from heronpy.cli.output import clean, print_json, print_table, say
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.setting_types import SparkSettings
from heronpy.common.settings import settings_for
from heronpy.connectors.spark.records import RunRecords, records_at
from heronpy.proto.plan_pb2 import ExecutionState
from heronpy.storage.objects.opening import COMMAND_S

_COLUMNS = ("sink", "batch", "rows", "attempts", "error")


def show_batches(target: Target, topology: str, retry: bool, as_json: bool, common: Common) -> None:
    """Print the failed batches, or hand them to Spark again."""
    session = Session(target, common)
    record = session.find(topology)
    if retry and session.tmaster_location(topology) is None:
        raise exits.Failure(f"topology '{clean(topology)}' is not running, so its batches cannot be retried")
    records = _records(session, record)
    found = failed(records)
    if retry:
        if not found:
            say(f"'{clean(topology)}' has no failed Spark batches to retry")
            return
        again = [one for one in found if records.folder(one["folder"]).retry(one["stem"])]
        say(f"{len(again)} failed batch{'' if len(again) == 1 else 'es'} of '{clean(topology)}' will be retried")
        return
    shown = [{name: one[name] for name in _COLUMNS} for one in found]
    if as_json:
        print_json(shown)
    elif not shown:
        say(f"'{clean(topology)}' has no failed Spark batches")
    else:
        print_table(_COLUMNS, [[clean(str(one[name])) for name in _COLUMNS] for one in shown])


def failed_of(session: Session, record: ExecutionState) -> list[dict[str, Any]]:
    """Return a topology's failed batches whose rows are kept; see `failed`."""
    return failed(_records(session, record))


def _records(session: Session, record: ExecutionState) -> RunRecords:
    place = settings_for(session.settings_of(record), SparkSettings).handover
    if not place and session.elsewhere(record):
        raise exits.Failure(f"the batches of '{clean(record.topology)}' are on its host; run this command there")
    return records_at(place, record.working_dir, record.topology, record.topology_id, COMMAND_S)


def failed(records: RunRecords) -> list[dict[str, Any]]:
    """Return the failed batches whose rows are kept, by sink, oldest first.

    The fields `folder` and `stem` locate the record of a batch.
    """
    found = []
    for safe in records.components():
        folder = records.folder(safe)
        for stem in folder.stems("failed"):
            manifest, outcome = folder.manifest("failed", stem), folder.outcome(stem)
            if manifest is not None:
                error = outcome.error if outcome is not None else ""
                found.append({"sink": manifest.component, "batch": manifest.id, "rows": manifest.rows,
                              "attempts": manifest.started, "error": error, "folder": safe, "stem": stem})  # fmt: skip
    return found
