"""SparkSink: a bolt that hands its tuples to PySpark in micro-batches.

The sink is responsible for the tuples from their arrival to the outcome of their batch. Invariants: a tuple is acked
only after its batch has a commit record on disk. A tuple fails when its batch has failed or the tuple does not fit the
schema. At most `max_uncommitted` batches lack an outcome. Under EFFECTIVELY_ONCE, checkpoints replace acks: a batch is
handed over when its checkpoint is complete.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from heronpy.api.batch import Batch
from heronpy.api.bolt.base_bolt import NotReadyError
from heronpy.api.bolt.bolt import or_batches
from heronpy.api.component.component_spec import HeronComponentSpec, Inputs
from heronpy.api.topology_context import TopologyContext
from heronpy.common.errors import ConfigError, DeadlineError
from heronpy.common.setting_types import SparkSettings
from heronpy.common.settings import settings_for
from heronpy.connectors.durable_files import run_token, safe_name
from heronpy.connectors.spark.checkpointed import CheckpointedOutbox
from heronpy.connectors.spark.filling import Filling, Limits, Refused, Step, next_step, room_rows
from heronpy.connectors.spark.handover import Manifest
from heronpy.connectors.spark.link import Finished, link_to_gateway
from heronpy.connectors.spark.options import SinkOptions, make_options
from heronpy.connectors.spark.outbox import Outbox, PatientObjects
from heronpy.connectors.spark.records import AgreedSchema, SinkFolder, records_of
from heronpy.connectors.spark.rows import RowShape, arrow, decode_schema
from heronpy.connectors.two_phase_sink import TwoPhaseSink
from heronpy.plan.launch import LaunchSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from heronpy.connectors.unit_output import StagedRows

#: Interval in seconds at which hints for batches without an outcome are repeated.
REPEAT_S = 1.0
#: Interval in seconds at which outcomes are polled while tuples arrive.
_LISTEN_S = 0.02
#: Maximum number of tuples converted at once; so a batch may exceed its size in bytes by this number of rows.
FRESH_MAX = 512


class SparkSink(TwoPhaseSink):
    """Collects tuples into micro-batches for a user's PySpark function.

        def aggregate(spark, df, batch):
            totals = df.groupBy("word").sum("count")
            batch.write_parquet(totals, batch.options["output"])

        store = SparkSink.spec("store", {counts: Grouping.SHUFFLE}, aggregate=aggregate,
                               schema={"word": "string", "count": "int64"}, output="/data/words")

    `aggregate(spark, df, batch)` runs in the topology's Spark gateway, once per batch: `df` is a Spark
    DataFrame of the batch's rows (one column per field of the tuples), `batch` a
    `heronpy.spark.batch.Batch` with a stable `id`. Batches of one task are aggregated in order.

    **Guarantees.** A tuple is acked after the outcome of its batch has been recorded on disk, so under
    ATLEAST_ONCE no row is lost. `aggregate` is called at least once per batch. The call is repeated if it
    raised an exception (`heron.spark.max_retries` times) or if the gateway died during the call. Output of
    `batch.write_parquet` is published exactly once per batch: it is staged, the decision is recorded,
    and only then do the files appear in the table as `batch=<id>`. A repeated attempt replaces the staged
    output of an earlier one. Other side effects may be repeated; make them idempotent with `batch.id` or
    `batch.path(...)`. A tuple that its spout replays, after a timeout or a failed batch, is part of a new
    batch.

    **Under EFFECTIVELY_ONCE** a batch ends at each checkpoint (and earlier when it is full). The batch is prepared
    with the checkpoint, and handed over once the checkpoint is complete. After a failure, batches of the restored
    checkpoint are handed over, and later batches are dropped. So every row is in exactly one batch, which is
    published once. Only a batch that has failed for the last time is missing from the table; its rows are kept in the
    folder `failed`. The number of
    tasks of this component cannot be changed while it runs.

    **In the other modes, when a sink task restarts,** batches of the previous process may lack an outcome. Under
    ATLEAST_ONCE the tuples of these batches were never acked and will be replayed, so the new process withdraws every
    batch that the gateway has not begun, and logs how many. A batch that was begun may still be committed; then
    all its rows are duplicated. Under ATMOST_ONCE nothing is replayed, so the batches are committed instead,
    and nothing is lost. A predecessor that is still running is fenced: the gateway refuses its batches from then on.
    """

    metric = "spark-sink"
    state_key = "spark.sink"

    @classmethod
    def spec(  # type: ignore[override]
        cls,
        name: str | None = None,
        inputs: Inputs | None = None,
        par: int = 1,
        config: dict[str, Any] | None = None,
        *,
        aggregate: str | Callable[..., Any] | None = None,
        schema: pa.Schema | dict[str, str] | None = None,
        fields: list[str] | None = None,
        batch_rows: int | None = None,
        batch_bytes: int | None = None,
        batch_interval_s: float | None = None,
        batch_bytes_max: int | None = None,
        max_uncommitted: int = 4,
        commit_timeout_s: float = 300.0,
        **options: Any,
    ) -> HeronComponentSpec:
        """Specify a sink.

        aggregate: function(spark, df, batch), or "module.function" in the topology's package.
        schema: pyarrow schema, or {column: type name}; None infers it once, from the first batch.
        fields: column names; None means the schema's names, or else the output fields of the inputs.
        batch_rows, batch_bytes, batch_interval_s: a batch is handed over when it reaches this number of rows, about
            this size, or this age of its first row; None means `heron.spark.batch_rows` and so on. Under
            EFFECTIVELY_ONCE checkpoints replace the age.
        batch_bytes_max: size up to which a batch grows while earlier batches of its task wait for Spark, but at most 16
            times `batch_rows`. Batches never grow if this size is not above `batch_bytes`. None means
            `heron.spark.batch_bytes_max`.
        max_uncommitted: maximum number of handed-over batches without an outcome; at this limit the sink waits, which
            causes backpressure. commit_timeout_s: longest wait for an outcome, after which the sink fails.
        options: plain values for your function: `output="/data/t"` is `batch.options["output"]`.
        """
        if schema is None and fields is None:
            fields = _fields_of(inputs)
        made = make_options(
            aggregate,
            schema,
            fields,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            batch_interval_s=batch_interval_s,
            batch_bytes_max=batch_bytes_max,
            max_uncommitted=max_uncommitted,
            commit_timeout_s=commit_timeout_s,
            options=options,
        )
        return super().spec(name=name, inputs=inputs, par=par, config={**made.to_config(), **(config or {})})

    @classmethod
    def unit_output(cls, component: str, config: Mapping[str, Any]) -> StagedRows:
        """Return the object that stages the rows of this sink in a batch run."""
        from heronpy.connectors.spark.units import SparkUnits

        return SparkUnits(component, config)

    def open(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Take over the task from a predecessor, and find the gateway."""
        arrow()
        options = SinkOptions.from_config(config)
        launch = _launch()
        defaults = settings_for(launch, SparkSettings)
        who = self.who
        self._limits = Limits(
            rows=options.batch_rows or defaults.batch_rows,
            bytes=options.batch_bytes or defaults.batch_bytes,
            # Checkpoints end the batches instead.
            age_s=math.inf if who.is_checkpointed else options.batch_interval_s or defaults.batch_interval_s,
            bytes_max=options.batch_bytes_max or defaults.batch_bytes_max,
            uncommitted_max=options.max_uncommitted,
        )
        self._timeout_s = options.commit_timeout_s

        run, safe = run_token(launch.topology_id), safe_name(who.component)
        records = records_of(launch)
        self._folder = SinkFolder(PatientObjects(records.objects, self.until_done), records.name, safe)
        self._checkpointed: CheckpointedOutbox | None = None
        if who.is_checkpointed:
            self._checkpointed = CheckpointedOutbox(self._folder, who.component, who.task, run, who.attempt)
            incarnation = who.attempt
        else:
            self._outbox = Outbox(self._folder, who.component, who.task, run, keep_leftovers=not who.is_acked)
            incarnation = self._outbox.incarnation
        # The gateway loads the function and its options from this record.
        record = {"component": who.component, "aggregate": options.aggregate, "options": options.options}
        self._folder.write_sink(json.dumps(record).encode())
        self._shape = RowShape(options.fields, decode_schema(options.schema), AgreedSchema(self._folder))
        self._link = link_to_gateway(launch, safe, who.task, incarnation, records)
        self._batch = Filling(self._shape)
        #: Tuples that are not in the micro-batch yet.
        self._fresh: list[Any] = []
        #: Batches of tuples that are not in the micro-batch yet, and the number of their rows.
        self._batches: list[Batch] = []
        self._waiting = 0
        self._fresh_max = self._room = 1
        self._opened_at = 0.0
        self._uncommitted: dict[str, list[Any]] = {}
        self._repeat_at = self._listen_at = 0.0
        self._finished = False
        if who.is_checkpointed:
            return
        found = self._outbox.takeover
        if found.withdrawn or found.kept or found.begun:
            self.log(
                f"batches of an earlier process: {found.withdrawn} withdrawn, {found.kept} left to commit, "
                f"{found.begun} already started by the Spark gateway"
            )

    def is_ready(self) -> bool:
        """Whether the topology's Spark has a session; until then no spout emits."""
        session = self._link.session()
        if session is None:
            raise NotReadyError("the Spark gateway is starting")
        if not session.up:
            raise NotReadyError(session.text or "Spark is starting")
        return True

    @or_batches
    def process(self, tup: Any) -> None:
        """Add a row to the current batch."""
        fresh = self._fresh
        if not fresh:
            self.check_whole()
            if self._batches:
                self._turn()
            if not len(self._batch):
                self._open_batch()
        fresh.append(tup)
        if len(fresh) >= self._fresh_max:
            self._turn()

    def process_batch(self, batch: Batch) -> None:
        """Add Arrow rows unchanged; add the columns of other batches a few hundred rows at a time."""
        self.check_whole()
        if self._fresh:
            self._turn()
        low, size = 0, len(batch)
        while low < size:
            high = min(size, low + self._room - self._waiting)
            part = batch if high - low == size else batch.take(range(low, high))
            if not len(self._batch) and not self._batches:
                self._open_batch()
            self._batches.append(part)
            self._waiting += high - low
            low = high
            if part.record_batch is not None or self._waiting >= self._fresh_max:
                self._turn()

    def process_tick(self, tup: Any) -> None:
        """Read outcomes, and hand over a batch that is old enough."""
        self.check_whole()
        self._turn()

    def finish(self) -> None:
        """Hand over the last batch, and wait for the outcome of every batch; with checkpoints this is not needed."""
        self._finished = True
        if self._checkpointed is not None:
            return
        self._take_fresh()
        if len(self._batch):
            self._hand_over()
        self._wait_below(1)
        self._link.close()

    @property
    def uncommitted(self) -> int:
        """The number of handed-over batches without a known outcome."""
        return len(self._uncommitted)

    # -- checkpoints --------------------------------------------------------------------------

    def prepare(self, checkpoint: int) -> dict[str, Any]:
        """End the current batch, and prepare all batches since the last checkpoint: on disk, not handed over."""
        outbox = self._checkpointed
        assert outbox is not None
        self._take_fresh()
        if len(self._batch):
            self._stage(outbox)
        outbox.prepare(checkpoint)
        return {**outbox.to_state(self._uncommitted), "finished": self._finished}

    def publish(self, checkpoint: int) -> None:
        """Hand over the batches up to this checkpoint.

        After the end of the input, also wait for Spark, because there is no later call.
        """
        assert self._checkpointed is not None
        for manifest in self._checkpointed.publish(checkpoint):
            self._handed_over(manifest, [])
        if self._finished:
            self._wait_below(1)

    def take_over(self, prepared: dict[str, Any] | None, checkpoint: int) -> None:
        """Hand over the batches of the restored checkpoint, and drop later batches."""
        outbox, state = self._checkpointed, prepared or {}
        assert outbox is not None
        self._finished = bool(state.get("finished"))
        found = outbox.restore(state)
        self._uncommitted = {stem: [] for stem in outbox.without_outcome()}
        self.counts.incr("batches-dropped", found.removed + found.retracted)
        if found.published or found.removed or found.retracted:
            self.log(
                f"batches of an earlier attempt: {found.published} handed over, {found.removed} dropped, "
                f"{found.retracted} retracted from the table"
            )
        if found.missing:
            self.log(f"batches of the restored checkpoint are gone: {', '.join(found.missing)}", "error")

    def _stage(self, outbox: CheckpointedOutbox) -> None:
        table, tuples = self._close_batch()
        if tuples:
            outbox.stage(table)
        for tup in tuples:
            self.ack(tup)

    # -- batches ------------------------------------------------------------------------------

    def _open_batch(self) -> None:
        if self._checkpointed is not None:
            # Each checkpoint hands over a batch, even if Spark takes longer than the checkpoint interval.
            self._wait_below(self._limits.uncommitted_max)
        self._opened_at = time.monotonic()

    def _turn(self) -> None:
        self._take_fresh()
        now = time.monotonic()
        if self._uncommitted and now >= self._listen_at:
            self._listen_at = now + _LISTEN_S
            self._settle(self._link.finished())
            self._repeat(now)
        rows, size_bytes = len(self._batch), self._batch.size_bytes
        step = next_step(rows, size_bytes, now - self._opened_at, len(self._uncommitted), self._limits)
        if step is not Step.FILL:
            self._hand_over()
            rows = size_bytes = 0
        self._room = room_rows(rows, size_bytes, self._batch.row_bytes, self._limits)
        self._fresh_max = min(FRESH_MAX, self._room)

    def _take_fresh(self) -> None:
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            self._refuse(self._batch.take(fresh))
        if self._batches:
            batches, self._batches, self._waiting = self._batches, [], 0
            self._refuse(self._batch.take_batches(batches))

    def _refuse(self, refused: list[Refused]) -> None:
        for one in refused:
            self.reject(one.tuple, one.reason)

    def _hand_over(self) -> None:
        # With checkpoints, wait only for batches that were handed over, because the gateway has no other batches.
        self._wait_below(self._limits.uncommitted_max)
        if self._checkpointed is not None:
            with self.refusals_counted():
                self._stage(self._checkpointed)
            return
        table, tuples = self._close_batch()
        if not tuples:
            return
        with self.refusals_counted():
            manifest = self._outbox.write(table)
        self._handed_over(manifest, tuples)

    def _handed_over(self, manifest: Manifest, tuples: list[Any]) -> None:
        self._uncommitted[manifest.stem] = tuples
        self.counts.incr("batches")
        self.counts.incr("rows", manifest.rows)
        self.counts.incr("bytes", manifest.size_bytes)
        self._link.ready([manifest.stem])

    def _close_batch(self) -> tuple[pa.Table, list[Any]]:
        """Return the rows of the current batch and their tuples; begin a new batch."""
        batch, self._batch = self._batch, Filling(self._shape, self._batch.row_bytes)
        table, refused = batch.close()
        self._refuse(refused)
        return table, batch.tuples

    def _wait_below(self, limit: int) -> None:
        last_outcome = time.monotonic()
        while len(self._uncommitted) >= limit:
            settled = self._settle(self._link.finished(wait_s=0.1))
            self.delegate.wait_outside("", 0.0)  # Report progress, and react to a request to stop.
            now = time.monotonic()
            self._repeat(now)
            session = self._link.session() if now - last_outcome > self._timeout_s / 2 else None
            if settled or (session is not None and session.up and session.text):
                last_outcome = now
            elif now - last_outcome > self._timeout_s:
                raise DeadlineError(
                    f"the Spark gateway has committed no batch of {self.who.component} for {self._timeout_s:g} s "
                    f"({len(self._uncommitted)} are waiting); see its log spark-gateway.log for the reason"
                )

    def _repeat(self, now: float) -> None:
        if self._uncommitted and now >= self._repeat_at:
            self._repeat_at = now + REPEAT_S
            self._link.ready(list(self._uncommitted))

    def _settle(self, outcomes: list[Finished]) -> int:
        settled = 0
        for outcome in outcomes:
            tuples = self._uncommitted.pop(outcome.stem, None)
            if tuples is None:
                continue
            settled += 1
            if outcome.committed:
                for tup in tuples:
                    self.ack(tup)
                self.counts.incr("batches-committed")
                continue
            if self._checkpointed is not None and self._folder.outcome(outcome.stem) is None:
                continue  # The batch is too old: its outcome is no longer kept.
            self.counts.incr("batches-failed")
            where = f"its rows are kept in {self._folder.failed}"
            kept = where if self._checkpointed else f"of {_count(tuples)} tuples"
            self.log(f"batch {outcome.stem} failed ({kept}): {outcome.error}", "error")
            for tup in tuples:
                self.fail(tup)
        return settled


def _count(tuples: list[Any]) -> int:
    return sum(len(one) if isinstance(one, Batch) else 1 for one in tuples)


def _launch() -> LaunchSpec:
    path = os.environ.get("HERON_LAUNCH")
    if not path:
        raise ConfigError(
            "a SparkSink runs only in a task of a submitted topology, and HERON_LAUNCH is not set;"
            ' in a test, collect its rows with Simulator(..., sinks="collect")'
        )
    return LaunchSpec.load(path)


def _fields_of(inputs: Inputs | None) -> list[str]:
    """Return the output fields of the inputs, if they are known here and agree."""
    found: list[list[str]] = []
    for source in inputs or ():
        if isinstance(source, HeronComponentSpec):
            stream = source.output_streams().get("default")
            found += [list(stream.fields)] if stream else []
    if not found or any(fields != found[0] for fields in found) or len(found) < len(inputs or ()):
        raise ConfigError("the columns of this SparkSink cannot be derived from its inputs; give fields= or schema=")
    return found[0]
