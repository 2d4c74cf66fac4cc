"""SparkSink: a bolt that hands its tuples to PySpark in micro-batches.

Owns the tuples between their arrival and the outcome of their batch. Invariants: a tuple is acked
only after its batch has a commit record on disk, and failed when its batch failed or it does not fit
the schema; at most `max_uncommitted` batches are without outcome.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.api.metrics import MultiCountMetric
from heronpy.common.errors import ConfigError, DeadlineError
from heronpy.common.settings import settings_for
from heronpy.connectors.spark.handover import Folder, gateway_endpoint, run_token, safe_name, write_record
from heronpy.connectors.spark.link import Finished, GatewayLink
from heronpy.connectors.spark.options import SinkOptions, make_options
from heronpy.connectors.spark.outbox import Outbox
from heronpy.connectors.spark.rows import RowShape, arrow, decode_schema
from heronpy.plan.launch import LaunchSpec

if TYPE_CHECKING:
    import pyarrow as pa

#: Hints for batches without outcome are repeated this often.
REPEAT_S = 1.0
#: While tuples stream in, outcomes are looked for this often.
_LISTEN_S = 0.02


@dataclass(slots=True)
class _Uncommitted:
    tuples: list[Any]
    since: float


class SparkSink(Bolt):
    """Collects tuples into micro-batches that a PySpark function of yours aggregates.

        def aggregate(spark, df, batch):
            totals = df.groupBy("word").sum("count")
            batch.write_parquet(totals, batch.options["output"])

        store = SparkSink.spec("store", {counts: Grouping.SHUFFLE}, aggregate=aggregate,
                               schema={"word": "string", "count": "int64"}, output="/data/words")

    `aggregate(spark, df, batch)` runs in the topology's Spark gateway, once per batch: `df` is a Spark
    DataFrame of the batch's rows (one column per field of the tuples), `batch` a
    `heronpy.spark.batch.Batch` with a stable `id`. Batches of one task are aggregated in order.

    **Guarantees.** A tuple is acked after the outcome of its batch was recorded on disk, so under
    ATLEAST_ONCE no row is lost. `aggregate` is called at least once per batch: again after it raised
    (`heron.spark.max_retries` times) and again when the gateway died in it. What it writes with
    `batch.write_parquet` is published exactly once per batch: it is staged, the decision is recorded,
    and only then the files appear in the table as `batch=<id>`; a repeated attempt replaces what an
    earlier one staged. Other side effects may be repeated; make them idempotent by `batch.id` or
    `batch.path(...)`. A tuple that its spout replays (its tree timed out, its batch failed) comes in a new
    batch.

    **When the process of a sink task restarts**, batches of its predecessor may lie in the inbox. Under
    ATLEAST_ONCE their tuples were never acked and will be replayed, so the new process withdraws every
    batch that the gateway has not begun, and says how many; one that was begun may still be committed
    (duplicates are then one whole batch). Under ATMOST_ONCE nothing is replayed, so they are committed
    instead, and nothing is lost. A predecessor that still runs is fenced: the gateway refuses what it
    writes from then on.
    """

    @classmethod
    def spec(  # type: ignore[override]
        cls,
        name: str | None = None,
        inputs: Any = None,
        par: int = 1,
        config: dict[str, Any] | None = None,
        *,
        aggregate: str | Callable[..., Any] | None = None,
        schema: pa.Schema | dict[str, str] | None = None,
        fields: list[str] | None = None,
        batch_rows: int | None = None,
        batch_interval_s: float | None = None,
        max_uncommitted: int = 4,
        commit_timeout_s: float = 300.0,
        **options: Any,
    ) -> HeronComponentSpec:
        """Specify a sink.

        aggregate: function(spark, df, batch), or "module.function" of the topology's package.
        schema: pyarrow schema, or {column: type name}; None infers it once, from the first batch.
        fields: column names; None takes those of the schema, else the output fields of the inputs.
        batch_rows, batch_interval_s: a batch is handed over when it has so many rows or its first row is
            so old; None takes `heron.spark.batch_rows` and `heron.spark.batch_interval_s`.
        max_uncommitted: batches handed over without outcome; above it the sink waits, which makes
            backpressure.
        commit_timeout_s: longest wait for an outcome before the sink gives up with an error.
        options: anything plain, for your function: `output="/data/t"` is `batch.options["output"]`.
        """
        if schema is None and fields is None:
            fields = _fields_of(inputs)
        made = make_options(
            aggregate,
            schema,
            fields,
            batch_rows=batch_rows,
            batch_interval_s=batch_interval_s,
            max_uncommitted=max_uncommitted,
            commit_timeout_s=commit_timeout_s,
            options=options,
        )
        return super().spec(name=name, inputs=inputs, par=par, config={**made.to_config(), **(config or {})})

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        arrow()
        options = SinkOptions.from_config(config)
        launch = _launch()
        defaults = settings_for(launch, "spark")
        self._component: str = context.get_component_id()
        self._batch_rows: int = options.batch_rows or defaults.batch_rows
        self._batch_interval_s: float = options.batch_interval_s or defaults.batch_interval_s
        self._max_uncommitted = options.max_uncommitted
        self._timeout_s = options.commit_timeout_s

        folder = Folder(Path(launch.working_dir) / "spark", safe_name(self._component))
        keep = str(config.get("topology.reliability.mode", "")).upper() in ("", "ATMOST_ONCE")
        run = run_token(launch.topology_id)
        self._outbox = Outbox(folder, self._component, context.get_task_id(), run, keep)
        # The gateway loads the function and its options from here.
        write_record(folder.root / f"sink-{run}.json", _sink_record(self._component, options))
        self._shape = RowShape(options.fields, decode_schema(options.schema), folder.root / f"schema-{run}.arrow")
        self._link = GatewayLink(
            gateway_endpoint(launch.sockets_dir), folder.component, context.get_task_id(), self._outbox.incarnation
        )
        self._width = len(options.fields)
        self._rows: list[Any] = []
        self._tuples: list[Any] = []
        self._opened_at = 0.0
        self._uncommitted: dict[str, _Uncommitted] = {}
        self._repeat_at = self._listen_at = 0.0
        self._rejected = 0
        self._counts = MultiCountMetric()
        context.register_metric("spark-sink", self._counts, 10)
        found = self._outbox.takeover
        if found.withdrawn or found.kept or found.claimed:
            self.log(
                f"batches of an earlier process: {found.withdrawn} withdrawn, {found.kept} left to commit, "
                f"{found.claimed} already begun by the Spark gateway"
            )

    def process(self, tup: Any) -> None:
        values = tup.values
        if len(values) != self._width:
            self._reject(tup, f"it has {len(values)} values and the sink has {self._width} columns")
            return
        if not self._rows:
            self._opened_at = time.monotonic()
        self._rows.append(values)
        self._tuples.append(tup)
        if len(self._rows) >= self._batch_rows:
            self._hand_over()
        else:
            self._turn()

    def process_tick(self, tup: Any) -> None:
        self._turn()

    def finish(self) -> None:
        """Hand over what is left and wait for the outcome of every batch."""
        if self._rows:
            self._hand_over()
        self._wait_below(1)
        self._link.close()

    # -- batches ------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Do what the clock asks for."""
        now = time.monotonic()
        if self._uncommitted and now >= self._listen_at:
            self._listen_at = now + _LISTEN_S
            self._settle(self._link.finished())
            self._repeat(now)
        if self._rows and now - self._opened_at >= self._batch_interval_s:
            self._hand_over()

    def _hand_over(self) -> None:
        self._wait_below(self._max_uncommitted)
        rows, tuples = self._rows, self._tuples
        self._rows, self._tuples = [], []
        table, misfits = self._shape.table(rows)
        for misfit in misfits:
            self._reject(tuples[misfit.index], misfit.reason)
        if misfits:
            unfit = {misfit.index for misfit in misfits}
            tuples = [tup for index, tup in enumerate(tuples) if index not in unfit]
        if not tuples:
            return
        manifest = self._outbox.write(table)
        self._uncommitted[manifest.stem] = _Uncommitted(tuples, time.monotonic())
        self._counts.incr("batches")
        self._counts.incr("rows", len(tuples))
        self._link.ready([manifest.stem])

    def _wait_below(self, limit: int) -> None:
        """Wait until fewer than `limit` batches are without outcome."""
        last_outcome = time.monotonic()
        while len(self._uncommitted) >= limit:
            settled = self._settle(self._link.finished(wait_s=0.1))
            now = time.monotonic()
            self._repeat(now)
            if settled:
                last_outcome = now
            elif now - last_outcome > self._timeout_s:
                raise DeadlineError(
                    f"the Spark gateway committed no batch of {self._component} for {self._timeout_s:g} s "
                    f"({len(self._uncommitted)} wait); its log spark-gateway.log says why"
                )

    def _repeat(self, now: float) -> None:
        if self._uncommitted and now >= self._repeat_at:
            self._repeat_at = now + REPEAT_S
            self._link.ready(list(self._uncommitted))

    def _settle(self, outcomes: list[Finished]) -> int:
        settled = 0
        for outcome in outcomes:
            batch = self._uncommitted.pop(outcome.stem, None)
            if batch is None:
                continue
            settled += 1
            if outcome.committed:
                for tup in batch.tuples:
                    self.ack(tup)
                self._counts.incr("batches-committed")
                continue
            self._counts.incr("batches-failed")
            self.log(f"batch {outcome.stem} of {len(batch.tuples)} tuples failed: {outcome.error}", "error")
            for tup in batch.tuples:
                self.fail(tup)
        return settled

    def _reject(self, tup: Any, reason: str) -> None:
        self._rejected += 1
        self._counts.incr("rows-rejected")
        # Each is counted; the log gets the first ones and then every thousandth.
        if self._rejected <= 10 or self._rejected % 1000 == 0:
            self.log(f"tuple of {self._component} rejected ({self._rejected} so far): {reason}", "error")
        self.fail(tup)


def _sink_record(component: str, options: SinkOptions) -> bytes:
    record = {"component": component, "aggregate": options.aggregate, "options": options.options}
    return json.dumps(record).encode()


def _launch() -> LaunchSpec:
    path = os.environ.get("HERON_LAUNCH")
    if not path:
        raise ConfigError("a SparkSink runs in a task of a submitted topology only; HERON_LAUNCH is not set")
    return LaunchSpec.load(path)


def _fields_of(inputs: Any) -> list[str]:
    """The output fields of the inputs, when they are known here and agree."""
    found: list[list[str]] = []
    for source in list(inputs or []):
        if isinstance(source, HeronComponentSpec):
            stream = source.output_streams().get("default")
            found += [list(stream.fields)] if stream else []
    if not found or any(fields != found[0] for fields in found) or len(found) < len(inputs):
        raise ConfigError("the columns of this SparkSink cannot be told from its inputs; give fields= or schema=")
    return found[0]
