"""Poison tuples: decides which tuples are retried, and which are abandoned.

A tuple is identified by its content, so it is recognised after a restart of the task, a replay by its spout and a
rewind to a checkpoint. Each failed try is charged to it in the journal; after `heron.instance.poison_tries` it is a
dead letter and counts as processed, so that other tuples can proceed. poison_charges.py decides which tuple is charged,
and when a charge lapses.

A failed try is found in three ways. An exception is caught where it is raised. executed.py finds a call that lasts too
long. A crash leaves no record of the tuple, so the successor of a crashed process works carefully: it records each
tuple before the call to user code, and skips tuples that have failed too often. This work costs a few microseconds per
tuple, and ends once enough tuples and enough time have passed for the tuple that caused the crash to return. After a
charge without a crash, successful tries are watched for the same time, without recording tuples. A healthy task has no
overhead.

The journal keeps a task's charges across restarts. It is a small file in the folder of the topology's sockets, so it is
removed with the topology. A memory-mapped page in another file records the tuple in progress. The page survives the
death of the process, and costs a memory write per tuple. Invariants: a damaged file counts as empty; no fault of either
file stops a task.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from heronpy.api.user_code import user_traceback
from heronpy.common.hashing import stable_hash_many
from heronpy.procs.exit_reason import ExitReason
from heronpy.task.name import TaskName
from heronpy.task.tuples import DamagedValues, HeronTuple, InBatch, Part
from heronpy.task.user_code import UserCode
from heronpy.wire.codec import Undecodable, Watch

from .dead_letters import DeadLetters
from .memory import release_reserve
from .poison_charges import TERM_MAX, Charge, Charges, may_blame

_RECORD_BYTES = 8192


def key_of(component: str, tup: HeronTuple) -> str:
    """Return the key of the tuple's content and source, which stays the same after a restart, a replay or a rewind."""
    try:
        plain = [value.data if type(value) is Undecodable else value for value in tup.values]
        values = format(stable_hash_many(plain), "x")
    except Exception:
        values = repr(tup.values)
    text = "\0".join((component, tup.component, tup.stream, values))
    return blake2b(text.encode(errors="backslashreplace"), digest_size=8).hexdigest()


def key_of_value(component: str, source: str, stream: str, content: bytes) -> str:
    """Return the key of one value that has not been decoded yet."""
    text = "\0".join((component, source, stream)).encode(errors="backslashreplace")
    return blake2b(text + b"\0\0" + content, digest_size=8).hexdigest()


class Journal:
    """The charges of one task, and other facts for its next process."""

    def __init__(self, path: Path, tries_max: int) -> None:
        self._path = path
        self.charges = Charges(tries_max)
        #: The incarnation that recorded why it ended.
        self.spoken = 0
        #: True if the task looks for a tuple that ended its process. It keeps looking if a process ends for another
        #: reason.
        self.careful = False

    def load(self) -> None:
        try:
            found = json.loads(self._path.read_bytes())
            self.spoken, self.careful = int(found["spoken"]), bool(found["careful"])
            for key, values in found["charges"].items():
                self.charges.keep(str(key), _charge_of(values))
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError) as error:
            self.charges.by_key.clear()
            log.warning("%s cannot be read, so attempts at poison tuples are counted from zero: %s", self._path, error)

    def save(self) -> None:
        draft = self._path.with_name(self._path.name + ".new")
        charges = {key: asdict(charge) for key, charge in self.charges.by_key.items()}
        body = {"spoken": self.spoken, "careful": self.careful, "charges": charges}
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps(body).encode())
            os.replace(draft, self._path)
        except OSError as error:
            log.warning("%s cannot be written, so attempts at poison tuples are not saved: %s", self._path, error)


def _charge_of(values: Any) -> Charge:
    return Charge(
        tries=int(values["tries"]),
        why=str(values["why"]),
        deadly=bool(values["deadly"]),
        letters=int(values["letters"]),
        term=min(max(1, int(values["term"])), TERM_MAX),
        at=float(values["at"]),
        heard={int(task): int(root) for task, root in values["heard"].items()},
    )


class InHand:
    """The tuple being processed, recorded for the successor of this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._memory: mmap.mmap | None = None

    def read(self) -> dict[str, Any] | None:
        """Return the predecessor's record of the tuple in progress when it died; None if there was no such tuple."""
        try:
            data = self._path.read_bytes()
            size = int.from_bytes(data[:4], "little")
            found = json.loads(data[4 : 4 + size]) if size else None
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) and "key" in found else None

    def open(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, _RECORD_BYTES)
            self._memory = mmap.mmap(descriptor, _RECORD_BYTES)
        finally:
            os.close(descriptor)

    @property
    def is_open(self) -> bool:
        return self._memory is not None

    def set(self, key: str, component: str, stream: str, task: int, values: Any, doing: str) -> None:
        """Record what the process is about to do with these values of a task; `doing` ends with "this tuple"."""
        if self._memory is None:
            return
        place = {"key": key, "component": component, "stream": stream, "task": task, "doing": doing}
        data = json.dumps({**place, "payload": _shown(values)}).encode()
        if len(data) > _RECORD_BYTES - 4:
            data = json.dumps({**place, "payload": "too large to be shown"}).encode()[: _RECORD_BYTES - 4]
        self._memory[4 : 4 + len(data)] = data
        self._memory[:4] = len(data).to_bytes(4, "little")

    def clear(self) -> None:
        if self._memory is not None:
            self._memory[:4] = bytes(4)

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        self._path.unlink(missing_ok=True)


def _shown(values: Any) -> str:
    try:
        return repr(values)[:1500]
    except Exception as error:
        return f"not shown: {type(error).__name__}"


log = logging.getLogger("heron.instance")

#: Words for what a process did when it ended.
PROCESSED = "processed this tuple"
DECODED = "decoded a value of this tuple"

#: Number of tuples and of seconds after which careful work ends; both must have passed.
CAREFUL_TUPLES = 50_000
CAREFUL_S = 60.0


class EndsProcessError(Exception):
    """Decoding this value has already killed the allowed number of processes."""

    def __init__(self, charge: Charge) -> None:
        super().__init__(charge.why)
        self.tries = charge.tries


class PoisonGuard:
    """Handles tuples that make a bolt task fail; used by the task's thread."""

    def __init__(
        self,
        name: TaskName,
        folder: str,
        tries_max: int,
        user: UserCode,
        letters: DeadLetters,
        settle: Callable[[HeronTuple], None],
        heard: Callable[[HeronTuple], dict[int, int]],
    ) -> None:
        """`folder` is removed with the topology; `settle` makes a tuple count as processed.

        `heard` returns, for a tuple, the highest root of each spout task that had arrived by then.
        """
        self._name = name
        self.tries_max = tries_max
        self._user = user
        self._mode = user.reliability
        self._letters = letters
        self._settle = settle
        self._heard = heard
        place = Path(folder)
        self._journal = Journal(place / f"instance-{name.task_id}.poison", tries_max)
        self._in_hand = InHand(place / f"instance-{name.task_id}.mark")
        #: Number of tuples that this process has abandoned, by content.
        self._given_up: Counter[str] = Counter()
        #: Replaces the user's `process` while work is careful or watched; else None.
        self.careful: Callable[[HeronTuple], Any] | None = None
        self._careful_left = 0
        self._careful_until = 0.0
        self._begun = False

    # ---- begin and end ------------------------------------------------------------------------

    def begin(self, after: ExitReason | None, asynchronous: bool) -> None:
        """Called before the first tuple; `after` is the reason why the predecessor ended, None without a
        predecessor."""
        if not self.tries_max:
            return
        self._begun = True
        self._journal.load()
        now = time.monotonic()
        suspect = may_blame(after, told=self._journal.spoken >= self._name.epoch - 1)
        found = self._in_hand.read()
        if found is not None and suspect and after is not None:
            self._charge_in_hand(found, after)
        if suspect or self._journal.careful or self._journal.charges.deadly(now):
            try:
                self._in_hand.open()
            except OSError as error:
                log.warning("tuples cannot be recorded, so a tuple that crashes the task is not identified: %s", error)
                return
            self._look_for_it(True)
            log.info("recording each tuple for a while: a tuple may have killed the previous process")
        elif not self._journal.charges.open(now):
            return
        self._careful_left, self._careful_until = CAREFUL_TUPLES, now + CAREFUL_S
        self.careful = self._process_async if asynchronous else self._process

    def _look_for_it(self, careful: bool) -> None:
        if self._journal.careful != careful:
            self._journal.careful = careful
            self._journal.save()

    def _charge_in_hand(self, found: dict[str, Any], after: ExitReason) -> None:
        doing = str(found.get("doing", PROCESSED))
        why = f"the process ended while it {doing}: {after.value.replace('_', ' ')}"
        if self._mode == "ATMOST_ONCE":
            self._letters.bury_unseen(found, why, 1)
            return
        self._journal.charges.charge(str(found["key"]), why, time.monotonic(), deadly=True)
        self._journal.save()

    def end(self) -> None:
        """Record that the process ends normally, so no tuple has killed it."""
        self.careful = None
        if self._begun:
            self._in_hand.close()

    # ---- failures -----------------------------------------------------------------------------

    def raised(self, tup: HeronTuple, error: BaseException) -> bool:
        """Handle an exception that user code raised for a tuple; return True if the tuple is abandoned and the task
        continues."""
        exhausted = isinstance(error, MemoryError)
        if exhausted:
            release_reserve()
        if not self.tries_max:
            return False
        self._in_hand.clear()
        # Without a rewind, the effects of the tuple so far are kept; with a rewind, they must be undone.
        deadly = exhausted or self._mode == "EFFECTIVELY_ONCE"
        return self._failed(tup, user_traceback(error), deadly, raised=not exhausted) and not deadly

    def overran(self, tup: Part, why: str) -> None:
        """Record that a call has lasted too long and the process is about to end. Called by the watchdog's thread."""
        if not self.tries_max:
            return
        if isinstance(tup, InBatch):
            self._one_of(tup, why)
        else:
            self._failed(tup, why, deadly=True)

    def raised_together(self, batch: InBatch, error: BaseException) -> None:
        """Record that user code raised an exception for a batch and the task is about to end."""
        if isinstance(error, MemoryError):
            release_reserve()
        if self.tries_max:
            self._one_of(batch, user_traceback(error))

    def _one_of(self, batch: InBatch, why: str) -> None:
        """Make the next process take the tuples one by one, to find the tuple that makes a batch fail."""
        if len(batch) == 1:
            self._failed(batch.tuples()[0], why, deadly=True)
            return
        self._journal.spoken = self._name.epoch
        self._journal.careful = True
        self._journal.save()
        # It is unknown which of the tuples that are not redelivered were processed.
        text = f"{why}\ncaused by one or more of the {len(batch)} tuples in this batch"
        for tup in batch.tuples() if self._mode != "EFFECTIVELY_ONCE" else ():
            if not self._comes_again(tup):
                self._letters.bury(tup, text, 1)

    def _comes_again(self, tup: HeronTuple) -> bool:
        """Return whether the next process gets the tuple again: after a rewind, or from the spout of its tree."""
        return self._mode == "EFFECTIVELY_ONCE" or (self._mode == "ATLEAST_ONCE" and bool(tup.roots))

    def _failed(self, tup: HeronTuple, why: str, deadly: bool, raised: bool = False) -> bool:
        """Count a failed attempt at a tuple; return True if the tuple is abandoned now or must be skipped next time."""
        if not self._comes_again(tup):
            self._letters.bury(tup, why, 1)
            self._journal.spoken = self._name.epoch
            self._journal.save()
            return False
        key = key_of(self._name.component, tup)
        charges, now = self._journal.charges, time.monotonic()
        if raised:
            charge = charges.raised(key, why, now, deadly=deadly, roots=tup.roots, heard=self._heard(tup))
        else:
            charge = charges.charge(key, why, now, deadly=deadly)
        over = charge.tries >= self.tries_max
        if deadly or not over:
            # The process ends with this; a process that continues may still end without a report.
            self._journal.spoken = self._name.epoch
        self._journal.save()
        if not over:
            return False
        if not deadly:
            self._give_up(tup, charge, key)
            if not charge.deadly:
                charges.spend(key)
                self._journal.save()
        return True

    def _give_up(self, tup: HeronTuple, charge: Charge, key: str, why: str = "", tries: int = 0) -> None:
        """Abandon a tuple with the content of `charge`, and count it as processed.

        `why` and `tries`, if given, are more precise than the charge.
        """
        self._given_up[key] += 1
        # After a rewind, the same tuple arrives again. Under ATLEAST_ONCE, another tuple of this content may arrive, or
        # the same tuple if its spout missed the ack. Two letters of one tuple are better than none of another.
        known = self._mode == "EFFECTIVELY_ONCE" and self._given_up[key] <= charge.letters
        self._letters.bury(tup, why or charge.why, max(1, tries or charge.tries), known)
        if not known:
            charge.letters += 1
            self._journal.save()
        self._settle(tup)

    def abandon(self, tup: HeronTuple, why: str) -> None:
        """Write a dead letter for a tuple that the bolt can never process, and ack the tuple."""
        self._letters.bury(tup, why, 1)
        self._settle(tup)

    # ---- tuples that cannot be decoded --------------------------------------------------------

    def sparing(self, process: Callable[[HeronTuple], Any]) -> Callable[[HeronTuple], Any]:
        """Return `process`, wrapped so that damaged tuples are abandoned instead."""

        def given(tup: HeronTuple) -> None:
            if type(tup.values) is DamagedValues:
                self.bury_damaged(tup, tup.values)
            else:
                process(tup)

        return given

    def bury_damaged(self, tup: HeronTuple, values: DamagedValues) -> None:
        """Abandon a tuple with a value that cannot be decoded, because no process can decode it."""
        error = values.error
        why = f"a value of this tuple could not be decoded\n{user_traceback(error)}"
        self._letters.count_damaged(lost=not self.tries_max)
        if not self.tries_max:
            log.error("abandoned a tuple from %s/%s that cannot be decoded: %s", tup.component, tup.stream, error)
            self._settle(tup)
            return
        key = key_of(self._name.component, tup)
        charge = self._journal.charges.by_key.pop(key, None) or Charge(at=time.monotonic())
        self._journal.charges.keep(key, charge)
        self._give_up(tup, charge, key, why, error.tries if isinstance(error, EndsProcessError) else 0)

    def watch_decoding(self, component: str, stream: str, task: int) -> Watch | None:
        """Return the decoder of this source's values while the task looks for a tuple that kills the process."""
        if self.careful is None or not self._in_hand.is_open:
            return None

        def watched(content: bytes, decode: Callable[[], Any]) -> Any:
            key = key_of_value(self._name.component, component, stream, content)
            charge = self._journal.charges.leaves_out(key, self._given_up[key], time.monotonic())
            if charge is not None:
                self._given_up[key] += 1
                return Undecodable(content, EndsProcessError(charge))
            self._in_hand.set(key, component, stream, task, content, DECODED)
            try:
                return decode()
            finally:  # after any exception the process continues
                self._in_hand.clear()
                if self._journal.charges.acquit(key):
                    self._journal.save()

        return watched

    # ---- careful work -------------------------------------------------------------------------

    def _process(self, tup: HeronTuple) -> None:
        key = self.admit(tup)
        if key:
            self._user.object.process(tup)
            self.passed(key)

    async def _process_async(self, tup: HeronTuple) -> None:
        key = self.admit(tup)
        if key:
            processing: Awaitable[None] = self._user.object.process(tup)
            await processing
            self.passed(key)

    def admit(self, tup: HeronTuple) -> str:
        """Record the tuple as in progress. Returns its key, or "" if it has failed too often and is abandoned."""
        key = key_of(self._name.component, tup)
        charge = self._journal.charges.leaves_out(key, self._given_up[key], time.monotonic())
        if charge is not None:
            self._give_up(tup, charge, key)
            return ""
        self._in_hand.set(key, tup.component, tup.stream, tup.task, tup.values, PROCESSED)
        return key

    def passed(self, key: str) -> None:
        """Record that the tuple with this key was processed."""
        self._in_hand.clear()
        if self._journal.charges.acquit(key):
            self._journal.save()
        self._careful_left -= 1
        if self._careful_left <= 0 and time.monotonic() >= self._careful_until:
            self.careful = None
            self._look_for_it(False)
            log.info("no longer recording each tuple")
