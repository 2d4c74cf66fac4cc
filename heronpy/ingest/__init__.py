"""Work units: process each byte of growing log files once (after Google's Ubiq)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from heronpy.ingest.outputs.base import Output as Output
    from heronpy.ingest.outputs.base import Writer as Writer
    from heronpy.ingest.outputs.lines import LineFiles as LineFiles
    from heronpy.ingest.outputs.parquet import ParquetTable as ParquetTable
    from heronpy.ingest.outputs.spark import SparkBatches as SparkBatches
    from heronpy.ingest.spec import LogUnits as LogUnits
    from heronpy.ingest.unit import LogUnit as LogUnit

_HOMES = {
    "Output": "heronpy.ingest.outputs.base",
    "Writer": "heronpy.ingest.outputs.base",
    "LineFiles": "heronpy.ingest.outputs.lines",
    "ParquetTable": "heronpy.ingest.outputs.parquet",
    "SparkBatches": "heronpy.ingest.outputs.spark",
    "LogUnits": "heronpy.ingest.spec",
    "LogUnit": "heronpy.ingest.unit",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)
