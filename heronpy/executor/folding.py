"""Converts stacks printed by py-spy or the interpreter into messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

from heronpy.views.evidence import Profile, Row, WeightedStack

#: Maximum bytes of an answer with stacks; the stacks with the lowest weights are omitted.
ANSWER_MAX_BYTES = 1 << 20
FRAME_MAX, DEPTH_MAX, LINE_MAX = 200, 200, 1000
#: Frames below a frame of this file belong to the process that forked this one.
FORK_LOOP = "heronpy/procs/fork_loop.py"
#: The interpreter's output about its threads; all other text in a log is ignored.
_PRINTED = re.compile(
    r'(Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):|  File ".*", line \d+ in .*|  \.\.\.|  <.*>'
)
#: The innermost frame of a thread that waits in the runtime or the interpreter.
_WAITS = re.compile(
    r"(.*\.)?(wait \(.*threading|wait_for_tstate_lock \(.*threading|(select|poll) \(.*selectors|poll \(sugar/poll)"
    r"\.py:\d+\)"
)
_FRAME = re.compile(r"(?P<function>.*) \((?P<file>[^()]*?)(?P<line>:\d+)?\)")


def printed_stacks(text: str) -> str:
    """The stacks that the interpreter printed into a log, without frames from the parent that forked the process."""
    found: list[str] = []
    inherited = False
    for line in text.splitlines():
        if not _PRINTED.fullmatch(line):
            continue
        if not line.startswith(" "):
            inherited = False
            if found:
                found.append("")
        inherited = inherited or FORK_LOOP in line
        if not inherited:
            found.append(line[:LINE_MAX])
    return "".join(f"{line}\n" for line in found)


def folded(text: str, rate: int, idle: bool) -> list[Row]:
    """Parse the output of `py-spy record --format raw`: frames joined by `;`, a space, and the number of samples.

    Waiting threads are omitted unless `idle` is set, although py-spy considers some of them running.
    """
    rows = []
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if stack and count.isdecimal():
            frames = [_short(frame) for frame in stack.split(";")]
            own = max((number for number, frame in enumerate(frames, 1) if "(procs/fork_loop.py" in frame), default=0)
            if own < len(frames) and (idle or not _WAITS.fullmatch(frames[-1])):
                rows.append((tuple(frames[own:]), int(count) / rate))
    return rows


def _short(frame: str) -> str:
    match = _FRAME.fullmatch(frame)
    if match is None:
        return frame
    return f"{match['function']} ({'/'.join(PurePath(match['file']).parts[-2:])}{match['line'] or ''})"


def profile_of(rows: Iterable[Row], sampler: str, note: str, max_bytes: int = ANSWER_MAX_BYTES) -> Profile:
    """A profile of the most expensive stacks, up to `max_bytes`; `left_out_s` is the time of all other stacks."""
    found = Profile(frames=[], stacks=[], seconds=0.0, left_out_s=0.0, sampler=sampler, note=note)
    numbers: dict[str, int] = {}
    used = 0
    for stack, seconds in sorted(rows, key=lambda row: -row[1]):
        found.seconds += seconds
        names = [frame[:FRAME_MAX] for frame in stack[-DEPTH_MAX:]]
        used += 32 + 5 * len(names) + sum(len(name.encode()) + 5 for name in set(names) if name not in numbers)
        if used > max_bytes:
            found.left_out_s += seconds
            continue
        for name in names:
            if name not in numbers:
                numbers[name] = len(numbers)
                found.frames.append(name)
        found.stacks.append(WeightedStack(stack=[numbers[name] for name in names], seconds=seconds))
    return found
