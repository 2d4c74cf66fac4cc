"""The settings of work units; see `setting_types`."""

from __future__ import annotations

from heronpy.common.setting_field import Room, setting
from heronpy.common.units import GB, MB


class IngestSettings(Room, frozen=True):
    """Work units: pipelines of growing log files. What LogUnits.specs(...) is given by the program wins."""

    ledger: str = setting(
        "",
        "URL of the ledger: sqlite:/folder/file, or postgresql://user@host/database for several hosts; empty means"
        " ledger/units.db in HERON_HOME.",
    )
    scan_interval_s: float = setting(
        0.5, "Interval at which keepers look at the files; longer when a look takes long.", low=0.01, high=3600
    )
    unit_bytes: int = setting(32 * MB, "A unit is cut when so many bytes wait.", low=1)
    unit_wait_s: float = setting(2.0, "A unit is cut when the oldest byte has waited for this long.", high=86_400)
    ready_per_worker: int = setting(4, "No unit is cut while so many are ready for each worker.", low=1, high=10_000)
    unpublished_units: int = setting(
        64, "No unit is handed out while so many are committed and not published.", low=1, high=100_000
    )
    unpublished_bytes: int = setting(
        4 * GB, "No unit is handed out while so many bytes are committed and not published.", low=1
    )
    silent_s: float = setting(
        15.0,
        "A worker that the ledger has not seen for this long loses its units; each shows itself three times as often.",
        low=1,
        high=1800,
    )
    tries_max: int = setting(3, "Tries of a unit before its bad bytes are looked for, and cut out.", low=1, high=100)
    bad_max: int = setting(
        100, "Bad ranges of one unit; when it has more the fault is not in its bytes, and it has failed.", low=1
    )
    line_bytes_max: int = setting(32 * MB, "A longer line is bad.", low=1024)
    days: float = setting(
        7.0,
        "Days for which the ledger remembers files that are gone; a file first seen when it is older is refused.",
        low=0.001,
        high=36_500,
    )
    site: str = setting(
        "",
        "The site where the topology is submitted, for pipelines that run on several sites with one ledger: letters,"
        " digits, - and _; empty: the one that the program names, if any.",
    )
