"""Specifies the components of a pipeline, and refuses what cannot work before anything starts."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.common.errors import ConfigError
from heronpy.common.topology_keys import NO_OUTPUTS
from heronpy.common.units import parse_bytes
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.ledger.opening import open_store
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.options import LEDGER_KEY, LOGS_KEY, OPTIONS_KEY, ROWS_KEY, TABLE_KEY, Rows, UnitOptions
from heronpy.ingest.outputs.base import Output
from heronpy.ingest.worker import LogWorker

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
UNTIL = ("forever", "now")


def default_ledger() -> str:
    """The URL of the ledger of this user on this machine."""
    home = Path(os.environ.get("HERON_HOME") or "~/.herondata").expanduser()
    return f"sqlite:{home.absolute() / 'ledger' / 'units.db'}"


class LogUnits:
    """Growing log files into a table, each line once: in the table, or in the list of bad ranges.

        def rows(unit):
            for line in unit.lines():
                user, ms = line.split("\\t")
                yield [user, int(ms)]

        builder.add_spec(*LogUnits.specs("clicks", logs="/logs/clicks-*.log", rows=rows, workers=4,
            output=ParquetTable("/data/clicks", schema={"user": "string", "ms": "int64"})))

    The bytes of the files are bundled into *work units*, which workers process one by one (Google's Ubiq). What
    became of each byte is in a *ledger*, and nowhere else: so a unit counts whole or not at all, in every reliability
    mode of the topology, whoever is killed when. Ledger and table outlive the topology; the next one of the same
    pipeline goes on where this one ended.
    """

    @classmethod
    def specs(
        cls,
        name: str,
        *,
        logs: str,
        rows: Rows,
        output: Output,
        workers: int = 1,
        keepers: int = 2,
        ledger: str = "",
        until: str = "forever",
        encoding: str = "utf-8",
        decode_errors: str = "strict",
        line_bytes_max: int | str = "32MB",
        unit_bytes: int | str = "32MB",
        unit_wait_s: float | None = None,
        bytes_per_s: int | str = 0,
        tries_max: int = 3,
        bad_max: int = 100,
        days: float = 7.0,
        after: Sequence[str] = (),
    ) -> list[HeronComponentSpec]:
        """The components of a pipeline: `<name>-worker` and `<name>-keeper`.

        name: of the pipeline, in its ledger and in `heron units`.
        logs: absolute path with wildcards (`*`, `?`, `[...]`, `**` for folders). Links are not followed.
        rows: function(unit) that gives the rows of a `LogUnit`, as a generator or a list.
        output: `ParquetTable`, `LineFiles` or `SparkBatches`, or your own `Output`.
        workers, keepers: numbers of tasks. Workers run `rows`; keepers look for files and publish. Two keepers, so that
            one may die.
        ledger: its URL, `sqlite:/folder/file` (the default is in HERON_HOME) or `postgresql://user@host/database`.
        until: "now" processes what is there and ends; "forever" follows the files.
        encoding, decode_errors, line_bytes_max: of `unit.lines()`.
        unit_bytes, unit_wait_s: a unit is cut when so much waits, or the oldest byte has waited so long; None: 2 s, and
            10 s with `SparkBatches`.
        bytes_per_s: limit of what is handed out; 0: none.
        tries_max: tries before bytes count as bad, and are cut out. bad_max: bad ranges of one unit before all of it
            has failed, because the fault is not in the bytes.
        days: how long files that are gone are remembered; files first seen older than that are refused.
        after: pipelines of the same ledger that must have published what is older than a unit before it is processed.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(f"pipeline {name!r}: the name begins with a letter and has letters, digits, - and _ only")
        if not callable(rows):
            raise ConfigError(f"pipeline {name!r} needs rows=: a function(unit) that gives rows, not {rows!r:.100}")
        if not isinstance(output, Output):
            raise ConfigError(f"pipeline {name!r} needs output=: such as ParquetTable(...), not {output!r:.100}")
        if until not in UNTIL:
            raise ConfigError(f"pipeline {name!r}: until is {until!r}; use one of {', '.join(UNTIL)}")
        for what, number in (
            ("workers", workers),
            ("keepers", keepers),
            ("tries_max", tries_max),
            ("bad_max", bad_max),
        ):
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ConfigError(f"pipeline {name!r}: {what} is {number!r}; it must be a whole number of 1 or more")
        url = ledger or default_ledger()
        output = output.of_pipeline(name)
        config = Config(
            pattern=logs,
            unit_bytes=_bytes(name, "unit_bytes", unit_bytes),
            unit_wait_s=float(output.unit_wait_s if unit_wait_s is None else unit_wait_s),
            bytes_per_s=float(_bytes(name, "bytes_per_s", bytes_per_s, 0)),
            tries_max=tries_max,
            bad_max=bad_max,
            days=float(days),
            after=tuple(after),
        )
        config = output.tuned(config)
        options = UnitOptions(
            name,
            logs,
            url,
            output,
            config,
            until == "now",
            encoding,
            decode_errors,
            _bytes(name, "line_bytes_max", line_bytes_max),
        )
        try:
            pattern = options.pattern
        except ValueError as error:
            raise ConfigError(f"pipeline {name!r}: logs: {error}") from None
        if Path(output.table).is_relative_to(pattern.root) and pattern.parts[0] == "**":
            raise ConfigError(
                f"pipeline {name!r} would read its own table {output.table}; put it outside {pattern.root}"
            )
        options.decoder()
        open_store(url).close()  # it connects at its first call only: this checks the URL
        shared = {OPTIONS_KEY: options, LEDGER_KEY: url, TABLE_KEY: output.table, LOGS_KEY: logs, NO_OUTPUTS: True}
        return [
            LogWorker.spec(name=f"{name}-worker", par=workers, config={**shared, ROWS_KEY: rows}),
            LogKeeper.spec(name=f"{name}-keeper", par=keepers, config=shared | output.keeper_config()),
        ]


def _bytes(name: str, what: str, given: int | str, low: int = 1) -> int:
    try:
        value = parse_bytes(given)
    except (ValueError, ConfigError):
        value = -1
    if value < low:
        raise ConfigError(f"pipeline {name!r}: {what} is {given!r}; give an amount of bytes such as 32MB")
    return value
