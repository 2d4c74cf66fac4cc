"""Rows for PySpark: staged as Parquet, and handed to the topology's Spark gateway in groups of units."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from heronpy.common.errors import ConfigError
from heronpy.common.folders import heron_home
from heronpy.common.units import parse_bytes
from heronpy.connectors.spark.options import encode_aggregate, plain_json
from heronpy.connectors.spark.requirements import DISPATCH_KEY
from heronpy.connectors.spark.rows import parquet_problem
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.outputs.base import Output
from heronpy.ingest.outputs.parquet import ParquetTable
from heronpy.ingest.outputs.replicas import HOME

if TYPE_CHECKING:
    import pyarrow as pa

#: Characters that Spark treats as patterns in a path.
_PATTERN = frozenset("*?[]{}\\")


class SparkBatches(ParquetTable):
    """Hands the rows of units to your PySpark function, and publishes its output once.

        def totals(spark, df, batch):
            batch.write_parquet(df.groupBy("user").sum("ms"), batch.options["table"])

        LogUnits.specs("clicks", logs="/logs/clicks-*.log", rows=rows,
            output=SparkBatches(totals, {"user": "string", "ms": "int64"}, table="/data/totals"))

    Workers stage their rows as Parquet files in `home`. Keepers group committed units into a *dispatch*. The topology's
    Spark gateway runs `aggregate(spark, df, batch)`, where `df` reads these files, so that no row passes through the
    driver. Output of `batch.write_parquet` appears completely and once, as `batch=<pipeline>-<generation>-<dispatch>`,
    even if processes are killed. Other effects may be repeated, with the same `batch.id`.
    """

    unit_wait_s: ClassVar[float | None] = 10.0

    def __init__(
        self,
        aggregate: str | Callable[..., Any],
        schema: pa.Schema | Mapping[str, str],
        *,
        home: str = "",
        dispatch_bytes: int | str = "256MB",
        dispatch_wait_s: float = 5.0,
        **options: Any,
    ) -> None:
        """aggregate: function(spark, df, batch), or "module.function" of the topology's package.

        schema: columns of the rows, as for `ParquetTable`.
        home: absolute path of the folder for rows that wait for Spark, for this pipeline only, on a file system that
            Spark and all workers reach; the default is in HERON_HOME.
        dispatch_bytes, dispatch_wait_s: units go to Spark when they contain this number of bytes of logs, or when the
            oldest unit was committed this number of seconds ago.
        options: plain values for your function: `table="/data/t"` is `batch.options["table"]`.
        """
        if home and _PATTERN & set(home):
            raise ConfigError(
                f"home {home!r} of SparkBatches contains one of * ? [ ] {{ }} \\, which Spark treats as patterns"
            )
        super().__init__(home or str(heron_home() / "units"), schema)
        problem = parquet_problem(self.schema, "SparkBatches")
        if problem:
            raise ConfigError(problem)
        self._has_home = bool(home)
        self.aggregate = encode_aggregate(aggregate)
        # Converted to the form in which the gateway receives the options, with paths as text.
        self.options: dict[str, Any] = json.loads(plain_json(options, "SparkBatches"))
        try:
            self.dispatch_bytes = parse_bytes(dispatch_bytes)
        except (ValueError, ConfigError):
            self.dispatch_bytes = 0
        if self.dispatch_bytes < 1:
            raise ConfigError(f"dispatch_bytes of SparkBatches is {dispatch_bytes!r}; give a size such as 256MB")
        if not isinstance(dispatch_wait_s, int | float) or not 0 <= dispatch_wait_s < float("inf"):
            raise ConfigError(
                f"dispatch_wait_s of SparkBatches is {dispatch_wait_s!r}; give a number of seconds, 0 or more"
            )
        self.dispatch_wait_s = float(dispatch_wait_s)

    def of_pipeline(self, pipeline: str) -> Output:
        """Return a copy with the default home of that pipeline, unless a home was given."""
        if self._has_home:
            return self
        found = copy.copy(self)
        found.table = str(Path(self.table) / pipeline)
        found._has_home = True
        return found

    def tuned(self, config: Config) -> Config:
        """Return the configuration with the limits for dispatches; see `Output`."""
        return replace(config, dispatch_bytes=self.dispatch_bytes, dispatch_wait_s=self.dispatch_wait_s)

    def keeper_config(self) -> dict[str, str]:
        """Return the keys that declare that the topology needs Spark; see `Output`."""
        return {DISPATCH_KEY: str(Path(self.table) / HOME)}
