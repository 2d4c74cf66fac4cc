"""The options of a pipeline of work units, for its workers and keepers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.engine_settings import IngestSettings
from heronpy.common.folders import heron_home, make_folders
from heronpy.common.settings import settings_for
from heronpy.connectors.textfiles.decoding import LineDecoder
from heronpy.growing.patterns import Pattern, parse
from heronpy.ingest.keys import LEDGER_KEY, NOW, OPTIONS_KEY, SITE_KEY, UNTIL_KEY
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.outputs.base import Output
from heronpy.ingest.outputs.stages import Stages
from heronpy.plan.launch import LaunchSpec

_SITE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
#: Placeholder for the site's name in the folders of a pattern.
SITE_MARK = "{site}"
#: Separator between the patterns of a pipeline with several patterns.
SEPARATOR = "\n"


class Logs(NamedTuple):
    """The files of a pipeline: their patterns, and the folder relative to which they are opened and named."""

    patterns: tuple[Pattern, ...]
    root: str


class UnitOptions(Struct, frozen=True):
    """The options of a pipeline; `LogUnits.specs` describes them."""

    pipeline: str
    #: Absolute pattern with wildcards; several patterns have `SEPARATOR` between them.
    logs: str
    #: The URL of the ledger, or several ledgers in the format of `reaching`.
    ledger: str
    #: The output; None if the rows go to bolts.
    output: Output | None
    config: Config
    #: Whether only files and bytes that exist at the start are processed.
    bounded: bool = False
    encoding: str = "utf-8"
    decode_errors: str = "strict"
    line_bytes_max: int = 32 << 20
    #: Name of the site; "" for a pipeline without sites.
    site: str = ""
    #: Folders in which each stage has a copy until it is published.
    replicas: tuple[str, ...] = ()
    scan_interval_s: float = 0.5
    #: Without an output: the fields of the stream, and the folder for records of bad bytes.
    fields: tuple[str, ...] = ()
    home: str = ""
    #: Names of the options that the program sets, including numbers in `config`; settings determine all others.
    given: frozenset[str] = frozenset()
    #: The name of a bounded run that may continue in another topology; "": the id of the topology.
    run: str = ""
    #: Number of lines at the beginning of each file that are not read.
    header_lines: int = 0
    #: Whether files are read once as they are: an unfinished last line counts, and no file is considered a copy.
    whole: bool = False

    @property
    def files(self) -> Logs:
        """The parsed patterns for this site."""
        return logs_at(self.logs, self.site)

    @property
    def place(self) -> str:
        """The folder of the table; for a pipeline without a table, the folder for records of bad bytes."""
        return self.output.table if self.output is not None else self.home

    def stages(self) -> Stages:
        """The stages in `place`, which is a private folder unless it is a table."""
        if self.output is None:
            make_folders(Path(self.home))
        return Stages(self.place, self.replicas)

    def decoder(self) -> LineDecoder:
        return LineDecoder(self.encoding, self.decode_errors)


def logs_at(logs: str, site: str) -> Logs:
    """Return the parsed patterns for a site. Raises ValueError if a pattern cannot match a file."""
    patterns = tuple(parse(one) for one in logs.replace(SITE_MARK, site).split(SEPARATOR))
    return Logs(patterns, os.path.commonpath([one.root for one in patterns]))


def site_problem(site: object) -> str:
    """Return the error for an invalid site name; "" for a valid name."""
    if isinstance(site, str) and _SITE.fullmatch(site):
        return ""
    return f"{site!r} is not a valid site name: begin with a letter, and use only letters, digits, - and _"


#: The user's function from a unit to rows.
Rows = Callable[[Any], Any]


def default_ledger() -> str:
    """Return the URL of this user's ledger on this host."""
    return f"sqlite:{heron_home() / 'ledger' / 'units.db'}"


def default_home(pipeline: str) -> str:
    """Return the default folder of a pipeline that has no table."""
    return str(heron_home() / "units" / pipeline)


def settled(options: UnitOptions, settings: IngestSettings) -> UnitOptions:
    """Return the options, completed from the settings. Site and ledger do not change, because they are set at
    submission. Pure."""
    names = IngestSettings.described.keys() - {"site", "ledger"} - options.given
    free = {name: getattr(settings, name) for name in names}
    numbers = {*Config.__struct_fields__}
    config = replace(options.config, **{name: value for name, value in free.items() if name in numbers})
    return replace(options, config=config, **{name: value for name, value in free.items() if name not in numbers})


def options_of(config: Mapping[str, Any]) -> UnitOptions:
    """Return the options in a component's configuration, with the site, ledger and `bounded` that were set at
    submission."""
    options: UnitOptions = config[OPTIONS_KEY]
    site, ledger = config.get(SITE_KEY, options.site), config.get(LEDGER_KEY, options.ledger)
    bounded = options.bounded or config.get(UNTIL_KEY) == NOW
    return replace(options, site=str(site), ledger=str(ledger), bounded=bounded)


def options_here(config: Mapping[str, Any]) -> UnitOptions:
    """Return the options of a component in this process, completed from the settings of its topology."""
    launch = os.environ.get("HERON_LAUNCH")
    settings = settings_for(LaunchSpec.load(launch), IngestSettings) if launch else IngestSettings()
    return settled(options_of(config), settings)
