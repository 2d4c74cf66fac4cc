"""What may be emitted and where it goes: the rules shared by the runtime and the simulator. Pure.

The order of the checks is fixed, so that the same mistake gives the same error everywhere: the stream is declared,
the values are a list with one value per field, every consumer's grouping finds its tasks, each value can be
serialized, and the tuple is not too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from heronpy.common.errors import TopologyError
from heronpy.common.setting_types import InstanceSettings
from heronpy.plan.columns import is_list
from heronpy.plan.grouping import Chooser, Direct
from heronpy.wire import codec

if TYPE_CHECKING:
    import pyarrow

#: Upper bound of the bytes that a frame of one tuple has besides its payload.
ENVELOPE_BYTES = 64 << 10


class EmitRules:
    """The rules for the tuples of one component.

    `serialize` is the topology's own serializer; `frame_max_bytes` is heron.stmgr.frame_max_bytes. All errors are
    TopologyErrors, except for a value that cannot be serialized: LocalWireError, or what the serializer raises.
    """

    __slots__ = ("_allow_pickle", "_component", "_serialize", "_tuple_max_bytes")

    def __init__(
        self,
        component: str,
        settings: InstanceSettings,
        frame_max_bytes: int,
        serialize: Callable[[Any], bytes] | None = None,
    ) -> None:
        self._component = component
        self._allow_pickle = settings.allow_pickle
        self._tuple_max_bytes = min(settings.tuple_max_bytes, max(1, frame_max_bytes - ENVELOPE_BYTES))
        self._serialize = serialize

    @property
    def serializes(self) -> bool:
        """Whether the topology's own serializer sees every value."""
        return self._serialize is not None

    def undeclared(self, stream: str, declared: Iterable[str]) -> TopologyError:
        """The error for an emit on a stream that the component does not declare."""
        names = ", ".join(map(repr, declared)) or "none"
        return TopologyError(
            f"component {self._component} emitted on stream {stream!r}, which it does not declare; it has {names}"
        )

    def check(self, stream: str, fields: Sequence[str], values: Any) -> None:
        """Raise unless the values are a list with one value for each field."""
        kind = type(values)
        if kind is not list and kind is not tuple:
            self._check_kind(stream, values)
        if len(values) != len(fields):
            raise TopologyError(
                f"component {self._component} emitted {len(values)} values on stream {stream!r}, which declares "
                f"{len(fields)}: {', '.join(fields) or '(none)'}"
            )

    def targets(
        self, stream: str, choosers: Iterable[Chooser], values: Sequence[Any], direct_task: int | None
    ) -> list[int]:
        """The tasks that get a tuple, one entry for each copy."""
        tasks: list[int] = []
        for chooser in choosers:
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

    def freeze(self, stream: str, values: Iterable[Any], of_arrow: bool = False) -> tuple[list[Any], int]:
        """The values, safe from later changes while they wait for their batch, and their encoded size in bytes.

        `of_arrow` says that they stand for Arrow values, which need no pickle.
        """
        if self._serialize is not None:
            frozen = [self._serialize(value) for value in values]
        else:
            frozen = [codec.freeze(value, self._allow_pickle or of_arrow) for value in values]
        size = sum(map(codec.size_of, frozen))
        if size > self._tuple_max_bytes:
            raise self._too_large(stream, size)
        return frozen, size

    def check_rows(self, stream: str, batch: pyarrow.RecordBatch) -> None:
        """Raise if a row of an Arrow record batch is too large for a tuple."""
        if batch.nbytes > self._tuple_max_bytes:
            for row in range(batch.num_rows):
                if batch.slice(row, 1).nbytes > self._tuple_max_bytes:
                    raise self._too_large(stream, batch.slice(row, 1).nbytes)

    def _too_large(self, stream: str, size: int) -> TopologyError:
        return TopologyError(
            f"component {self._component} emitted a tuple of {size} bytes on stream {stream!r}; the limit is "
            f"{self._tuple_max_bytes} (heron.instance.tuple_max_bytes, and heron.stmgr.frame_max_bytes above it)"
        )

    def _check_kind(self, stream: str, values: Any) -> None:
        if not is_list(values):
            raise TopologyError(
                f"component {self._component} emitted a {type(values).__name__} on stream {stream!r}; "
                "emit a list of values, such as [value]"
            )

    def _direct(self, stream: str, chooser: Direct, direct_task: int | None) -> list[int]:
        if direct_task is None:
            raise TopologyError(
                f"component {self._component} emitted on direct stream {stream!r} without a task; pass direct_task="
            )
        return [direct_task] if direct_task in chooser.tasks else []
