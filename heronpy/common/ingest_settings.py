"""The settings of work units; see `setting_types`."""

from __future__ import annotations

from dataclasses import dataclass

from heronpy.common.setting_field import setting


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """Work units: pipelines of growing log files. What LogUnits.specs(...) is given by the program wins."""

    site: str = setting(
        "",
        "The site where the topology is submitted, for pipelines that run on several sites with one ledger: letters,"
        " digits, - and _; empty: the one that the program names, if any.",
    )
