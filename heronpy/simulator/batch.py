"""A batch run of a topology in one process, with the stages, units and files of a real run, but without a ledger and
without processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from heronpy.api.batch import Batch
from heronpy.api.spout.split_spout import split_lines
from heronpy.api.topology_context import EmitInfo, ITaskHook
from heronpy.api.user_code import load_class
from heronpy.batch.cells import Cell
from heronpy.batch.choice import hands_over
from heronpy.batch.exchange import StageOutput, bucket_lines, states, task_lines
from heronpy.batch.rows import StageRows
from heronpy.batch.splits import buckets_of
from heronpy.batch.stages import Stage, divide
from heronpy.ckpt.state_bytes import decode_plain, decode_segment
from heronpy.common.engine_settings import BatchSettings
from heronpy.common.errors import TopologyError
from heronpy.common.setting_types import CheckpointSettings, InstanceSettings
from heronpy.common.settings import resolve, settings_for
from heronpy.connectors.textfiles.decoding import LineDecoder
from heronpy.connectors.textfiles.line_share import find_files
from heronpy.connectors.textfiles.textfilespout import TextFileOptions
from heronpy.growing.identity import digest
from heronpy.ingest.ledger.requests import Chunk, Work
from heronpy.ingest.outputs.lineage import FILE, Lineage, Range, folder_name
from heronpy.ingest.unit import LogUnit
from heronpy.plan.component_config import component_config, reliability_mode
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import validate
from heronpy.proto import components_of, topology_pb2
from heronpy.task.user_code import Delegate
from heronpy.wire.codec import decoder

#: A size and digest that no reader checks.
_UNMARKED = f"0:0:{digest(b'')}"


@dataclass(slots=True)
class BatchResult:
    stages: tuple[Stage, ...]
    _emitted: dict[tuple[str, str], list[list[Any]]] = field(default_factory=dict)
    _rows: dict[str, list[list[Any]]] = field(default_factory=dict)
    _keyed: dict[str, dict[str, dict[Any, Any]]] = field(default_factory=dict)
    _plain: dict[str, dict[int, dict[Any, Any]]] = field(default_factory=dict)

    def emitted(self, component: str, stream: str = "default") -> list[list[Any]]:
        """Return the values that a component has emitted on a stream, in the order of stages and units."""
        return self._emitted.get((component, stream), [])

    def rows(self, sink: str) -> list[list[Any]]:
        """Return the values of the rows that a sink gets at the end of the run."""
        if sink not in self._rows:
            raise TopologyError(f"component {sink!r} is not a sink of this batch run")
        return self._rows[sink]

    def keyed_state(self, component: str, name: str) -> dict[Any, Any]:
        """Return the content of a keyed state in the savepoint of the run, over all tasks."""
        return self._keyed.get(component, {}).get(name, {})

    def plain_state(self, component: str, index: int = 0) -> dict[Any, Any]:
        """Return a task's State in the savepoint of the run."""
        return self._plain.get(component, {}).get(index, {})


class BatchRun:
    """One batch run. `unit_bytes` is the size of a unit of text. `buckets` overrides the numbers of buckets, which
    otherwise depend on the amount of data.
    """

    def __init__(self, topology: topology_pb2.Topology, unit_bytes: int, buckets: int, records: bool) -> None:
        plan = LogicalPlan.from_topology(topology)
        validate(plan)
        self._topology = topology
        self._unit_bytes = unit_bytes
        self._records = records
        self._stages = divide(topology)
        components = {name: component.config for name, component in plan.components.items()}
        self._settings = resolve("simulator", (), plan.config, components, ())
        self._saves = hands_over(topology)
        groups: int = settings_for(self._settings, CheckpointSettings).key_groups
        self._key_groups = groups if reliability_mode(topology) == "EFFECTIVELY_ONCE" else 0
        by_data = buckets_of(self._stages, 0, self._key_groups)
        self._buckets = {stage.number: by_data[stage.number] if stage.tasks else buckets for stage in self._stages}
        self.result = BatchResult(self._stages)
        self._classes = {name: load_class(part.comp.class_name) for name, part in components_of(topology).items()}

    def run(self) -> BatchResult:
        """Run all stages. Raises UserCodeError for the first unit that fails."""
        with TemporaryDirectory(prefix="heron-batch-") as folder:
            for stage in self._stages:
                self._run_stage(stage, Path(folder))
        return self.result

    def _run_stage(self, stage: Stage, folder: Path) -> None:
        table = folder / str(stage.number)
        table.mkdir()
        made = _RecordingRows if self._records else StageRows
        rows = made(
            self._topology,
            self._stages,
            stage.number,
            self._buckets,
            None,
            self._instance_settings,
            folder=folder,
            key_groups=self._key_groups,
            saves=self._saves,
            spout_end_s=settings_for(self._settings, BatchSettings).spout_end_s,
        )
        if isinstance(rows, _RecordingRows):
            rows.emitted = self.result._emitted
        sinks = {name: _Collected(self.result._rows.setdefault(name, [])) for name in stage.sinks}
        output = StageOutput(str(table), stage, sinks, self._saves)
        for number, unit in enumerate(self._units(stage, folder), 1):
            place = table / folder_name(1, number)
            place.mkdir(mode=0o700)
            writer = output.open(place, "")
            for pieces in rows(unit):
                writer.write(pieces)
            writer.prepare()
            chunk = Range(f"{number:09}", 1, 0, 1, "")
            (place / FILE).write_text(Lineage("simulator", 1, number, 1, 0, (chunk,)).to_json())
            (place / FILE).chmod(0o600)
        rows.close()
        if self._saves:
            self._read_state(stage, folder)

    def _instance_settings(self, component: str) -> InstanceSettings:
        return settings_for(self._settings, InstanceSettings, component)

    # ---- units --------------------------------------------------------------------------------

    def _units(self, stage: Stage, folder: Path) -> Iterator[LogUnit]:
        if stage.source == "lines":
            yield from self._text_units(stage.spout)
            return
        if stage.source == "splits":
            config = component_config(self._topology, stage.spout, load=True)
            lines = split_lines(self._classes[stage.spout].splits(_alone(self._classes[stage.spout]), config))
        elif stage.source == "spout":
            lines = task_lines(stage)
        else:
            lines = bucket_lines(folder, self._stages, stage.number, self._buckets[stage.number])
        file = folder / f"list-{stage.number}"
        file.write_bytes(b"".join(line for line, _ in lines))
        begin = 0
        for number, (line, _) in enumerate(lines, 1):
            yield _unit(number, file, begin, begin + len(line))
            begin += len(line)

    def _text_units(self, spout: str) -> Iterator[LogUnit]:
        options = TextFileOptions.from_config(component_config(self._topology, spout, load=True), spout)
        decoder, number = LineDecoder(options.encoding, options.decode_errors), 0
        for file in find_files(options.paths):
            size = os.path.getsize(file)
            for begin in range(0, size, self._unit_bytes):
                number += 1
                work = _work(number, Path(file), begin, min(size, begin + self._unit_bytes))
                header, limit = options.skip_header, options.line_bytes_max
                yield LogUnit(work, "/", decoder, limit, header_lines=header, whole=not options.follow)

    # ---- results ------------------------------------------------------------------------------

    def _read_state(self, stage: Stage, folder: Path) -> None:
        decode = decoder()
        for piece in states(folder, stage, self._buckets[stage.number]):
            if piece.state_inline:
                own = self.result._plain.setdefault(piece.component, {})
                own[piece.component_index] = decode_plain(piece.state_inline, True)
            for keyed in piece.keyed:
                content = self.result._keyed.setdefault(piece.component, {}).setdefault(keyed.name, {})
                for segment in keyed.segments:
                    content.update((one.key, one.value) for one in decode_segment(segment.inline, decode)[1])


class _RecordingRows(StageRows):
    """A hook that records the values that the components emit."""

    emitted: dict[tuple[str, str], list[list[Any]]]

    def make_cells(self, index: int, start: int) -> list[Cell]:
        cells = super().make_cells(index, start)
        for cell in cells:
            cell.user.context.add_task_hook(_Recorder(cell.component, self.emitted))
        return cells


class _Recorder(ITaskHook):
    def __init__(self, component: str, emitted: dict[tuple[str, str], list[list[Any]]]) -> None:
        self._component, self._emitted = component, emitted

    def emit(self, emit_info: EmitInfo) -> None:
        self._emitted.setdefault((self._component, emit_info.stream_id), []).append(list(emit_info.values))


class _Collected:
    """Replaces a sink and keeps its rows."""

    def __init__(self, rows: list[list[Any]]) -> None:
        self._rows = rows

    def open(self, stage: Path) -> _Collected:
        return self

    def batch(self, batch: Batch) -> dict[int, str]:
        self._rows += [list(tup.values) for tup in batch]
        return {}

    def close(self) -> None:
        """Do nothing, because no resource is open."""


def _alone(cls: type) -> Any:
    """Create a spout outside of a task, to call its `splits`."""
    return cls(delegate=Delegate())


def _work(number: int, file: Path, begin: int, end: int) -> Work:
    name = str(file).lstrip("/")
    return Work(number, 1, 1, end - begin, (Chunk(1, name, 1, begin, end, _UNMARKED, name),), 0.0)


def _unit(number: int, file: Path, begin: int, end: int) -> LogUnit:
    return LogUnit(_work(number, file, begin, end), "/", LineDecoder("utf-8", "strict"))
