"""The options of a pipeline of work units, as its workers and keepers get them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heronpy.connectors.textfiles.decoding import LineDecoder
from heronpy.growing.patterns import Pattern, parse
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.outputs.base import Output

#: The component's configuration that has the options, and of a worker its function.
OPTIONS_KEY = "ingest.options"
ROWS_KEY = "ingest.rows"
#: What a submit can check without loading anything: the URL of the ledger, the table and the pattern.
LEDGER_KEY, TABLE_KEY, LOGS_KEY = "ingest.ledger", "ingest.table", "ingest.logs"


@dataclass(frozen=True, slots=True)
class UnitOptions:
    """See `LogUnits.specs`."""

    pipeline: str
    #: Absolute, with wildcards.
    logs: str
    #: Its URL.
    ledger: str
    output: Output
    config: Config
    #: What is there when it starts is all there is.
    bounded: bool = False
    encoding: str = "utf-8"
    decode_errors: str = "strict"
    line_bytes_max: int = 32 << 20

    @property
    def pattern(self) -> Pattern:
        """The pattern, taken apart."""
        return parse(self.logs)

    def decoder(self) -> LineDecoder:
        """Decodes the lines."""
        return LineDecoder(self.encoding, self.decode_errors)


#: What a user gives to turn a unit into rows.
Rows = Callable[[Any], Any]
