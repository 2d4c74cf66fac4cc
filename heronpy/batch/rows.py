"""`rows(unit)` of a stage: its components process a unit, and their output becomes the pieces of the unit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from heronpy.api.component.component_spec import check_coroutines
from heronpy.api.user_code import UserCodeError, load_class, user_traceback
from heronpy.batch.cells import AsyncBoltCell, BoltCell, Cell, CellError, ObjectCell, Place, SinkCell, Way
from heronpy.batch.exchange import Exchanges, Piece
from heronpy.batch.metrics import RunMetrics, close
from heronpy.batch.sources import AsyncSpoutCell, LinesCell, SplitsCell, SpoutCell
from heronpy.batch.splits import run_plan
from heronpy.batch.stages import Stage
from heronpy.common.engine_settings import BatchSettings
from heronpy.common.errors import ConfigError, TopologyError
from heronpy.common.hashing import stable_hash_many
from heronpy.common.setting_types import InstanceSettings
from heronpy.connectors.unit_output import unit_output_of
from heronpy.plan.component_config import component_config
from heronpy.plan.grouping import grouping_width, make_chooser
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import components_of, topology_pb2
from heronpy.task.routing import component_of, schemas_of
from heronpy.task.user_code import UserCode


class StageRows:
    """The function `rows` of a stage, created once in each worker.

    `buckets`: number of tasks by stage. `folder`: the folder of the run, which has the tables
    `<folder>/<number of a stage>`. `key_groups` is 0 without checkpoints. `saves`: a savepoint will be written, so
    state is kept, and components with saved state get a tick for `finish`. `settings_of` returns the settings of
    a component. `report` is called with each error that user code reports; `failed` is called with a component and its
    number of failed tuples. `metrics`: the metrics of user code.
    """

    def __init__(
        self,
        topology: topology_pb2.Topology,
        stages: Sequence[Stage],
        number: int,
        buckets: Mapping[int, int],
        launch: LaunchSpec | None,
        settings_of: Callable[[str], InstanceSettings],
        *,
        folder: Path,
        key_groups: int = 0,
        saves: bool = False,
        spout_end_s: float = BatchSettings().spout_end_s,
        report: Callable[[Exception], None] = lambda error: None,
        failed: Callable[[str, int], None] = lambda component, tuples: None,
        metrics: RunMetrics | None = None,
    ) -> None:
        self._topology = topology
        self._stages = stages
        self._stage = stages[number - 1]
        self._buckets = buckets
        self._launch = launch
        self._settings_of = settings_of
        self._folder = folder
        self._key_groups = key_groups
        self._saves, self._spout_end_s = saves, spout_end_s
        self._report, self._failed, self._metrics = report, failed, metrics or RunMetrics()
        self._plan = run_plan(topology, stages, buckets)
        self._components = component_of(self._plan)
        self._tasks: dict[str, list[int]] = {}
        for task, component in self._components.items():
            self._tasks.setdefault(component, []).append(task)
        self._stage_of = {name: stage.number for stage in stages for name in stage.components}
        self._messages = components_of(topology)
        self._fields = {name: dict(streams) for name, streams in schemas_of(topology).items()}
        self._ways = self._all_ways()
        self._pieces: list[Piece] = []
        self._fails = Counter[str]()
        self._exchanges: Exchanges | None = None
        #: Objects that outlive a unit, by component.
        self._kept: dict[str, UserCode] = {}
        self._classes = {
            name: load_class(self._messages[name].comp.class_name, launch) for name in self._stage.components
        }

    def __call__(self, unit: Any) -> Iterator[list[Piece]]:
        """Yield the pieces of a unit, in steps. Raises UserCodeError, which names the component."""
        self._pieces.clear()
        self._fails.clear()
        many = self._stage.source in ("lines", "splits") and not unit.tries
        try:
            for _ in self._by_source(unit):
                yield self._taken()
            yield self._taken()
        except CellError as error:
            cause = error.__cause__ or error
            found = UserCodeError(f"component {error.component}: {type(cause).__name__}: {cause}")
            found.user_traceback = f"component {error.component}\n{user_traceback(cause)}"
            found.of_many = many  # type: ignore[attr-defined]
            raise found from cause

    def close(self) -> None:
        """Close the objects that outlive a unit."""
        for user in self._kept.values():
            close(user)
        self._kept.clear()

    def _taken(self) -> list[Piece]:
        pieces = list(self._pieces)
        self._pieces.clear()
        return pieces

    # ---- by source ----------------------------------------------------------------------------

    def _by_source(self, unit: Any) -> Iterator[None]:
        source = self._stage.source
        if source in ("lines", "splits"):
            yield from self._spout_unit(unit)
            return
        for line in unit.lines():
            # The line is from `exchange.bucket_lines` or `exchange.task_lines`.
            index = next(iter(json.loads(line).values()))
            yield from self._bucket(index) if source == "buckets" else self._spout_task(index)

    def _spout_unit(self, unit: Any) -> Iterator[None]:
        # Use the position of the unit, so that another unit with the same bytes sends each tuple to the same bucket.
        with _Row(self, 0, stable_hash_many(unit.place)) as row:
            head = row.cells[0]
            if isinstance(head, LinesCell):
                for _ in head.lines(unit):
                    row.step(0)
                    yield
            else:
                assert isinstance(head, SplitsCell)
                for line in unit.lines():
                    for _ in head.split(line):
                        row.step(unit.tries)
                        yield
            yield from row.end()

    def _spout_task(self, index: int) -> Iterator[None]:
        with _Row(self, index, index) as row:
            head = row.cells[0]
            assert isinstance(head, SpoutCell)
            yield from head.calls()
            yield from row.end()

    def _bucket(self, bucket: int) -> Iterator[None]:
        if self._exchanges is None:
            number = self._stage.number
            self._exchanges = Exchanges(self._folder, self._stages, number, self._buckets[number])
        with _Row(self, bucket, bucket) as row:
            head = row.cells[0]
            for frame in self._exchanges.frames(bucket):
                yield from head.steps(frame)
            yield from row.end()

    # ---- cells --------------------------------------------------------------------------------

    def make_cells(self, index: int, start: int) -> list[Cell]:
        """Create the cells of a unit or bucket, each after all cells that feed it."""
        place = Place(
            self._plan,
            self._components,
            self._launch,
            index,
            self._buckets[self._stage.number],
            self._key_groups,
            self._saves,
            self._pieces,
            self._report,
            self._failed,
            self._metrics,
            self._fails,
            self._spout_end_s,
        )
        cells: dict[str, Cell] = {}
        for component in self._stage.components:
            width = grouping_width(getattr(self._messages[component], "inputs", ()))
            kind, kept = self._kind_of(component), self._kept.get(component)
            more = {} if kept is None else {"kept": kept}
            settings = self._settings_of(component)
            cells[component] = kind(component, self._tasks[component][index], place, settings, width, **more)
        near = {self._tasks[name][index]: cell for name, cell in cells.items()}
        for cell in cells.values():
            cell.near, cell.far = near, self._ways
            cell.route(self._choosers(cell.component, index, start, cell.user), start)
        return list(cells.values())

    def _kind_of(self, component: str) -> type[Cell]:
        if component in self._stage.sinks:
            return SinkCell
        cls = self._classes[component]
        check_coroutines(cls, component == self._stage.spout)
        is_async = getattr(cls, "is_async", False)
        if component != self._stage.spout:
            return AsyncBoltCell if is_async else BoltCell
        if self._stage.source == "lines":
            return LinesCell
        return SplitsCell if self._stage.source == "splits" else AsyncSpoutCell if is_async else SpoutCell

    def _all_ways(self) -> dict[int, Way]:
        """Return a map from task to its frames' destination; a number above all task ids means a whole component."""
        ways = {
            task: Way(self._stage_of[name], index)
            for name, tasks in self._tasks.items()
            for index, task in enumerate(tasks)
        }
        self._everyone = {name: len(self._components) + place for place, name in enumerate(self._tasks, 1)}
        for name, number in self._everyone.items():
            ways[number] = Way(self._stage_of[name], len(self._tasks[name]))
        return ways

    def _choosers(self, component: str, index: int, start: int, user: UserCode) -> dict[str, list[Any]]:
        choosers: dict[str, list[Any]] = {}
        for bolt in self._topology.bolts:
            consumer = bolt.comp.name
            for source in bolt.inputs:
                if source.stream.component_name != component:
                    continue
                stream, tasks = source.stream.id, self._tasks[consumer]
                if self._stage_of[consumer] == self._stage.number:
                    tasks = [tasks[index]]
                elif source.gtype == topology_pb2.ALL:
                    tasks = [self._everyone[consumer]]
                custom = user.custom_groupings.get((consumer, component, stream))
                fields = self._fields[component][stream]
                chooser = make_chooser(source, fields, tasks, start=start, custom=custom, key_groups=self._key_groups)
                choosers.setdefault(stream, []).append(chooser)
        return choosers

    def add(self, piece: Piece) -> None:
        self._pieces.append(piece)

    def keep(self, cell: Cell) -> None:
        """Keep a cell's object if it is reusable."""
        if isinstance(cell, ObjectCell) and getattr(cell.user.object, "reusable", False):
            self._kept[cell.component] = cell.user

    def refuse_shuffled_state(self, cell: Cell) -> None:
        """Refuse state in a stage of lines or splits: each unit would have a separate state for the same key."""
        shuffled = self._stage.source in ("lines", "splits") and cell.component != self._stage.spout
        if shuffled and cell.state:
            raise CellError(cell.component) from TopologyError(
                f"'{cell.component}' keeps state, and its input is shuffled, so in a batch any unit may contain any"
                " key; group its input by the key (Grouping.fields)"
            )


class _Row:
    """The cells of one unit or bucket, from `initialize` to `close`."""

    def __init__(self, rows: StageRows, index: int, start: int) -> None:
        self._rows = rows
        self.cells = rows.make_cells(index, start)

    def __enter__(self) -> _Row:
        try:
            for cell in self.cells:
                cell.begin()
        except BaseException:
            self.close()
            raise
        for place, cell in enumerate(self.cells):
            cell.behind = self.cells[place + 1 :]
            self._rows.keep(cell)
        # Process the output of `initialize`.
        self.step(0)
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        for cell in self.cells:
            cell.close()

    def step(self, tries: int) -> None:
        """Drain all cells between two steps. If the unit has failed before, also flush, so that errors name a line."""
        for cell in self.cells:
            cell.drain()
            if tries:
                cell.emitter.flush()

    def end(self) -> Iterator[None]:
        """End the input of each cell in turn, then save the state of all cells."""
        for cell in self.cells:
            cell.drain()
            cell.end()
            yield
        for cell in self.cells:
            self._rows.refuse_shuffled_state(cell)
            for piece in cell.saved():
                self._rows.add(piece)
                yield


def sinks_of(topology: topology_pb2.Topology, stage: Stage, launch: LaunchSpec | None) -> dict[str, Any]:
    """Return the outputs that process the rows of a stage's sinks, by component."""
    found = {}
    for name in stage.sinks:
        cls = load_class(components_of(topology)[name].comp.class_name, launch)
        config = component_config(topology, name, load=True)
        try:
            found[name] = unit_output_of(cls, name, config)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"unit_output of sink '{name}' raised {type(error).__name__}: {error}") from error
    return found
