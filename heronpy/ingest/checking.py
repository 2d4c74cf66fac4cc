"""Compares a table with its ledger and with the bytes of the logs, and rebuilds a ledger from its table."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from enum import Enum, auto
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.errors import HeronError, LedgerError
from heronpy.common.folders import read_own
from heronpy.connectors.spark.dispatches import finish_decided, forget_all, is_home, lock_out_gateways
from heronpy.growing.chunks import read_chunk
from heronpy.ingest.agreement import bad_bytes, contradictions, disagreements, found_files, overlaps, waiting_bytes
from heronpy.ingest.fingerprints import file_matches
from heronpy.ingest.ledger.beginning import joined
from heronpy.ingest.ledger.commands import FoundFile, Rebuild, Rebuilt
from heronpy.ingest.ledger.reaching import Reached
from heronpy.ingest.ledger.requests import Chunk, Who
from heronpy.ingest.ledger.types import Config, Copy, File, Kind, Pipeline, Row, Unfinished
from heronpy.ingest.options import logs_at
from heronpy.ingest.outputs.lineage import Lineage, batches, folder_name, published, units_of
from heronpy.ingest.outputs.stages import About, Stages
from heronpy.ingest.unit import MovedError, opened

_RECORD_MAX = 1 << 20


class Checked(Struct, frozen=True):
    """The result of a check; `problems` is empty if everything agrees."""

    problems: list[str]
    units: int
    rows: int
    bytes: int
    #: Bytes not compared because their file is not at the path where a keeper last found it.
    bytes_gone: int
    #: Bytes not compared because the ledger has no path for their file: it is gone, or was not scanned since a rebuild.
    bytes_unseen: int
    #: Bytes not compared because their file was replaced by another file, or cannot be read.
    bytes_other: int
    #: Bytes that are not in the table yet, so the comparison may be incomplete.
    bytes_waiting: int
    #: Files that are not read, because a keeper considers them copies of other files.
    copies: int = 0
    #: Bytes of bad ranges, which are not in the table.
    bad_bytes: int = 0


class _Bytes(Enum):
    """The result of comparing the bytes in a log with the bytes from which a unit was made."""

    EQUAL = auto()
    DIFFER = auto()
    GONE = auto()
    UNSEEN = auto()
    OTHER = auto()


def command_of(ledger: str, pipeline: str) -> Reached:
    """Open a ledger for a command. Raises NoPipelineError if the ledger does not contain the pipeline."""
    return Reached.existing(ledger, pipeline, _command())


def _command() -> Who:
    return Who(f"command/{os.getpid()}", os.urandom(8).hex(), Kind.COMMAND)


def check(ledger: str, pipeline: str, table: str) -> Checked:
    """Compare a table with its ledger and with the bytes of the logs; the pipeline may keep running."""
    _refuse_missing(table)
    with closing(command_of(ledger, pipeline)) as reached:
        earlier = _lineages(table, pipeline)
        rows = reached.snapshot()
        later = _lineages(table, pipeline)
    problems = disagreements(rows, earlier, later)
    config = next(msgspec.json.decode(row.config, type=Config) for row in rows if isinstance(row, Pipeline))
    _refuse_bolts(pipeline, config)
    places = _places(rows)
    heads = {(row.key, row.generation): row.head for row in rows if isinstance(row, File)}
    sizes = dict.fromkeys(_Bytes, 0)
    for folder, lineage in published(table):
        problems += _rows_of(folder, lineage)
    for lineage in later:
        for chunk in lineage.chunks:
            outcome = _Bytes.UNSEEN
            for site, path in places.get((chunk.key, chunk.generation), ()):
                place = Chunk(0, chunk.key, chunk.generation, chunk.begin, chunk.end, chunk.head, path)
                root = logs_at(config.pattern, site).root
                outcome = _compared(root, place, chunk.sha256, heads[chunk.key, chunk.generation])
                if outcome in (_Bytes.EQUAL, _Bytes.DIFFER):
                    break
            sizes[outcome] += chunk.end - chunk.begin
            if outcome is _Bytes.DIFFER:
                problems.append(
                    f"{chunk.key} {chunk.begin}-{chunk.end} now differs from the bytes that were processed for"
                    f" {lineage.batch or folder_name(lineage.generation, lineage.unit)}"
                )
    return Checked(
        problems,
        len(later),
        sum(one.rows for one in later),
        sizes[_Bytes.EQUAL] + sizes[_Bytes.DIFFER],
        sizes[_Bytes.GONE],
        sizes[_Bytes.UNSEEN],
        sizes[_Bytes.OTHER],
        waiting_bytes(rows),
        max((row.copies for row in rows if isinstance(row, Unfinished)), default=0),
        bad_bytes(rows),
    )


def _refuse_missing(table: str) -> None:
    if not Path(table).is_dir():
        raise LedgerError(f"the folder {table} does not exist; give the folder that the pipeline writes")


def rebuild(ledger: str, pipeline: str, table: str) -> Rebuilt:
    """Rebuild the ledger from the table and its records of bad ranges; missing ranges are processed again.

    Raises LedgerError while workers are active, if units overlap, or if the table does not name its pipeline.
    """
    stages, about = _about(table, pipeline)
    if not is_home(stages.home):
        return _rebuild(ledger, pipeline, table, stages, about)
    # Nothing is published during the rebuild, and earlier decisions are not published later.
    lock = lock_out_gateways(stages.home)
    try:
        finish_decided(stages.home)
        answer = _rebuild(ledger, pipeline, table, stages, about)
        forget_all(stages.home)
        return answer
    finally:
        os.close(lock)


def _about(table: str, pipeline: str) -> tuple[Stages, About]:
    """Return the `Stages` of a table's units, and the pipeline that owns them."""
    _refuse_missing(table)
    stages = Stages(table)
    about = stages.pipeline()
    if about is None:
        ours = [batch for batch in batches(table) if batch.pipeline == pipeline]
        if not ours:
            raise LedgerError(
                f"{table} is not a table of work units: it contains no {stages.home.name}/pipeline.json, and no batch"
                f" of pipeline {pipeline!r}"
            )
        last = max(ours, key=lambda batch: (batch.generation, batch.dispatch))
        stages = Stages(last.home)
        about = stages.pipeline() or About(pipeline, last.config)
    elif is_home(stages.home):
        raise LedgerError(f"{table} contains rows that wait for Spark; give the folder to which your function writes")
    if about.pipeline != pipeline:
        raise LedgerError(f"{table} is the table of pipeline {about.pipeline!r}, not of {pipeline!r}")
    _refuse_bolts(pipeline, about.config)
    return Stages(str(stages.home.parent), about.replicas), about


def _rebuild(ledger: str, pipeline: str, table: str, stages: Stages, about: About) -> Rebuilt:
    with closing(Reached.to_rebuild(ledger, pipeline, _command())) as reached:
        # The table may have been moved.
        config = replace(about.config, place=str(stages.home.parent))
        files, highest = _found(table, pipeline, stages)
        generation = reached.ask(Rebuild(config, files, highest + 1, trial=True)).generation
        while True:
            # Do this first, even if there are no workers: a process may hold the file of a removed ledger. Afterwards,
            # stages of older generations can no longer be published, so the table is complete.
            stages.begin(generation)
            stages.drop_older(generation)
            files, _ = _found(table, pipeline, stages)
            ledger = os.urandom(16).hex()
            answer = reached.ask(Rebuild(config, files, generation, ledger=ledger))
            if answer.generation == generation:
                stages.claim(replace(about, config=config, ledger=ledger), rebuilt=True)
                return answer
            generation = answer.generation  # another rebuild was faster


def _found(table: str, pipeline: str, stages: Stages) -> tuple[tuple[FoundFile, ...], int]:
    """Return a table's content by file, and its highest generation. Raises LedgerError for a contradictory table."""
    lineages = _lineages(table, pipeline)
    try:
        bad = list(_bad_records(stages))
        files, problems = found_files(lineages, bad), contradictions(lineages, bad)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise LedgerError(f"a record of bad ranges in {stages.home} is damaged ({error!r}); remove it") from None
    if problems:
        raise LedgerError(
            f"{joined([*problems, *overlaps(lineages)])}; remove the units of one of these files from the table, then"
            " rebuild: their lines are processed again if the file still exists"
        )
    return files, max((stages.highest(), *(one.generation for one in lineages)))


def _refuse_bolts(pipeline: str, config: Config) -> None:
    if config.rows_to != "table":
        raise LedgerError(f"the rows of pipeline {pipeline!r} go to bolts, so it has no table to compare with")


def _lineages(table: str, pipeline: str) -> list[Lineage]:
    found = [lineage for _, lineage in published(table)]
    others = {one.pipeline for one in found} - {pipeline}
    if others:
        raise LedgerError(
            f"{table} also contains units of pipeline {sorted(others)[0]!r}; each pipeline needs its own table"
        )
    # A table that Spark writes may belong to several pipelines.
    return found + [unit for batch in batches(table) if batch.pipeline == pipeline for unit in units_of(batch)]


def _places(rows: tuple[Row, ...]) -> dict[tuple[str, int], list[tuple[str, str]]]:
    """Return a map from file to the sites and paths of its copies."""
    names = {row.id: (row.key, row.generation) for row in rows if isinstance(row, File)}
    found: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for row in rows:
        if isinstance(row, Copy) and row.file in names:
            found.setdefault(names[row.file], []).append((row.site, row.path))
    return found


def _compared(root: str, chunk: Chunk, sha256_hex: str, head: str) -> _Bytes:
    """Compare a range with its file below `root`; `head` is the file's beginning according to the ledger."""
    try:
        return _Bytes.EQUAL if _digest(root, chunk) == sha256_hex else _Bytes.DIFFER
    except (MovedError, OSError):
        if not os.path.lexists(os.path.join(root, chunk.path)):
            return _Bytes.GONE
    # This is the ledger's file but not the unit's file.
    with suppress(MovedError, OSError), opened(root, replace(chunk, head=head)) as descriptor:
        if not file_matches(chunk.head, descriptor):
            return _Bytes.DIFFER
    return _Bytes.OTHER


def _digest(root: str, chunk: Chunk) -> str:
    """Return the digest of a range. Raises MovedError if the file has moved, is truncated, or is an older copy."""
    digest = sha256()
    with opened(root, chunk) as descriptor:
        try:
            for lines in read_chunk(descriptor, chunk.path, chunk.begin, chunk.end):
                digest.update(lines.data)
        except HeronError as error:
            raise MovedError(str(error)) from None
    return digest.hexdigest()


def _rows_of(folder: Path, lineage: Lineage) -> Iterator[str]:
    """Yield a problem if a unit's lineage and files have different numbers of rows. Unknown file types are skipped."""
    counted = 0
    for path in sorted(folder.iterdir()):
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            counted += pq.read_metadata(path).num_rows
        elif path.suffix == ".txt":
            with open(path, "rb") as opened_file:
                counted += sum(piece.count(b"\n") for piece in iter(lambda: opened_file.read(1 << 20), b""))
        elif not path.name.startswith("_"):
            return
    if counted != lineage.rows:
        yield f"{folder.name} has {counted:,} rows, but its lineage records {lineage.rows:,}"


def _bad_records(stages: Stages) -> Iterator[dict[str, Any]]:
    for path in stages.bad_records():
        yield json.loads(read_own(path, _RECORD_MAX))
