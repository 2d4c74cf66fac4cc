"""What a task remembers over its restarts about tuples that made it fail (F19).

The journal is a small file in the folder of the topology's sockets, so it ends with the topology; the
mark is a page of memory in a file next to it, which survives the death of the process at the cost of a
memory write. Invariants: a damaged file counts as empty; nothing here ever stops a task.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

from heronpy.common.hashing import stable_hash_many
from heronpy.wire.codec import Undecodable

from .poison_charges import TERM_MAX, Charge, Charges
from .tuples import HeronTuple

log = logging.getLogger("heron.instance")

_MARK_BYTES = 8192


def key_of(component: str, tup: HeronTuple) -> str:
    """A key that is the same for the same content from the same place, after a restart, a replay and a rewind."""
    try:
        plain = [value.data if type(value) is Undecodable else value for value in tup.values]
        values = format(stable_hash_many(plain), "x")
    except Exception:
        values = repr(tup.values)
    text = "\0".join((component, tup.component, tup.stream, values))
    return blake2b(text.encode(errors="backslashreplace"), digest_size=8).hexdigest()


def key_of_value(component: str, source: str, stream: str, content: bytes) -> str:
    """The same for one value that is not decoded yet."""
    text = "\0".join((component, source, stream)).encode(errors="backslashreplace")
    return blake2b(text + b"\0\0" + content, digest_size=8).hexdigest()


class Journal:
    """The charges of one task, and what else its next process must know."""

    def __init__(self, path: Path, tries_max: int) -> None:
        self._path = path
        self.charges = Charges(tries_max)
        #: The incarnation that knew why it ended.
        self.spoken = 0
        #: Whether the task looks for a tuple that ended its process; it keeps looking after ends of another kind.
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
            log.warning("%s cannot be read, so tries of poison tuples are counted from zero: %s", self._path, error)

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
            log.warning("%s cannot be written, so tries of poison tuples are forgotten: %s", self._path, error)


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


class Mark:
    """The tuple being processed, recorded for the successor of this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._memory: mmap.mmap | None = None

    def read(self) -> dict[str, Any] | None:
        """What the predecessor was doing when it died; None when it was doing nothing."""
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
            os.ftruncate(descriptor, _MARK_BYTES)
            self._memory = mmap.mmap(descriptor, _MARK_BYTES)
        finally:
            os.close(descriptor)

    @property
    def is_open(self) -> bool:
        return self._memory is not None

    def set(self, key: str, component: str, stream: str, task: int, values: Any, doing: str) -> None:
        """The process is about to do something with these values of a task; `doing` ends with "this tuple"."""
        if self._memory is None:
            return
        place = {"key": key, "component": component, "stream": stream, "task": task, "doing": doing}
        data = json.dumps({**place, "payload": _shown(values)}).encode()
        if len(data) > _MARK_BYTES - 4:
            data = json.dumps({**place, "payload": "too large to be shown"}).encode()[: _MARK_BYTES - 4]
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
