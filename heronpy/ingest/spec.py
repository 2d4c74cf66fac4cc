"""Specifies the components of a pipeline, and refuses invalid arguments before the topology starts."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.common.errors import ConfigError, LedgerError
from heronpy.common.topology_keys import NEEDS_ACKS, NO_OUTPUTS
from heronpy.common.units import parse_bytes
from heronpy.growing.patterns import Pattern, may_match_below, parse
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.keys import (
    AFTER_KEY,
    DEFAULT_KEY,
    LEDGER_KEY,
    LOGS_KEY,
    OPTIONS_KEY,
    PIPELINE_KEY,
    REPLICAS_KEY,
    ROWS_KEY,
    SITE_KEY,
    TABLE_KEY,
    UNTIL_KEY,
)
from heronpy.ingest.ledger import reaching
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.options import (
    SITE_MARK,
    Rows,
    UnitOptions,
    default_home,
    default_ledger,
    logs_at,
    site_problem,
)
from heronpy.ingest.outputs.base import Output
from heronpy.ingest.outputs.lineage import BATCH, PREFIX
from heronpy.ingest.outputs.replicas import HOME
from heronpy.ingest.outputs.spark import SparkBatches
from heronpy.ingest.worker import LogWorker, RowWorker

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
UNTIL = ("forever", "now")
ON_BAD = ("split", "fail")
#: The end of a sentence that begins with the component's name.
_WHY_ACKS = "emits rows of work units to bolts and relies on acks, because no checkpoint can undo commits of the ledger"


class LogUnits:
    """Turns growing log files into a table. Each line is processed once, or listed in the bad ranges.

        def rows(unit):
            for line in unit.lines():
                user, ms = line.split("\\t")
                yield [user, int(ms)]

        builder.add_spec(*LogUnits.specs("clicks", logs="/logs/clicks-*.log", rows=rows, workers=4,
            output=ParquetTable("/data/clicks", schema={"user": "string", "ms": "int64"})))

    The bytes of the files are bundled into *work units*, which workers process one by one (as in Google's Ubiq). Only
    the *ledger* records the state of each byte. So either all rows of a unit count or none, in every reliability mode
    of the topology, even if processes are killed. Ledger and table outlive the topology; the next topology of the
    same pipeline continues where the previous topology ended.
    """

    @classmethod
    def specs(
        cls,
        name: str,
        *,
        logs: str,
        rows: Rows,
        output: Output | None = None,
        fields: Sequence[str] = (),
        home: str = "",
        workers: int = 1,
        keepers: int = 2,
        ledger: reaching.Setting = "",
        until: str = "forever",
        encoding: str = "utf-8",
        decode_errors: str = "strict",
        line_bytes_max: int | str | None = None,
        unit_bytes: int | str | None = None,
        unit_wait_s: float | None = None,
        bytes_per_s: int | str = 0,
        tries_max: int | None = None,
        bad_max: int | None = None,
        on_bad: str = "split",
        days: float | None = None,
        after: Sequence[str] = (),
        after_all: Sequence[str] = (),
        site: str = "",
        replicas: Sequence[str] = (),
    ) -> list[HeronComponentSpec]:
        """Return the components of a pipeline: `<name>-worker` and `<name>-keeper`.

        name: name of the pipeline in its ledger and in `heron units`.
        logs: absolute path with wildcards (`*`, `?`, `[...]`, `**` for folders). Links are not followed. `{site}` in
            the folders before the first wildcard stands for the site.
        rows: function(unit) that returns the rows of a `LogUnit`, as a generator or a list.
        output: `ParquetTable`, `LineFiles` or `SparkBatches`, or another `Output`. Without an output, rows go to bolts
            in at-least-once mode: the worker is a spout, a unit is done when all its rows are acked, and the topology
            must be ATLEAST_ONCE.
        fields: without an output, the fields of the stream; a row is then a list, tuple or dict of field values.
        home: without an output, the folder for records of bad bytes; the default is in HERON_HOME.
        workers, keepers: numbers of tasks. Workers run `rows`; keepers scan files and publish. Use two keepers, so
            that the pipeline continues if one keeper dies.
        ledger: the ledger's URL, `sqlite:/folder/file` or `postgresql://user@host/database`; for several ledgers, a
            list of entries `[{"until": "2026-12-01T17:00", "urls": [...]}, {"urls": [...]}]`.
        until: "now" processes the current bytes and ends; "forever" follows the files.
        encoding, decode_errors, line_bytes_max: options of `unit.lines()`.
        unit_bytes, unit_wait_s: a unit is cut when this number of bytes is waiting, or when the oldest byte has waited
            for this number of seconds (default 10 s with `SparkBatches`).
        bytes_per_s: maximum rate at which bytes are handed out to workers; 0 means no limit.
        tries_max: number of tries after which bytes count as bad and are cut out. bad_max: maximum number of bad ranges
            of one unit; a unit with more bad ranges fails, because the bytes are probably not the cause.
        on_bad: "split" cuts out bad bytes; "fail" ends the topology as FAILED, with file, offset and error.
        days: number of days for which the ledger keeps deleted files; files that are older when first seen are refused.
        after: pipelines of the same ledger that must have published all bytes older than a unit before the unit is
            processed.
        after_all: pipelines that must first have published all bytes that existed when the later of the two pipelines
            began, such as a history that is loaded once.
        site: the site where the topology is submitted, if it runs on several sites with one ledger; the default is the
            setting `heron.ingest.site`.
        replicas: folders on other disks. A unit counts only when each folder has a copy of its rows; a copy is used if
            the rows are lost before they are published.

        The settings `heron.ingest.*` of the topology or its cluster determine options that are not given here.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(
                f"pipeline {name!r}: the name must begin with a letter and contain only letters, digits, - and _"
            )
        if not callable(rows):
            raise ConfigError(f"pipeline {name!r} needs rows=, a function(unit) that returns rows, not {rows!r:.100}")
        if output is not None and not isinstance(output, Output):
            raise ConfigError(f"pipeline {name!r} needs output=, such as ParquetTable(...), not {output!r:.100}")
        _check_stream(name, output, fields, home, replicas)
        if until not in UNTIL:
            raise ConfigError(f"pipeline {name!r}: until is {until!r}; use one of {', '.join(UNTIL)}")
        for what, number in (
            ("workers", workers),
            ("keepers", keepers),
            ("tries_max", tries_max),
            ("bad_max", bad_max),
        ):
            if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
                raise ConfigError(f"pipeline {name!r}: {what} is {number!r}; it must be a whole number of 1 or more")
        if on_bad not in ON_BAD:
            raise ConfigError(f"pipeline {name!r}: on_bad is {on_bad!r}; use one of {', '.join(ON_BAD)}")
        try:
            text = reaching.text_of(default_ledger() if ledger == "" else ledger)
        except LedgerError as error:
            raise ConfigError(f"pipeline {name!r}: {error}") from None
        after, after_all = _after(name, "after", after, text), _after(name, "after_all", after_all, text)
        if site and (wrong := site_problem(site)):
            raise ConfigError(f"pipeline {name!r}: {wrong}")
        if output is not None:
            output = output.of_pipeline(name)
            unit_wait_s = output.unit_wait_s if unit_wait_s is None else unit_wait_s
        if isinstance(output, SparkBatches):
            # The rows wait in one folder for one Spark driver, in the order of one ledger.
            several = text.lstrip().startswith("[")
            for what, present in (("the site", site), ("replicas", replicas), ("several ledgers", several)):
                if present:
                    raise ConfigError(f"pipeline {name!r}: SparkBatches does not work with {what}; use a ParquetTable")
        numbers: dict[str, Any] = {
            "unit_bytes": _bytes(name, "unit_bytes", unit_bytes) if unit_bytes is not None else None,
            "unit_wait_s": _seconds(name, "unit_wait_s", unit_wait_s) if unit_wait_s is not None else None,
            "tries_max": tries_max,
            "bad_max": bad_max,
            "days": _seconds(name, "days", days) if days is not None else None,
        }
        given = {key: value for key, value in numbers.items() if value is not None}
        config = Config(
            pattern=logs,
            bytes_per_s=float(_bytes(name, "bytes_per_s", bytes_per_s, 0)),
            on_bad=on_bad,
            rows_to="table" if output is not None else "bolts",
            place=output.table if output is not None else home or default_home(name),
            after=after,
            after_all=after_all,
            **given,
        )
        if output is not None:
            config = output.tuned(config)
        options = UnitOptions(
            name,
            logs,
            text,
            output,
            config,
            until == "now",
            encoding,
            decode_errors,
            _bytes(name, "line_bytes_max", line_bytes_max if line_bytes_max is not None else "32MB"),
            site,
            _replicas(name, replicas, output.table if output is not None else ""),
            fields=tuple(fields),
            home="" if output is not None else home or default_home(name),
            given=frozenset([*given, *(("line_bytes_max",) if line_bytes_max is not None else ())]),
        )
        try:
            # If the site is not known yet, any name works.
            logs_at(logs, site or "site")
            if SITE_MARK in "/".join(parse(logs).parts):
                raise ValueError(f"{logs} contains {SITE_MARK} after its first wildcard; move it before this wildcard")
        except ValueError as error:
            raise ConfigError(f"pipeline {name!r}: logs: {error}") from None
        _refuse_own(options)
        options.decoder()
        shared = {
            OPTIONS_KEY: options,
            PIPELINE_KEY: name,
            LEDGER_KEY: text,
            DEFAULT_KEY: ledger == "",
            TABLE_KEY: options.place,
            LOGS_KEY: logs,
            AFTER_KEY: ",".join([*after, *after_all]),
            SITE_KEY: site,
            REPLICAS_KEY: list(options.replicas),
            UNTIL_KEY: until,
        }
        silent = {**shared, NO_OUTPUTS: True}
        if output is not None:
            return [
                LogWorker.spec(name=f"{name}-worker", par=workers, config={**silent, ROWS_KEY: rows}),
                LogKeeper.spec(name=f"{name}-keeper", par=keepers, config=silent | output.keeper_config()),
            ]
        keeper = LogKeeper.spec(name=f"{name}-keeper", par=keepers, config=silent)
        emitting = {**shared, ROWS_KEY: rows, NEEDS_ACKS: _WHY_ACKS}
        worker = RowWorker.spec(name=f"{name}-worker", par=workers, config=emitting, optional_outputs=list(fields))
        return [worker, keeper]


def _refuse_own(options: UnitOptions) -> None:
    """Refuse a pipeline that would read its own output, because it would never end."""
    # The site is not known yet, so any site is possible.
    logs = options.logs.replace(SITE_MARK, options.site or "*")
    roots = {parse(logs).root, os.path.realpath(parse(logs).root)}
    for what, place in (("table", options.place), *(("replica", one) for one in options.replicas)):
        for root, folder in product(roots, {place, os.path.realpath(place)}):
            if may_match_below(Pattern(root, parse(logs).parts), folder, (HOME, PREFIX, BATCH)):
                raise ConfigError(
                    f"pipeline {options.pipeline!r} would read its own {what} {place}: the pattern {options.logs} may"
                    " match files there; move this folder or the logs"
                )


def _check_stream(name: str, output: Output | None, fields: Sequence[str], home: str, replicas: Sequence[str]) -> None:
    """Check the arguments that depend on whether the pipeline has an output."""
    if output is not None:
        for what, value in (("fields", fields), ("home", home)):
            if value:
                raise ConfigError(f"pipeline {name!r} has output=, and {what}= for rows that go to bolts; remove one")
        return
    if isinstance(fields, str) or not fields or not all(isinstance(one, str) and one for one in fields):
        raise ConfigError(
            f"pipeline {name!r} needs output=, such as ParquetTable(...), or fields=[...] to emit its"
            f" rows to bolts; got fields={fields!r:.100}"
        )
    if replicas:
        raise ConfigError(f"pipeline {name!r} has replicas= but no output=; rows for bolts are not stored in a folder")
    if home and (not Path(home).is_absolute() or ".." in Path(home).parts):
        raise ConfigError(f"pipeline {name!r}: home must be an absolute path without '..', not {home!r:.100}")


def _seconds(name: str, what: str, given: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < float("inf"):
        raise ConfigError(f"pipeline {name!r}: {what} is {given!r}; it must be a number of 0 or more")
    return float(given)


def _after(name: str, what: str, after: Sequence[str], ledger: str) -> tuple[str, ...]:
    names = (after,) if isinstance(after, str) else tuple(after)
    for one in names:
        if not isinstance(one, str) or not _NAME.fullmatch(one):
            raise ConfigError(f"pipeline {name!r}: {what} names {one!r}, which is not a valid pipeline name")
    if name in names:
        raise ConfigError(f"pipeline {name!r} would wait for itself; leave its name out of its `{what}`")
    if names and len(reaching.urls_of(ledger)) > 1:
        raise ConfigError(
            f"pipeline {name!r} is in several ledgers, so it cannot wait for other pipelines; use one ledger"
        )
    return names


def _replicas(name: str, replicas: Sequence[str], table: str) -> tuple[str, ...]:
    if isinstance(replicas, str):
        raise ConfigError(f"pipeline {name!r}: replicas must be a list of folders, not {replicas!r}")
    folders = tuple(os.path.normpath(one) for one in replicas)
    for one in folders:
        if not one.startswith("/"):
            raise ConfigError(f"pipeline {name!r}: the replica {one} is not an absolute path")
    for one in {*folders}:
        if folders.count(one) > 1 or Path(one) == Path(table) or Path(table).is_relative_to(one):
            raise ConfigError(
                f"pipeline {name!r}: the replica {one} is the table, contains it, or is named twice; give a folder"
                " on another disk"
            )
    return folders


def _bytes(name: str, what: str, given: int | str, low: int = 1) -> int:
    try:
        value = parse_bytes(given)
    except (ValueError, ConfigError):
        value = -1
    if value < low:
        raise ConfigError(f"pipeline {name!r}: {what} is {given!r}; give a size such as 32MB")
    return value
