"""A spout that emits the lines of text files, each line once across its tasks.

Under ATLEAST_ONCE it keeps the offsets of the lines in flight and reads failed lines again;
`textfile.pending_max` bounds the memory. Under EFFECTIVELY_ONCE its positions are part of the checkpoint, and
a restored task continues from there.

Without `textfile.follow` it reads the files that exist when it starts, by lanes (see
`heronpy.connectors.textfiles.line_share`). A restored task also reads new files; files that were read
completely need not exist any more. It calls `end_of_input` when its share is done and nothing is in flight.

With `textfile.follow` it reads files as they appear, grow and are rotated, and does not end; see
`heronpy.connectors.textfiles.following`. The first line of a file decides which task reads it.

`heron update` may change the number of tasks while the spout reads. Under EFFECTIVELY_ONCE lanes and files move to
other tasks with their positions, and no line is lost or duplicated. In the other modes positions do not move and do not
outlive a task. A lane or file that moves to another task is read again from its beginning, and no line is lost.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from heronpy.api.api_constants import TOPOLOGY_MAX_SPOUT_PENDING, TOPOLOGY_RELIABILITY_MODE, TopologyReliabilityMode
from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.api.metrics import MultiAssignableMetrics
from heronpy.api.spout.base_spout import Backlog
from heronpy.api.spout.spout import Spout
from heronpy.api.state.state import HashMapState
from heronpy.api.state.stateful_component import StatefulComponent, refuse_old_state
from heronpy.api.stream import Stream
from heronpy.api.topology_context import TopologyContext
from heronpy.connectors.textfiles.decoding import LineDecoder, TextFileError
from heronpy.connectors.textfiles.following import FORGET_S, FollowedBlock, Follower
from heronpy.connectors.textfiles.line_share import LineBlock, LineShare, absolute_patterns, find_files
from heronpy.growing.chunks import BLOCK_BYTES, LINE_BYTES_MAX
from heronpy.growing.patterns import parse
from heronpy.growing.scan import INTERVAL_S

#: Interval in seconds at which the spout notices fails at the end of its share, where it waits for acks.
_ENDING_WAIT_S = 0.05
_DAY_S = 86400.0


class TextFileOptions(Struct, frozen=True):
    """The options of a TextFileSpout, whose docstring describes the keys."""

    paths: list[str]
    skip_header: int
    encoding: str
    decode_errors: str
    emit_offset: bool
    lines_per_call: int
    pending_max: int
    replays_max: int
    block_bytes: int
    line_bytes_max: int
    follow: bool
    scan_s: float
    forget_s: float

    @classmethod
    def from_config(cls, config: dict[str, Any], component: str) -> TextFileOptions:
        """Return the options in a configuration. Raises ValueError or TypeError, which name the problem."""
        keys = TextFileSpout
        if keys.PATHS not in config:
            raise ValueError(
                f"spout {component} needs {keys.PATHS} in its configuration; give the path or glob of the text files"
            )
        pending_max = _positive(config, keys.PENDING_MAX, 100_000)
        spout_pending = int(config.get(TOPOLOGY_MAX_SPOUT_PENDING, 0))
        follow = flag(config.get(keys.FOLLOW, False))
        paths = absolute_patterns(config[keys.PATHS])
        if follow:
            check_followed(paths)
        return cls(
            paths=paths,
            skip_header=_positive(config, keys.SKIP_HEADER, 0, least=0),
            encoding=str(config.get(keys.ENCODING, "utf-8")),
            decode_errors=str(config.get(keys.DECODE_ERRORS, "strict")),
            emit_offset=flag(config.get(keys.EMIT_OFFSET, False)),
            lines_per_call=_positive(config, keys.LINES_PER_CALL, 200),
            pending_max=min(pending_max, spout_pending) if spout_pending > 0 else pending_max,
            replays_max=_positive(config, keys.REPLAYS_MAX, 0, least=0),
            block_bytes=_positive(config, keys.BLOCK_BYTES, BLOCK_BYTES),
            line_bytes_max=_positive(config, keys.LINE_BYTES_MAX, LINE_BYTES_MAX),
            follow=follow,
            scan_s=_amount(config, keys.SCAN_S, INTERVAL_S),
            forget_s=_amount(config, keys.FORGET_DAYS, FORGET_S / _DAY_S) * _DAY_S,
        )


def check_followed(paths: list[str]) -> None:
    """Raise ValueError if a pattern cannot be followed."""
    for path in paths:
        parse(path)


def flag(value: Any) -> bool:
    """Whether a configuration value is true: True, "true" or 1."""
    return str(value).lower() in ("true", "1")


def _positive(config: dict[str, Any], key: str, default: int, least: int = 1) -> int:
    value = config.get(key, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{key} must be a whole number, given: {value!r}") from None
    if number < least:
        raise ValueError(f"{key} must be at least {least}, given: {number}")
    return number


def _amount(config: dict[str, Any], key: str, default: float) -> float:
    value = config.get(key, default)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{key} must be a number, given: {value!r}") from None
    if not 0 < number < math.inf:
        raise ValueError(f"{key} must be more than 0, given: {value}")
    return number


class TextFileSpout(Spout, StatefulComponent):
    """Emits `[line]`, or `[line, path, offset]` with `textfile.emit_offset`.

    Configuration:

    textfile.paths           a path or glob, or a list of paths and globs; required
    textfile.skip_header     true or a number of lines to skip at the start of each file
    textfile.encoding        utf-8
    textfile.decode_errors   strict (an error names file and byte), replace or ignore
    textfile.emit_offset     also emit the path and the byte offset of each line
    textfile.lines_per_call  maximum number of lines emitted in one next_tuple call; 200
    textfile.pending_max     maximum number of lines in flight; 100000, or topology.max.spout.pending if less
    textfile.replays_max     replays of one line before it is skipped; 0 means no limit
    textfile.block_bytes     size of the blocks in which files are divided; 256 KiB
    textfile.line_bytes_max  longest line; 32 MiB
    textfile.follow          true: do not end, but follow new files, growth and rotation; false
    textfile.scan_s          with follow: seconds between two scans of the files; 0.5, more for very many files
    textfile.forget_days     with follow: days after which a deleted file is forgotten; 7

    With `follow`, `textfile.block_bytes` is the number of bytes read from one file before the next file.
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
    FOLLOW = "textfile.follow"
    SCAN_S = "textfile.scan_s"
    FORGET_DAYS = "textfile.forget_days"

    #: Metric with `follow`: number of files, and waiting bytes by reason.
    METRIC = "text-files"
    #: Partitioned states: lane to position; first line of followed files to the facts known about these files.
    LANES, FOLLOWED = "text-lanes", "text-followed"

    outputs: list[str | Stream] = ["line"]

    @classmethod
    def spec(
        cls,
        name: str | None = None,
        par: int = 1,
        config: dict[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Declare this spout; see `Spout.spec`. Paths are made absolute on the host where the topology is submitted."""
        extra = list(optional_outputs or ())
        if config is not None:
            if cls.PATHS in config:
                config = {**config, cls.PATHS: absolute_patterns(config[cls.PATHS])}
                if flag(config.get(cls.FOLLOW, False)):
                    check_followed(config[cls.PATHS])
            if flag(config.get(cls.EMIT_OFFSET, False)):
                extra += ["path", "offset"]
        return super().spec(name=name, par=par, config=config, optional_outputs=extra)

    def init_state(self, state: HashMapState) -> None:
        """Refuse positions from another release; this release keeps positions in partitioned state."""
        refuse_old_state(state, type(self).__name__)

    def pre_save(self, checkpoint_id: str) -> None:
        """Put the positions and the known files into the state."""
        if self._follower is None:
            self._share.keep(self._done)
        else:
            self._follower.keep(self._done, self._state, self._options.skip_header)

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Find the files and this task's share of them."""
        self._context = context
        self._options = TextFileOptions.from_config(config, context.get_component_id())
        self._tracked = config.get(TOPOLOGY_RELIABILITY_MODE) == TopologyReliabilityMode.ATLEAST_ONCE
        self._block: LineBlock | FollowedBlock | None = None
        self._done = 0
        #: A line is identified by its offset and its file: a path, or a number if files are followed.
        self._pending: dict[tuple[str | int, int], int] = {}
        self._attempts: dict[tuple[str | int, int], int] = {}
        self._replay: deque[tuple[str | int, int]] = deque()
        self._exhausted = False
        self._ended = False
        self._tasks = self._reader()
        owner = f"Spout {context.get_component_id()}"
        follow = self._options.follow
        self._state = context.partitioned_state(self.FOLLOWED if follow else self.LANES)
        if context.partitioned_state(self.LANES if follow else self.FOLLOWED):
            change = "without %s; remove it" if follow else "with %s; set it"
            raise TextFileError(f"{owner} was checkpointed {change % self.FOLLOW}, or start without the checkpoint")
        self._follower = self._follow(owner) if follow else None
        if self._follower is None:
            self._share = self._share_of(owner)

    def _share_of(self, owner: str) -> LineShare:
        """Return this task's share of the files that exist now or existed at the checkpoint."""
        given = self._options
        return LineShare(
            find_files(given.paths, may_be_gone=bool(self._state) or self._context.attempt > 1),
            self._state.own,
            self._state,
            owner=owner,
            encoding=given.encoding,
            decode_errors=given.decode_errors,
            skip_header=given.skip_header,
            block_bytes=given.block_bytes,
            line_bytes_max=given.line_bytes_max,
        )

    def _follow(self, owner: str) -> Follower:
        given = self._options
        follower = Follower(
            [parse(path) for path in given.paths],
            LineDecoder(given.encoding, given.decode_errors),
            header_lines=given.skip_header,
            block_bytes=given.block_bytes,
            line_bytes_max=given.line_bytes_max,
            scan_s=given.scan_s,
            forget_s=given.forget_s,
        )
        headers = follower.restore(self._state)
        if headers - {given.skip_header}:
            raise TextFileError(
                f"{owner} has {given.skip_header} header lines, but its positions were saved with {max(headers)};"
                f" restore with {max(headers)} header lines"
            )
        self._figures = MultiAssignableMetrics()
        self._context.register_metric(self.METRIC, self._figures, 10)
        return follower

    def _reader(self) -> tuple[int, int]:
        """Return this task's index among the readers (-1 if no longer in the plan), and the number of readers."""
        tasks = sorted(self._context.get_component_tasks(self._context.get_component_id()) or ())
        task = self._context.get_task_id()
        return (tasks.index(task) if task in tasks else -1), max(1, len(tasks))

    def backlog(self) -> Backlog:
        """Return the bytes that this task has yet to read; with `follow`, as of the last scan of the files."""
        return Backlog(bytes=self._share.bytes_left() if self._follower is None else self._follower.backlog_bytes)

    def next_tuple(self) -> None:
        """Emit failed lines again, then the next lines of the share."""
        if self._follower is None and self._tasks != (place := self._reader()):
            # The number of tasks has changed. With checkpoints each task restarts instead.
            self._tasks = place
            self._share.divide()
            self._exhausted = self._ended = False
        if self._ended:
            return
        if self._follower is not None:
            self._attend(self._follower)
        room = self._options.lines_per_call
        if self._tracked:
            room = min(room, self._options.pending_max - len(self._pending))
        for _ in range(min(room, len(self._replay))):
            room -= self._emit_again(*self._replay.popleft())
        while room > 0 and not self._exhausted:
            if self._block is None or self._done == len(self._block.lines):
                self._block = self._next_block()
                self._done = 0
                if self._block is None:
                    break
            room -= self._emit_lines(self._block, room)
        if self._exhausted:
            self._end_or_wait()
        elif self._follower is not None and self._block is None:
            self.wait(self._follower.wait_s(time.monotonic()))

    def _next_block(self) -> LineBlock | FollowedBlock | None:
        if self._follower is not None:
            return self._follower.next_block()
        block = self._share.next_block()
        self._exhausted = block is None
        return block

    def _attend(self, follower: Follower) -> None:
        now = time.monotonic()
        if now < follower.due:
            return
        follower.attend(now, *self._reader())
        for key, value in follower.figures().items():
            self._figures.update(key, value)
        for notice in follower.notices():
            if notice.is_error:
                self.report_error(TextFileError(notice.text))
            else:
                self.log(notice.text, "warn")

    def _end_or_wait(self) -> None:
        if self._pending or self._replay:
            self.wait(_ENDING_WAIT_S)
        elif not self._ended:
            self._ended = True
            self.end_of_input()

    def ack(self, tup_id: Any) -> None:
        """Stop tracking a processed line; the last line ends the input."""
        self._pending.pop(tup_id, None)
        if self._attempts:
            self._attempts.pop(tup_id, None)
        if self._exhausted and not self._pending:
            self._end_or_wait()

    def fail(self, tup_id: Any) -> None:
        """Queue a failed line to be read and emitted again."""
        if self._pending.pop(tup_id, None) is None:
            return
        attempts = self._attempts.get(tup_id, 0) + 1
        if self._options.replays_max and attempts > self._options.replays_max:
            self._attempts.pop(tup_id, None)
            self.logger.error(
                "skipping the line at byte %d of %s, which has failed after %d replays",
                tup_id[1],
                self._name(tup_id[0]),
                self._options.replays_max,
            )
            return
        self._attempts[tup_id] = attempts
        self._replay.append(tup_id)

    def close(self) -> None:
        if self._follower is None:
            self._share.close()

    def _emit_lines(self, block: LineBlock | FollowedBlock, room: int) -> int:
        begin = self._done
        end = min(begin + room, len(block.lines))
        emit = self.emit
        if not self._tracked and not self._options.emit_offset:
            for line in block.lines[begin:end]:
                emit([line])
                self._done += 1
            return end - begin
        path, ref, emit_offset = block.path, block.ref, self._options.emit_offset
        for line, offset in zip(block.lines[begin:end], block.offsets[begin:end], strict=True):
            values = [line, path, offset] if emit_offset else [line]
            if self._tracked:
                self._pending[ref, offset] = 1
                emit(values, tup_id=(ref, offset))
            else:
                emit(values)
            self._done += 1
        return end - begin

    def _emit_again(self, ref: str | int, offset: int) -> int:
        line = self._line_at(ref, offset)
        if line is None:
            return 0
        values = [line, self._name(ref), offset] if self._options.emit_offset else [line]
        if self._tracked:
            self._pending[ref, offset] = 1
            self.emit(values, tup_id=(ref, offset))
        else:
            self.emit(values)
        return 1

    def _line_at(self, ref: str | int, offset: int) -> str | None:
        """Read a line again; None if another task emits it, or it can no longer be read."""
        if self._follower is None:
            return self._share.line_at(str(ref), offset)
        try:
            line = self._follower.line_at(int(ref), offset)
        except (LookupError, TextFileError) as error:
            self._attempts.pop((ref, offset), None)
            if isinstance(error, TextFileError):
                self.report_error(error)
            return None
        if line is None:
            self._replay.append((ref, offset))
        return line

    def _name(self, ref: str | int) -> str:
        return str(ref) if self._follower is None else self._follower.path_of(int(ref))
