"""The rows of a SparkSink in a batch run: a Parquet file per unit, which Spark reads at the end of the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.api.batch import Batch
from heronpy.common.errors import ConfigError
from heronpy.connectors.spark.options import SinkOptions
from heronpy.connectors.spark.requirements import spark_sinks
from heronpy.connectors.spark.rows import RowShape, arrow, decode_schema, parquet_problem
from heronpy.connectors.unit_output import SinkWriter, StagedRows, StageFile
from heronpy.plan.component_config import config_of
from heronpy.proto import components_of, topology_pb2

if TYPE_CHECKING:
    import pyarrow as pa

#: Number of bytes gathered in memory before they are written as one group of rows.
GATHERED_BYTES = 8 << 20


class SparkUnits(StagedRows):
    """Stages Parquet files whose columns have the types of the sink's schema, whatever the first rows contain."""

    for_spark = True

    def __init__(self, component: str, config: Mapping[str, Any]) -> None:
        """Raises ConfigError if the sink has no schema, or a schema that Parquet files cannot store."""
        super().__init__(component)
        self.options = SinkOptions.from_config(dict(config))
        schema = decode_schema(self.options.schema)
        if schema is None:
            raise ConfigError(
                f"sink '{component}' has no schema, so the column types would depend on the unit that ends first;"
                " give schema= to SparkSink.spec"
            )
        problem = parquet_problem(schema, f"sink '{component}'", as_rows=True)
        if problem:
            raise ConfigError(problem)
        self._schema = schema

    def open(self, stage: Path) -> SinkWriter:
        """Return a writer of one Parquet file."""
        return _Writer(StageFile(stage / f"{self.prefix}parquet"), RowShape(self.options.fields, self._schema))


class _Writer(SinkWriter):
    def __init__(self, file: StageFile, shape: RowShape) -> None:
        self._file, self._shape = file, shape
        self._gathered: list[pa.Table] = []
        self._bytes = 0
        self._writer: Any = None

    def batch(self, batch: Batch) -> dict[int, str]:
        """Add the tuples of a batch; see `SinkWriter`."""
        shape, arrived = self._shape, batch.record_batch
        if len(batch.fields) != len(shape.fields):
            reason = f"the row has {len(batch.fields)} values, but the sink has {len(shape.fields)} columns"
            return dict.fromkeys(range(len(batch)), reason)
        table = shape.cast(arrived) if arrived is not None else shape.table_of(list(batch.columns.values()))
        unfit: dict[int, str] = {}
        if table is None:
            # Perhaps only some rows do not fit.
            table, misfits = shape.table(batch.rows())
            unfit = {one.index: one.reason for one in misfits}
        self._gathered.append(table)
        self._bytes += table.nbytes
        if self._bytes >= GATHERED_BYTES:
            self._write()
        return unfit

    def close(self) -> None:
        """Close the file; idempotent."""
        self._write()
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._file.close()

    def _write(self) -> None:
        gathered, self._gathered, self._bytes = [one for one in self._gathered if one.num_rows], [], 0
        if not gathered:
            return
        import pyarrow.parquet

        table = arrow().concat_tables(gathered).combine_chunks()
        if self._writer is None:
            self._writer = pyarrow.parquet.ParquetWriter(self._file.stream(), table.schema)
        self._writer.write_table(table)


def sinks_problem(topology: topology_pb2.Topology) -> str:
    """Return why the SparkSinks of a topology cannot run in a batch, as a clause; "" if they can."""
    for name in sorted(spark_sinks(topology)):
        try:
            SparkUnits(name, config_of(components_of(topology)[name]))
        except ConfigError as error:
            return str(error)
    return ""
