"""A tiny runtime for one two-phase sink: checkpoints, restores, and crashes or stops at named points.

Each incarnation of the task is a forked process that ends by `os._exit` where it is told to, so nothing
is tidied up; or it stops there by SIGSTOP, and goes on after its successors have done all the work. What
survives is what the real runtime keeps: the complete checkpoints, the checkpoint ids and attempts given
out. The source is a counter whose position is part of the checkpoint.
"""

from __future__ import annotations

import logging
import os
import pickle
import random
import signal
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from heronpy.api.batch import Batch
from heronpy.api.state.state import HashMapState
from heronpy.common.errors import FencedError, StateError
from heronpy.storage.objects.port import ObjectsError

#: Runs per crash point, when somebody asks for more or fewer than a test takes; F07 asks for 20.
RUNS = int(os.environ.get("HERON_FAULT_RUNS", "0"))
Tup = namedtuple("Tup", "id values")
CRASHED = 77
FENCED = 78
#: Where F07 asks for a crash.
POINTS = ("before_prepare", "during_prepare", "after_prepare", "after_record", "during_publish", "after_publish",
          "during_ack")  # fmt: skip


class Delegate:
    logger = logging.getLogger("sink")

    def __init__(self) -> None:
        self.acked: list[Any] = []
        self.failed: list[Any] = []
        self.lines: list[str] = []
        self.on_ack: Callable[[], None] = lambda: None

    def ack(self, tup: Any) -> None:
        self.on_ack()
        # The first ack or fail of a tuple wins.
        tuples = tup if isinstance(tup, Batch) else [tup]
        self.acked += [one.id for one in tuples if one.id not in self.failed]

    def fail(self, tup: Any) -> None:
        self.failed.append(tup.id)

    def abandon(self, tup: Any, why: str) -> None:
        self.failed.append(tup.id)
        self.lines.append(why)

    def log(self, message: str, level: str | None = None) -> None:
        self.lines.append(message)

    def wait_outside(self, outage: str, pause_s: float) -> None:
        """What the runtime does while user code waits; tests replace it."""


class Context:
    def __init__(self, attempt: int = 0, component: str = "store", task: int = 7, topology_id: str = "T-1") -> None:
        self.attempt, self._component, self._task, self._topology_id = attempt, component, task, topology_id

    def get_component_id(self) -> str:
        return self._component

    def get_task_id(self) -> int:
        return self._task

    def get_component_tasks(self, component: str) -> list[int]:
        return [self._task - 1, self._task]

    def get_sources(self, component: str) -> None:
        return None

    def get_topology_id(self) -> str:
        return self._topology_id

    def register_metric(self, name: str, metric: Any, bucket: float) -> None:
        self.metric = metric


#: The state that each sink was started with; the sink changes it in place.
_STATES: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def state_of(sink: Any) -> Any:
    """The state of a sink, as a checkpoint would save it."""
    return _STATES[sink]


def start(sink_class: type, config: dict[str, Any], attempt: int, state: Any = None, checkpoint: int = 0,
          topology_id: str = "T-1") -> Any:  # fmt: skip
    """A sink task of this attempt, restored."""
    sink = sink_class(Delegate())
    given = HashMapState() if state is None else state
    sink.init_state(given)
    _STATES[sink] = given
    sink.pre_restore(str(checkpoint))
    config = {**config, "topology.reliability.mode": "EFFECTIVELY_ONCE"}
    sink.initialize(config, Context(attempt, topology_id=topology_id))
    return sink


def checkpoint(sink: Any, number: int) -> None:
    """A checkpoint that all tasks complete."""
    sink.pre_save(str(number))
    sink.post_save(str(number))


class Crash:
    """Ends (or stops) the process at the `visits`-th visit of a point; also inside renames, before or after one."""

    def __init__(self, point: str, visits: int, chance: random.Random, stop: bool = False) -> None:
        self.point, self.visits, self.stop = point, visits, stop
        self._chance = chance
        self._inside = ""

    def install(self) -> None:
        """Come between the process and its renames; only in the process that is to crash."""
        self._rename = os.rename
        os.rename = self._renamed  # type: ignore[assignment]

    def at(self, point: str) -> None:
        if point == self.point:
            self.visits -= 1
            if self.visits == 0 and self.stop:
                os.kill(os.getpid(), signal.SIGSTOP)
            elif self.visits <= 0 and not self.stop:
                os._exit(CRASHED)

    def inside(self, point: str, call: Callable[[], None]) -> None:
        self._inside = point
        call()
        self._inside = ""

    def _renamed(self, source: Any, target: Any) -> None:
        is_before = self._chance.random() < 0.5
        if is_before and self._inside:
            self.at(self._inside)
        self._rename(source, target)
        if not is_before and self._inside:
            self.at(self._inside)


class Harness:
    """Runs a sink over `rows` rows until all of them are in a complete checkpoint and committed."""

    def __init__(self, folder: Path, sink_class: type, config: dict[str, Any], seed: int, rows: int,
                 row: Callable[[int], list[Any]], between: Callable[[], None] = lambda: None) -> None:  # fmt: skip
        self.folder, self.sink_class, self.config = folder, sink_class, config
        self.seed, self.rows, self.row, self.between = seed, rows, row, between
        folder.mkdir(exist_ok=True)

    def feed(self, sink: Any, positions: range) -> None:
        """Give the sink the rows at these positions of the source."""
        for position in positions:
            sink.process(Tup(position, self.row(position)))

    def run_until_done(self, point: str, crashes: int = 2) -> int:
        """How many times the task crashed at the point, which it may pass fewer than `crashes` times."""
        chance = random.Random(f"{self.seed}-{point}")
        crashed = 0
        for _ in range(crashes + 1):
            visits = chance.randint(1, 3) if crashed < crashes else 1 << 30
            code = os.waitstatus_to_exitcode(os.waitpid(self._fork(Crash(point, visits, chance), chance), 0)[1])
            if code == 0:
                return crashed
            assert code == CRASHED, f"the sink raised or hung: {code}"
            crashed += 1
            chance = random.Random(f"{self.seed}-{point}-{crashed}")
        raise AssertionError("the last incarnation crashed without being told to")

    def run_with_a_zombie(self, point: str) -> str:
        """Stop an incarnation at the point, let successors do all, and let it go on: how it ended.

        "unstopped" when it passed the point too few times, "fenced" when it noticed, "done" when it did not.
        """
        chance = random.Random(f"{self.seed}-{point}-zombie")
        pid = self._fork(Crash(point, chance.randint(1, 3), chance, stop=True), chance)
        status = os.waitpid(pid, os.WUNTRACED)[1]
        if not os.WIFSTOPPED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            return "unstopped"
        try:
            self.run_until_done("nowhere", crashes=0)
        finally:
            os.kill(pid, signal.SIGCONT)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return {0: "done", FENCED: "fenced"}[code]

    def _fork(self, crash: Crash, chance: random.Random) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            signal.alarm(100)
            crash.install()
            self._incarnation(crash, chance)
            code = 0
        except FencedError:
            code = FENCED
        except BaseException:
            logging.exception("incarnation")
        finally:
            os._exit(code)

    def _incarnation(self, crash: Crash, chance: random.Random) -> None:
        attempt = self._take_number("attempt")
        checkpoint, state, position = self._last_complete()
        sink = start(self.sink_class, self.config, attempt, state, checkpoint)
        while position < self.rows or not self._is_complete(position):
            count = min(chance.randint(0, 9), self.rows - position)
            self.feed(sink, range(position, position + count))
            position += count
            if position == self.rows and hasattr(sink, "finish"):
                sink.finish()
            self.between()
            number = self._take_number("checkpoint")
            crash.at("before_prepare")
            crash.inside("during_prepare", lambda n=str(number): sink.pre_save(n))
            crash.at("after_prepare")
            if chance.random() < 0.25:
                continue  # Another task declined it: aborted, and the attempt goes on.
            if not self._complete(number, state_of(sink), position, attempt):
                continue
            crash.at("after_record")
            crash.inside("during_publish", lambda n=str(number): sink.post_save(n))
            crash.at("after_publish")
            if chance.random() < 0.2:
                sink.post_save(str(number))
            sink.delegate.on_ack = lambda: crash.at("during_ack")
        crash.at("during_ack")

    # -- what the runtime keeps ---------------------------------------------------------------

    def _take_number(self, what: str) -> int:
        path = self.folder / what
        number = int(path.read_text()) + 1 if path.exists() else 1
        path.write_text(str(number))
        return number

    def _complete(self, number: int, state: Any, position: int, attempt: int) -> bool:
        """Record a checkpoint; of an attempt that was replaced none is ever complete."""
        if attempt != int((self.folder / "attempt").read_text()):
            return False
        draft = self.folder / "draft"
        draft.write_bytes(pickle.dumps((number, state, position)))
        os.replace(draft, self.folder / "complete")
        return True

    def _last_complete(self) -> tuple[int, Any, int]:
        path = self.folder / "complete"
        number, state, position = pickle.loads(path.read_bytes()) if path.exists() else (0, HashMapState(), 0)
        return number, state, position

    def _is_complete(self, position: int) -> bool:
        return self._last_complete()[2] == position


def fails_for_good(sink: Any, monkeypatch: pytest.MonkeyPatch, feed: Callable[[int], None]) -> None:
    """A disk that refuses makes the checkpoint fail; the runtime may go on, and then the sink must not."""
    feed(1)

    def refuse(fd: int) -> None:
        raise OSError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises((OSError, ObjectsError)):
            sink.pre_save("1")
    for call in (lambda: feed(2), lambda: sink.pre_save("2"), lambda: sink.process_tick(None)):
        with pytest.raises(StateError, match=f"{type(sink).__name__} store could not prepare a checkpoint"):
            call()
