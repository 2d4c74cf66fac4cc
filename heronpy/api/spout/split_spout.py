"""A spout whose input consists of *splits*, such as files, partitions of a table, or ranges of keys.

In a stream, each task reads its splits one after the other. In a batch run, the splits are listed once, and any worker
may read any of them. Splits are plain values, so both modes read the same input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
from msgspec import Struct

from heronpy.api.api_constants import TOPOLOGY_RELIABILITY_MODE, TopologyReliabilityMode
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Stream
from heronpy.api.topology_context import TopologyContext
from heronpy.common.errors import ConfigError

#: Maximum number of a spout's splits, and maximum size in bytes of one split as JSON.
SPLITS_MAX, SPLIT_BYTES_MAX = 1_000_000, 1 << 20
#: Position of a split that has been read to its end.
DONE: Final = -1
#: The assumed size in bytes of a split of unknown size; a unit consists of only one such split.
UNKNOWN_BYTES: Final = 64 << 20
#: Largest number of items that one call to `next_tuple` emits, and of rows that may be unacked.
_ITEMS_PER_CALL, _PENDING_MAX = 200, 10_000
#: Pause in seconds while all permitted rows are unacked, and before the end of input is checked again.
_WAIT_S = 0.05
_END: Final = object()


class Split(Struct, frozen=True):
    """A part of the input that one task reads.

    name: identifies the split; the same part always has the same name. bytes: the approximate size, used to
    divide work; 0 if unknown. data: the values that `read` needs, as JSON.
    """

    name: str
    bytes: int = 0
    data: Any = None


class To(NamedTuple):
    """Values for a named stream; a bare list or tuple of values goes to the default stream."""

    stream: str
    values: Any


class SplitSpout(Spout, StatefulComponent):
    """Reads splits. Define `splits` and `read`.

        class Rows(SplitSpout):
            outputs = ["user", "ms"]

            def splits(self, config):
                return [Split(path, os.path.getsize(path)) for path in sorted(glob.glob(config["paths"]))]

            def read(self, split):
                for line in open(split.name):
                    yield line.split()

    In a stream, each task reads its own splits, saves its positions in checkpoints, and ends when its splits are read.
    Under ATLEAST_ONCE, failed rows are emitted again. Without checkpoints, a change of the number of tasks makes tasks
    read finished splits again, so it is refused under ATMOST_ONCE. An override of `initialize` must call
    `super().initialize(...)` first.
    """

    #: In a stream, seconds between two calls to `splits`, to find new splits. None: `splits` is called once, and the
    #: input ends.
    follow_s: ClassVar[float | None] = None
    #: Partitioned state: maps (name of the split, 0) to the number of emitted items, or to DONE.
    STATE: ClassVar[str] = "splits"

    def splits(self, config: dict[str, Any]) -> Iterable[Split]:
        """Return the current splits. Each task calls this method; it must return the same splits in all tasks."""
        raise NotImplementedError(f"spout {type(self).__name__} does not define splits(); return a list of Split")

    def read(self, split: Split) -> Iterable[Any]:
        """Yield the items of a split, always the same items in the same order. An item is a list of values,
        `To(stream, values)`, or a pyarrow RecordBatch."""
        raise NotImplementedError(f"spout {type(self).__name__} does not define read(); yield lists of values")

    def follow_state(self, splits: Sequence[Split], index: int, tasks: int) -> Mapping[Any, Any]:
        """Return the State with which stream task `index` of `tasks` continues after a batch run has read these splits.

        Define this method and `follow` if the stream continues in another source, such as a log from an offset that
        the splits contain. A task with a State does not call `splits`. Without this method, the stream skips these
        splits.
        """
        return {}

    def follow(self) -> Any:
        """Return the next item after the splits, or None if there is none yet. Called after all splits have been read.

        `self.state` is the position: it begins as the result of `follow_state`, and must be updated with each item.
        """
        raise NotImplementedError(f"spout {type(self).__name__} does not define follow(); return an item or None")

    # ---- as a stream ------------------------------------------------------------------------
    state: Any = None

    def init_state(self, stateful_state: Any) -> None:
        """Keep the State for `follow`."""
        self.state = stateful_state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Prepare to read the splits. This method does not call `splits`, because a batch run lists the splits
        elsewhere."""
        self._config, self._context = config, context
        self.state = {} if self.state is None else self.state
        # The State of a spout without `follow` belongs to the user's code.
        self._is_behind = bool(self.state) and type(self).follow is not SplitSpout.follow
        self._positions = context.partitioned_state(self.STATE)
        self._tracked = config.get(TOPOLOGY_RELIABILITY_MODE) == TopologyReliabilityMode.ATLEAST_ONCE
        self._splits: list[Split] | None = None
        #: Index of the split that is examined next, and number of splits examined since the last one that was read.
        self._next, self._passed = 0, 0
        self._split: Split | None = None
        self._items: Iterator[Any] = iter(())
        self._count = 0
        #: Unacked rows by split, item and row; and the rows that have failed.
        self._pending: dict[tuple[str, int, int], Any] = {}
        self._failed: deque[tuple[str, int, int]] = deque()

    def pre_save(self, checkpoint_id: str) -> None:
        """Save the position in the current split to the state."""
        if self._split is not None:
            self._positions[self._split.name, 0] = self._count

    def next_tuple(self) -> None:
        """Emit failed rows again, then the next items."""
        while self._failed:
            self._emit_row(self._failed.popleft())
        if self._split is not None and not self._owns(self._split):
            self._split = None  # without checkpoints, the split's new task reads the split from the start
        for _ in range(_ITEMS_PER_CALL):
            if len(self._pending) >= _PENDING_MAX:
                self.wait(_WAIT_S)
                return
            if self._is_behind:
                item = self.follow()
                if item is None:
                    self.wait(_WAIT_S)
                    return
                self._emit_item("", item)
                self._count += 1
                continue
            if self._split is None and not self._begin():
                self._rest()
                return
            assert self._split is not None
            item = next(self._items, _END)
            if item is _END:
                self._positions[self._split.name, 0] = DONE
                self._split = None
                continue
            self._emit_item(self._split.name, item)
            self._count += 1

    def ack(self, tup_id: Any) -> None:
        """Stop tracking the acked row."""
        self._pending.pop(tup_id, None)

    def fail(self, tup_id: Any) -> None:
        """Queue the failed row to be emitted again."""
        if tup_id in self._pending:
            self._failed.append(tup_id)

    def _owns(self, split: Split) -> bool:
        return bool(self._positions.own(split.name, 1))

    def _begin(self) -> bool:
        """Begin the next split of this task; return False if all splits are read."""
        if self._splits is None:
            self._splits = checked_splits(self.splits(self._config))
        while self._passed < len(self._splits):
            split = self._splits[self._next]
            self._next = (self._next + 1) % len(self._splits)
            self._passed += 1
            position = self._positions.get((split.name, 0), 0) if self._owns(split) else DONE
            if position != DONE:
                self._split, self._count, self._passed = split, position, 0
                self._items = islice(iter(self.read(split)), position, None)
                return True
        return False

    def _rest(self) -> None:
        self._passed = self._next = 0
        if self.follow_s is not None:
            self.wait(self.follow_s)
            self._splits = None
        elif type(self).follow is not SplitSpout.follow:
            tasks = self._context.get_component_tasks(self._context.get_component_id()) or []
            index = tasks.index(self._context.get_task_id())
            self.state.update(self.follow_state(self._splits or (), index, len(tasks)))
            self._is_behind = True
        elif self._pending:
            self.wait(_WAIT_S)
        else:
            self.end_of_input()

    def _emit_item(self, name: str, item: Any) -> None:
        stream, values = item if isinstance(item, To) else (Stream.DEFAULT_STREAM_ID, item)
        rows = getattr(values, "num_rows", None)
        ids = [(name, self._count, row) for row in range(1 if rows is None else rows)] if self._tracked else []
        self._pending.update(dict.fromkeys(ids, item))
        if rows is None:
            self.emit(values, tup_id=ids[0] if ids else None, stream=stream)
        else:
            self.emit_batch(values, ids=ids or None, stream=stream)

    def _emit_row(self, key: tuple[str, int, int]) -> None:
        item = self._pending[key]
        stream, values = item if isinstance(item, To) else (Stream.DEFAULT_STREAM_ID, item)
        if hasattr(values, "num_rows"):
            self.emit_batch(values.slice(key[2], 1), ids=[key], stream=stream)
        else:
            self.emit(values, tup_id=key, stream=stream)


# ---- as plain values (pure) -----------------------------------------------------------------
def checked_splits(splits: Iterable[Split]) -> list[Split]:
    """Return the splits as every task and worker gets them, after a round trip through JSON. Raises ConfigError for
    invalid splits.
    """
    return [split_of(line.decode()) for line, _ in split_lines(splits)]


def split_lines(splits: Iterable[Split]) -> list[tuple[bytes, int]]:
    """Return each split as a line of JSON, with its size in bytes. Raises ConfigError for invalid splits."""
    lines: list[tuple[bytes, int]] = []
    names: set[str] = set()
    for split in splits:
        if not isinstance(split, Split):
            raise ConfigError(f"splits() must return Split objects, not {split!r:.100}; use Split(name, bytes, data)")
        if not isinstance(split.name, str) or not split.name or split.name in names:
            raise ConfigError(f"a split needs a unique name, not {split.name!r:.100}; give each split its own name")
        if not isinstance(split.bytes, int) or split.bytes < 0:
            raise ConfigError(f"split {split.name!r:.100} has {split.bytes!r} bytes; give a whole number, 0 or more")
        try:
            line = msgspec.json.encode(split) + b"\n"
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ConfigError(f"split {split.name!r:.100}: name and data must be JSON values ({error})") from None
        if len(line) > SPLIT_BYTES_MAX or len(lines) == SPLITS_MAX:
            limit = f"{SPLITS_MAX} splits of at most {SPLIT_BYTES_MAX} bytes as JSON"
            raise ConfigError(f"split {split.name!r:.100} exceeds the limit of {limit}; divide the input differently")
        names.add(split.name)
        lines.append((line, split.bytes or UNKNOWN_BYTES))
    return lines


def split_of(line: str) -> Split:
    """Return the split that a line of JSON describes."""
    return msgspec.json.decode(line, type=Split)


def done_state(splits: Iterable[Split]) -> dict[tuple[str, int], int]:
    """Return the partitioned state of a stream that begins after these splits."""
    return {(split.name, 0): DONE for split in splits}
