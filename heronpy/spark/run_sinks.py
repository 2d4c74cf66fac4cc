"""The end of a batch run in Spark: calls the function of each SparkSink with all rows of the sink.

The gateway calls `aggregate_all` like a user's function, and decides on the output of all sinks together.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heronpy.connectors.durable_files import write_record
from heronpy.connectors.spark.options import decode_aggregate
from heronpy.connectors.spark.rows import decode_schema
from heronpy.spark.batch import Batch
from heronpy.spark.outage import text_of

log = logging.getLogger("heronpy.spark")

#: Seconds to wait for the plans of the last queries, maximum number of plans kept, and their maximum length.
PLANS_WAIT_MS, PLANS_MAX, PLAN_CHARS = 5_000, 20, 65_536
#: Text of a plan that may still change.
_UNFINISHED = "isFinalPlan=false"
#: Characters that Spark would treat as patterns in a path.
_PATTERN, _ESCAPED = re.compile(r"[*?\[\]{}\\]"), r"\\\g<0>"


def aggregate_all(spark: Any, df: None, batch: Batch) -> None:
    """Call the function of each sink; `heronpy.connectors.spark.run_end` creates `batch.options`."""
    options = batch.options
    for key, value in options["conf"].items():
        spark.conf.set(key, value)
    plans_since = _plans(spark)
    for sink in options["sinks"]:
        name = sink["component"]
        part = batch.part(sink["id"], name, sink["rows"], sink["options"])
        function = decode_aggregate(sink["aggregate"])
        try:
            function(spark, frame(spark, sink), part)
        except Exception as error:
            # Re-raise the same error, because the driver recognises its own loss by the type.
            error.add_note(f"in the function of sink '{name}'")
            raise
    write_record(Path(options["plan"]), plans_since().encode())


def frame(spark: Any, sink: dict[str, Any]) -> Any:
    """Return all rows of a sink, with the same types as in a micro-batch of a stream."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = decode_schema(sink["schema"])
    assert schema is not None
    is_ntz = spark.conf.get("spark.sql.timestampType") == "TIMESTAMP_NTZ"
    wanted = {field.name: field.dataType for field in from_arrow_schema(schema, prefer_timestamp_ntz=is_ntz)}
    found = spark.read.parquet(*(f"file://{_PATTERN.sub(_ESCAPED, file)}" for file in sink["files"]))
    columns = []
    for field in found.schema:
        column = functions.col(f"`{field.name.replace('`', '``')}`")
        differs = field.dataType != wanted[field.name]
        columns.append(column.cast(wanted[field.name]).alias(field.name) if differs else column)
    return found.select(*columns)


def _plans(spark: Any) -> Callable[[], str]:
    """Return a function that returns the final plans of queries started after this call; "" if Spark reports none."""
    session = getattr(spark, "_jsparkSession", None)
    if session is None:  # Spark Connect
        return lambda: ""
    store, bus = session.sharedState().statusStore(), spark.sparkContext._jsc.sc().listenerBus()
    before = int(store.executionsCount())

    def taken() -> str:
        try:
            bus.waitUntilEmpty(PLANS_WAIT_MS)
            until = time.monotonic() + PLANS_WAIT_MS / 1000
            while True:
                # Spark writes the final plan shortly after the end of the query.
                queries = store.executionsList(before, PLANS_MAX)
                found = [queries.apply(place) for place in range(queries.size())]
                plans = [f"Query {one.executionId()}\n{one.physicalPlanDescription()[:PLAN_CHARS]}" for one in found]
                if not any(_UNFINISHED in plan for plan in plans) or time.monotonic() > until:
                    return "\n".join(plans)
                time.sleep(0.05)
        except Exception as error:
            log.warning("cannot get the query plans from Spark: %s", text_of(error))
            return ""

    return taken
