"""A verification whose sink is Spark: the rows of its table become the records that the oracle reads.

The aggregate function keeps each row of a batch unchanged. A row arrives when its file is in the table,
so all rows of a batch have the same arrival time.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from heronpy.verify import records
from heronpy.verify.oracle import Limits, Verdict
from heronpy.verify.world import World

#: Folder of the home, so that a small disk can be below it.
TABLES = "tables"
#: The values of a SeededSource.
SCHEMA = {
    "partition": "int64",
    "seq": "int64",
    "key": "string",
    "payload": "binary",
    "crc": "int64",
    "emission": "int64",
}


def keep_rows(spark: Any, df: Any, batch: Any) -> None:
    """Add the rows of a batch to the table; PySpark calls this with each batch."""
    batch.write_parquet(df, batch.options["table"])


@dataclass(slots=True)
class SparkWorld(World):
    table: Path = field(default_factory=Path)
    #: Number of rows in each file of the table.
    _rows: dict[Path, int] = field(default_factory=dict)

    def begin(self, spec: dict[str, Any], stack: ExitStack) -> None:
        """Submit the topology with a Spark sink; closing the stack kills the topology."""
        self.table = self.topology.cluster.home / TABLES / self.topology.name
        # `super()` without arguments does not work in a class with slots.
        World.begin(self, {**spec, "table": str(self.table)}, stack)

    def _files(self) -> Iterator[Path]:
        return self.table.glob("batch=*/*.parquet")

    def arrived(self) -> int:
        """Return the number of rows in the table so far."""
        from pyarrow import parquet

        for path in self._files():
            if path not in self._rows:
                self._rows[path] = parquet.read_metadata(path).num_rows
        return sum(self._rows.values())

    def verdict(self, limits: Limits) -> Verdict:
        """Return the oracle's verdict on the rows in the table."""
        from pyarrow import parquet

        to_monotonic = time.monotonic() - time.time()
        segment = records.Segment(self.out / records.TRACE / "table.seg")
        totals: dict[str, tuple[int, int]] = {}
        for path in self._files():
            read = parquet.ParquetFile(path).read().to_pydict()
            rows = np.zeros(len(read["seq"]), dtype=records.DTYPE)
            crcs = [zlib.crc32(payload) for payload in read["payload"]]
            rows["seq"], rows["partition"], rows["crc"] = read["seq"], read["partition"], crcs
            rows["time"] = path.stat().st_mtime + to_monotonic
            segment.append(rows.tobytes())
            for key, crc in zip(read["key"], crcs, strict=True):
                count, total = totals.get(key, (0, 0))
                totals[key] = (count + 1, total + crc)
        segment.close()
        committed = self.out / records.ROWS / "table.committed"
        committed.parent.mkdir(exist_ok=True)
        committed.write_bytes(segment.path.read_bytes())
        records.write_atomically(self.out / records.TOTALS / "table.json", {"totals": totals})
        return World.verdict(self, limits)
