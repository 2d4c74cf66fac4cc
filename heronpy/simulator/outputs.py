"""Emission of one task: checks, groupings and copies for every receiver.

The choosers are those of the runtime (heronpy.plan.grouping), and so are the sentences of errors.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heronpy.api.user_code import load_custom_grouping
from heronpy.common.errors import TopologyError
from heronpy.plan.grouping import Chooser, Direct, make_chooser
from heronpy.plan.logical import LogicalPlan, StreamDef
from heronpy.proto import topology_pb2 as pb


@dataclass(slots=True)
class OutStream:
    """A declared stream with a chooser for each consumer."""

    definition: StreamDef
    choosers: list[Chooser]


class Outputs:
    """The output streams of one task."""

    def __init__(
        self,
        plan: LogicalPlan,
        component: str,
        tasks: dict[str, list[int]],
        rng: random.Random,
        key_groups: int = 0,
    ) -> None:
        self._component = component
        self._customs: list[tuple[Any, str, list[int]]] = []
        self._streams: dict[str, OutStream] = {}
        for definition in sorted(plan.component(component).outputs, key=lambda out: out.name):
            choosers = []
            for consumer, message in plan.consumers(component, definition.name):
                custom = None
                if message.gtype == pb.CUSTOM:
                    custom = load_custom_grouping(message.custom_grouping_object)
                    self._customs.append((custom, definition.name, tasks[consumer]))
                choosers.append(
                    make_chooser(
                        message,
                        definition.fields,
                        tasks[consumer],
                        start=rng.randrange(len(tasks[consumer])),
                        custom=custom,
                        key_groups=key_groups,
                    )
                )
            self._streams[definition.name] = OutStream(definition, choosers)

    def prepare_customs(self, context: Any) -> None:
        """Prepare the custom groupings, after the component has initialised."""
        for custom, stream, tasks in self._customs:
            custom.prepare(context, self._component, stream, list(tasks))

    def targets(self, values: Sequence[Any], stream: str, direct_task: int | None) -> list[int]:
        """The tasks that get a tuple, one entry for each copy."""
        out = self._checked(values, stream)
        tasks: list[int] = []
        for chooser in out.choosers:
            if isinstance(chooser, Direct):
                tasks.extend(self._direct(stream, chooser, direct_task))
            elif direct_task is None:
                tasks.extend(chooser.targets(values))
        if direct_task is not None and not tasks:
            raise TopologyError(
                f"component {self._component} emitted to task {direct_task} on stream {stream!r}, "
                "which no consumer takes by direct grouping; declare the input with Grouping.DIRECT"
            )
        return tasks

    def check(self, values: Sequence[Any], stream: str) -> None:
        """Raise what an emit of these values would."""
        self._checked(values, stream)

    def is_direct(self, stream: str) -> bool:
        """Whether the emitter must name the receiving task."""
        return self._streams[stream].definition.direct

    def _checked(self, values: Sequence[Any], stream: str) -> OutStream:
        out = self._streams.get(stream)
        if out is None:
            names = ", ".join(map(repr, self._streams)) or "none"
            raise TopologyError(
                f"component {self._component} emitted on stream {stream!r}, which it does not "
                f"declare; it has {names}"
            )
        fields = out.definition.fields
        if not isinstance(values, list | tuple):
            raise TopologyError(
                f"component {self._component} emitted a {type(values).__name__} on stream "
                f"{stream!r}; emit a list or tuple with one value per field"
            )
        if len(values) != len(fields):
            raise TopologyError(
                f"component {self._component} emitted {len(values)} values on stream {stream!r}, "
                f"which declares {len(fields)}: {', '.join(fields) or '(none)'}"
            )
        return out

    def _direct(self, stream: str, chooser: Direct, direct_task: int | None) -> list[int]:
        if direct_task is None:
            raise TopologyError(
                f"component {self._component} emitted on direct stream {stream!r} without a task; "
                "pass direct_task="
            )
        return [direct_task] if direct_task in chooser.tasks else []
