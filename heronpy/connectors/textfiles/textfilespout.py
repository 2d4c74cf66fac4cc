"""A spout that emits the lines of text files, each line once across its tasks.

Under ATLEAST_ONCE it keeps the offsets of the lines in flight and reads failed ones again; memory
is bounded by `textfile.pending_max`. Under EFFECTIVELY_ONCE its position is part of the checkpoint, and
a restored task continues from there; files that are new since the start are read after the others,
those that were read may be gone. It calls `end_of_input` when its share is done and nothing is in
flight. Shares depend on the number of tasks, so the parallelism of this spout must not be changed
while it reads; a restore with another parallelism is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from heronpy.api.api_constants import (
    TOPOLOGY_MAX_SPOUT_PENDING,
    TOPOLOGY_RELIABILITY_MODE,
    TopologyReliabilityMode,
)
from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Stream
from heronpy.api.topology_context import TopologyContext
from heronpy.connectors.textfiles.line_share import (
    BLOCK_BYTES,
    LINE_BYTES_MAX,
    LineBlock,
    LineShare,
    absolute_patterns,
    find_files,
)

#: At the end of its share it waits for acks, which end the input; a fail that comes meanwhile is seen after this.
_ENDING_WAIT_S = 0.05


class TextFileSpout(Spout, StatefulComponent):
    """Emits `[line]`, or `[line, path, offset]` with `textfile.emit_offset`.

    Configuration:

    textfile.paths           a path or glob, or a list of them; required
    textfile.skip_header     true or a number of lines to skip at the start of each file
    textfile.encoding        utf-8
    textfile.decode_errors   strict (an error names file and byte), replace or ignore
    textfile.emit_offset     also emit the path and the byte offset of each line
    textfile.lines_per_call  lines emitted in one next_tuple call at most; 200
    textfile.pending_max     lines in flight at most; 100000, or topology.max.spout.pending if less
    textfile.replays_max     replays of one line before it is given up; 0 means no limit
    textfile.block_bytes     size of the blocks by which files are shared; 256 KiB
    textfile.line_bytes_max  longest line; 32 MiB
    """

    PATHS = "textfile.paths"
    SKIP_HEADER = "textfile.skip_header"
    ENCODING = "textfile.encoding"
    DECODE_ERRORS = "textfile.decode_errors"
    EMIT_OFFSET = "textfile.emit_offset"
    LINES_PER_CALL = "textfile.lines_per_call"
    PENDING_MAX = "textfile.pending_max"
    REPLAYS_MAX = "textfile.replays_max"
    BLOCK_BYTES = "textfile.block_bytes"
    LINE_BYTES_MAX = "textfile.line_bytes_max"

    outputs: list[str | Stream] = ["line"]

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        par: int = 1,
        config: dict[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """As for any spout. Paths are made absolute here, where the topology is submitted."""
        extra = list(optional_outputs or ())
        if config is not None:
            if cls.PATHS in config:
                config = {**config, cls.PATHS: absolute_patterns(config[cls.PATHS])}
            if _flag(config.get(cls.EMIT_OFFSET, False)):
                extra += ["path", "offset"]
        return super().spec(name=name, par=par, config=config, optional_outputs=extra)

    def init_state(self, state: Any) -> None:
        """Keeps the state; `initialize` continues from the position in it."""
        self._state = state

    def pre_save(self, checkpoint_id: str) -> None:
        """Puts the position, the known files and the lines to replay into the state."""
        state = getattr(self, "_state", None)
        if state is None:
            return
        position = self._share.position
        if self._block is not None:
            at = self._block.position
            position = at._replace(lines_done=at.lines_done + self._done)
        state["share"] = self._share.to_state(position)
        state["replay"] = [list(line) for line in (*self._pending, *self._replay)]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Finds the files and this task's share of them."""
        if self.PATHS not in config:
            raise ValueError(
                f"spout {context.get_component_id()} needs {self.PATHS} in its "
                "configuration; give the path or glob of the text files"
            )
        tasks = sorted(context.get_component_tasks(context.get_component_id()) or ())
        self._lines_per_call = _positive(config, self.LINES_PER_CALL, 200)
        self._replays_max = _positive(config, self.REPLAYS_MAX, 0, least=0)
        self._tracked = config.get(TOPOLOGY_RELIABILITY_MODE) == TopologyReliabilityMode.ATLEAST_ONCE
        self._pending_max = _positive(config, self.PENDING_MAX, 100_000)
        spout_pending = int(config.get(TOPOLOGY_MAX_SPOUT_PENDING, 0))
        if spout_pending > 0:
            self._pending_max = min(self._pending_max, spout_pending)
        self._emit_offset = _flag(config.get(self.EMIT_OFFSET, False))
        state = getattr(self, "_state", None)
        restored = state["share"] if state is not None and "share" in state else None
        self._share = LineShare(
            find_files(absolute_patterns(config[self.PATHS]), may_be_gone=restored is not None),
            tasks.index(context.get_task_id()),
            len(tasks),
            encoding=str(config.get(self.ENCODING, "utf-8")),
            decode_errors=str(config.get(self.DECODE_ERRORS, "strict")),
            skip_header=_positive(config, self.SKIP_HEADER, 0, least=0),
            block_bytes=_positive(config, self.BLOCK_BYTES, BLOCK_BYTES),
            line_bytes_max=_positive(config, self.LINE_BYTES_MAX, LINE_BYTES_MAX),
        )
        self._block: LineBlock | None = None
        self._done = 0
        self._pending: dict[tuple[str, int], int] = {}
        self._attempts: dict[tuple[str, int], int] = {}
        self._replay: deque[tuple[str, int]] = deque()
        self._exhausted = False
        self._ended = False
        if restored is not None:
            self._share.restore(restored, f"Spout {context.get_component_id()}")
            self._replay.extend((path, offset) for path, offset in self._state["replay"])

    def next_tuple(self) -> None:
        """Emits failed lines again, then the next lines of the share."""
        if self._ended:
            return
        room = self._lines_per_call
        if self._tracked:
            room = min(room, self._pending_max - len(self._pending))
        while self._replay and room > 0:
            self._emit_again(*self._replay.popleft())
            room -= 1
        while room > 0 and not self._exhausted:
            if self._block is None or self._done == len(self._block.lines):
                self._block = self._share.next_block()
                self._done = 0
                if self._block is None:
                    self._exhausted = True
                    break
            room -= self._emit_lines(self._block, room)
        if self._exhausted:
            self._end_or_wait()

    def _end_or_wait(self) -> None:
        if self._pending or self._replay:
            self.wait(_ENDING_WAIT_S)
        elif not self._ended:
            self._ended = True
            self.end_of_input()

    def ack(self, tup_id: Any) -> None:
        """Forgets a line that was processed; the last one ends the input."""
        self._pending.pop(tup_id, None)
        if self._attempts:
            self._attempts.pop(tup_id, None)
        if self._exhausted and not self._pending:
            self._end_or_wait()

    def fail(self, tup_id: Any) -> None:
        """Has a failed line read and emitted again."""
        if self._pending.pop(tup_id, None) is None:
            return
        attempts = self._attempts.get(tup_id, 0) + 1
        if self._replays_max and attempts > self._replays_max:
            self._attempts.pop(tup_id, None)
            self.logger.error(
                "giving up the line at byte %d of %s after %d replays", tup_id[1], tup_id[0], self._replays_max
            )
            return
        self._attempts[tup_id] = attempts
        self._replay.append(tup_id)

    def close(self) -> None:
        """Closes the open file."""
        self._share.close()

    def _emit_lines(self, block: LineBlock, room: int) -> int:
        begin = self._done
        end = min(begin + room, len(block.lines))
        emit = self.emit
        if not self._tracked and not self._emit_offset:
            for line in block.lines[begin:end]:
                emit([line])
                self._done += 1
            return end - begin
        path = block.path
        for line, offset in zip(block.lines[begin:end], block.offsets[begin:end], strict=True):
            values = [line, path, offset] if self._emit_offset else [line]
            if self._tracked:
                self._pending[path, offset] = 1
                emit(values, tup_id=(path, offset))
            else:
                emit(values)
            self._done += 1
        return end - begin

    def _emit_again(self, path: str, offset: int) -> None:
        line = self._share.line_at(path, offset)
        values = [line, path, offset] if self._emit_offset else [line]
        if self._tracked:
            self._pending[path, offset] = 1
            self.emit(values, tup_id=(path, offset))
        else:
            self.emit(values)


def _positive(config: dict[str, Any], key: str, default: int, least: int = 1) -> int:
    value = config.get(key, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{key} must be a whole number, given: {value!r}") from None
    if number < least:
        raise ValueError(f"{key} must be at least {least}, given: {number}")
    return number


def _flag(value: Any) -> bool:
    return str(value).lower() in ("true", "1")
