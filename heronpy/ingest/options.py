"""The options of a pipeline of work units, as its workers and keepers get them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from heronpy.connectors.textfiles.decoding import LineDecoder
from heronpy.growing.patterns import Pattern, parse
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.outputs.base import Output

#: The component's configuration that has the options, and of a worker its function.
OPTIONS_KEY = "ingest.options"
ROWS_KEY = "ingest.rows"
#: What a submit can check without loading anything: the ledger, the table and the pattern; the pipeline, those that it
#: waits for (with commas between), and the site, which the submit sets when the settings name it.
LEDGER_KEY, TABLE_KEY, LOGS_KEY = "ingest.ledger", "ingest.table", "ingest.logs"
PIPELINE_KEY, AFTER_KEY, SITE_KEY = "ingest.pipeline", "ingest.after", "ingest.site"
REPLICAS_KEY = "ingest.replicas"
_SITE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
#: What stands for the name of the site in the folders of a pattern.
SITE_MARK = "{site}"


@dataclass(frozen=True, slots=True)
class UnitOptions:
    """See `LogUnits.specs`."""

    pipeline: str
    #: Absolute, with wildcards.
    logs: str
    #: Its URL, or several ledgers as `reaching` writes them.
    ledger: str
    output: Output
    config: Config
    #: What is there when it starts is all there is.
    bounded: bool = False
    encoding: str = "utf-8"
    decode_errors: str = "strict"
    line_bytes_max: int = 32 << 20
    #: "": the pipeline has no sites.
    site: str = ""
    #: Folders that have a copy of each stage until it is published.
    replicas: tuple[str, ...] = ()

    @property
    def pattern(self) -> Pattern:
        """The pattern on this site, taken apart."""
        return pattern_at(self.logs, self.site)

    def decoder(self) -> LineDecoder:
        """Decodes the lines."""
        return LineDecoder(self.encoding, self.decode_errors)


def pattern_at(logs: str, site: str) -> Pattern:
    """A pattern on a site, taken apart; ValueError when it names no file."""
    return parse(logs.replace(SITE_MARK, site))


def site_problem(site: object) -> str:
    """Why something cannot be the name of a site; "" when it can."""
    if isinstance(site, str) and _SITE.fullmatch(site):
        return ""
    return f"site {site!r} is no name of a site: it begins with a letter and has letters, digits, - and _ only"


def options_of(config: Mapping[str, Any]) -> UnitOptions:
    """The options in the configuration of a component, with the site where its topology runs."""
    options: UnitOptions = config[OPTIONS_KEY]
    return replace(options, site=str(config.get(SITE_KEY, options.site)))


#: What a user gives to turn a unit into rows.
Rows = Callable[[Any], Any]
