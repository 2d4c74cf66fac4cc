"""Keyed state: a mapping whose changes are saved, and whose keys move with their tuples when tasks are added.

`context.keyed_state(name)` returns one. Each task holds the keys of its own key groups. A key counts as
changed when it is written or deleted, and also when a value that could be changed in place (a list, an
object) is read: so `state[word].append(x)` is saved, but a list that is kept elsewhere and changed later,
without being read from the state again, is not.

While a checkpoint reads the state beside the running task, the first change of a key after the cut saves
its old value (`Cut.save`), and only then changes it. So the cut costs no copy, and the reader sees
the state at the cut. The writer saves *before* it writes, the reader checks for a saved value *after* it has read.
"""

from __future__ import annotations

import datetime
import decimal
import time
import uuid
from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from typing import Any, Final

from msgspec import Struct

from heronpy.common.errors import HeronError, TopologyError
from heronpy.common.hashing import stable_hash, stable_hash_many
from heronpy.plan.grouping import group_range, key_group_of_hash, task_index
from heronpy.wire.codec import PLAIN, freeze

ABSENT: Final = object()
#: Expired keys that one write removes, so that memory is freed without a pause.
_PURGE_PER_WRITE: Final = 2
_FIXED: Final = PLAIN | {
    complex,
    range,
    datetime.date,
    datetime.datetime,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    uuid.UUID,
}


def _cannot_change(value: Any) -> bool:
    """Whether a value certainly cannot be changed in place."""
    kind = type(value)
    if kind in _FIXED:
        return True
    return (kind is tuple or kind is frozenset) and all(map(_cannot_change, value))


class KeyOwner(Struct, frozen=True):
    """Whose keys a keyed state holds: those of one task of a component."""

    component: str
    index: int
    parallelism: int
    key_groups: int
    width: int = 1
    """Number of fields that the component's input is grouped by; with several, keys are tuples of them."""

    def group_of(self, key: Any) -> int:
        """The key group of a key, as the fields grouping computes it."""
        if self.width <= 1:
            return key_group_of_hash(stable_hash(key), self.key_groups)
        if not isinstance(key, tuple) or len(key) != self.width:
            raise TopologyError(
                f"key {key!r} is not a tuple of {self.width} values; component {self.component} is grouped by"
                f" {self.width} fields, so its keyed state needs keys of that length"
            )
        return key_group_of_hash(stable_hash_many(key), self.key_groups)

    def owns(self, group: int) -> bool:
        """Whether the task owns a key group."""
        return task_index(group, self.parallelism, self.key_groups) == self.index

    @property
    def groups(self) -> range:
        """The key groups of the task."""
        return group_range(self.index, self.parallelism, self.key_groups)


class KeyedState(MutableMapping[Any, Any]):
    """A mapping from keys of this task to values; with `ttl_s` a key expires that long after its last write."""

    __slots__ = ("_allow_pickle", "_changed", "_cut", "_expires", "_in_order", "_latest", "_values",
                 "name", "owner", "ttl_s")  # fmt: skip

    def __init__(
        self, name: str, ttl_s: float | None = None, owner: KeyOwner | None = None, allow_pickle: bool = True
    ) -> None:
        """A state with an owner tracks its changes and refuses keys of other tasks."""
        self.name = name
        self.ttl_s = check_ttl(name, ttl_s)
        self.owner = owner
        self._allow_pickle = allow_pickle
        self._values: dict[Any, Any] = {}
        #: Wall time at which a key expires, soonest first while the clock does not go back.
        self._expires: dict[Any, float] = {}
        self._latest = 0.0
        self._in_order = True
        self._changed: set[Any] | None = None if owner is None else set()
        self._cut: Cut | None = None

    # ---- the mapping -------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        value = self._read(key)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        value = self._read(key)
        return default if value is ABSENT else value

    def _read(self, key: Any) -> Any:
        value = self._values.get(key, ABSENT)
        if value is ABSENT:
            return ABSENT
        if self._expires and self._has_expired(key):
            self._drop(key)
            return ABSENT
        if type(value) not in PLAIN and not _cannot_change(value):
            self._will_change(key)
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values and not (self._expires and self._has_expired(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in self._values:
            self._check_key(key)
        if not self._allow_pickle and type(value) not in PLAIN:
            raise TopologyError(
                f"keyed state {self.name!r} got a value of type {type(value).__name__}, which needs pickle, and this"
                " topology forbids it (heron.instance.allow_pickle: false); put a plain scalar"
            )
        self._will_change(key)
        self._values[key] = value
        if self.ttl_s is not None:
            self._set_expiry(key, time.time(), self.ttl_s)

    def put(self, key: Any, value: Any) -> None:
        """Sets the value of `key`."""
        self[key] = value

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self._drop(key)

    def __len__(self) -> int:
        self._purge(len(self._expires))
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        self._purge(len(self._expires))
        # With a time to live, reading may drop a key during the loop.
        return iter(list(self._values) if self._expires else self._values)

    def items(self) -> ItemsView[Any, Any]:
        """The pairs; going through them reads every value."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """The values; going through them reads every one."""
        return _Values(self)

    def clear(self) -> None:
        """Removes every key."""
        if self._cut is not None:
            for key in self._values:
                self._cut.save(key)
        if self._changed is not None:
            self._changed.update(self._values)
        self._values.clear()
        self._expires.clear()

    def __repr__(self) -> str:
        return f"KeyedState({self.name!r}, {len(self)} keys)"

    def owns(self, key: Any) -> bool:
        """Whether this task may hold the key; a spout can divide partitions among its tasks by it."""
        return self.owner is None or self.owner.owns(self.owner.group_of(key))

    # ---- inside ------------------------------------------------------------------------------

    def _check_key(self, key: Any) -> None:
        owner = self.owner
        if owner is None:
            return
        if not self._allow_pickle and type(key) not in PLAIN and owner.width <= 1:
            raise TopologyError(
                f"keyed state {self.name!r} got a key of type {type(key).__name__}, which needs pickle, and this"
                " topology forbids it (heron.instance.allow_pickle: false); use a plain scalar as key"
            )
        group = owner.group_of(key)
        if not owner.owns(group):
            other = task_index(group, owner.parallelism, owner.key_groups)
            raise TopologyError(
                f"keyed state {self.name!r} of {owner.component}[{owner.index}] got key {key!r}, which belongs to"
                f" {owner.component}[{other}]; use the value of the field that the component's input is grouped by"
                " (Grouping.fields) as key"
            )

    def _will_change(self, key: Any) -> None:
        if self._cut is not None:
            self._cut.save(key)
        if self._changed is not None:
            self._changed.add(key)

    def _drop(self, key: Any) -> None:
        self._will_change(key)
        del self._values[key]
        self._expires.pop(key, None)

    def _has_expired(self, key: Any) -> bool:
        end = self._expires.get(key)
        return end is not None and end <= time.time()

    def _set_expiry(self, key: Any, now: float, ttl_s: float) -> None:
        end = now + ttl_s
        self._expires.pop(key, None)  # to the end of the order
        self._expires[key] = end
        if end < self._latest:
            self._in_order = False  # the clock went back
        self._latest = end
        self._purge(_PURGE_PER_WRITE)

    def _purge(self, most: int) -> None:
        if not self._expires:
            return
        if not self._in_order:
            self._expires = dict(sorted(self._expires.items(), key=lambda item: item[1]))
            self._in_order = True
            self._latest = next(reversed(self._expires.values()))
        now = time.time()
        for _ in range(most):
            key, end = next(iter(self._expires.items()), (None, now + 1))
            if end > now:
                return
            self._drop(key)

    # ---- for the runtime -----------------------------------------------------------------------

    def claim(self, ttl_s: float | None) -> None:
        """User code asks for a restored state: its time to live applies."""
        self.ttl_s = check_ttl(self.name, ttl_s)

    def load(self, key: Any, value: Any, expires: float) -> None:
        """Put a restored entry without marking a change; `expires` is 0 if it does not expire."""
        self._values[key] = value
        if expires:
            self._expires[key] = expires
            self._in_order = False

    def unload(self, key: Any) -> None:
        """Remove a restored entry: a later segment deletes it."""
        self._values.pop(key, None)
        self._expires.pop(key, None)

    def dump(self) -> list[tuple[Any, Any, float]]:
        """Every entry as `load` takes it."""
        return [(key, self._values[key], self._expires.get(key, 0.0)) for key in self]

    @property
    def held(self) -> int:
        """Number of keys in memory, including expired ones."""
        return len(self._values)

    def take_changes(self) -> set[Any]:
        """The keys that changed since the last call; takes constant time."""
        changed = self._changed
        self._changed = set()
        return set() if changed is None else changed

    def cut(self, keys: tuple[set[Any], ...] | None) -> Cut:
        """Fix the values that these keys have now (None: all keys); ends the previous cut."""
        self._cut = Cut(self, keys)
        return self._cut

    def end_cut(self, cut: Cut) -> None:
        """The cut has been read or is no longer needed."""
        if self._cut is cut:
            self._cut = None


class Cut:
    """A snapshot of a keyed state; may be read by another thread or in a forked child."""

    __slots__ = ("_keys", "_now", "_saved", "_state")

    def __init__(self, state: KeyedState, keys: tuple[set[Any], ...] | None) -> None:
        self._state = state
        self._keys = keys
        self._now = time.time()
        self._saved: dict[Any, tuple[Any, float] | HeronError] = {}

    def save(self, key: Any) -> None:
        """Save the value of a key that is about to change."""
        if key in self._saved:
            return
        if self._keys is not None and not any(key in keys for keys in self._keys):
            return
        value = self._state._values.get(key, ABSENT)
        end = self._state._expires.get(key, 0.0)
        try:
            self._saved[key] = (value if value is ABSENT else freeze(value), end)
        except HeronError as error:
            self._saved[key] = error  # reported by the reader: this call of user code is not the cause

    def keys(self) -> list[Any]:
        """The keys to read; may include some that did not exist at the cut."""
        if self._keys is None:
            now = list(self._state._values)
            # Looked up afterwards: a key removed since the cut was saved before its removal.
            return list(dict.fromkeys([*now, *list(self._saved)]))
        return list(self._keys[0] if len(self._keys) == 1 else set().union(*self._keys))

    def entry(self, key: Any) -> tuple[Any, float]:
        """The encodable value of a key at the cut, or ABSENT, and when it expires (0: never)."""
        value = self._state._values.get(key, ABSENT)
        end = self._state._expires.get(key, 0.0)
        trouble: HeronError | None = None
        if value is not ABSENT and type(value) not in PLAIN:
            try:
                value = freeze(value)
            except HeronError as error:  # perhaps only because the task changed it meanwhile
                trouble = error
        saved = self._saved.get(key)
        if isinstance(saved, tuple):
            value, end = saved
        elif (reason := saved or trouble) is not None:
            raise TopologyError(f"keyed state {self._state.name!r} cannot be saved, key {key!r}: {reason}") from reason
        return (ABSENT, 0.0) if end and end <= self._now else (value, end)


class _Items(ItemsView[Any, Any]):
    """Skips a key that expires during the loop."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for key in self._mapping:  # type: ignore[attr-defined]
            value = self._mapping.get(key, ABSENT)  # type: ignore[attr-defined]
            if value is not ABSENT:
                yield key, value


class _Values(ValuesView[Any]):
    def __iter__(self) -> Iterator[Any]:
        for _, value in _Items(self._mapping):  # type: ignore[attr-defined]
            yield value


def check_ttl(name: str, ttl_s: float | None) -> float | None:
    """A time to live, checked."""
    if ttl_s is not None and not (isinstance(ttl_s, (int, float)) and ttl_s > 0):
        raise TopologyError(f"keyed state {name!r} has ttl_s={ttl_s!r}; give a number of seconds above 0, or None")
    return None if ttl_s is None else float(ttl_s)


class KeyedStates:
    """The keyed states of one task, by name."""

    def __init__(self, owner: KeyOwner | None = None, allow_pickle: bool = True) -> None:
        self._owner = owner
        self._allow_pickle = allow_pickle
        self._claimed: dict[str, float | None] = {}
        self.states: dict[str, KeyedState] = {}

    def __call__(self, name: str, ttl_s: float | None = None) -> KeyedState:
        """The state of this name, made on first use; each use must give the same time to live."""
        if not isinstance(name, str) or not name:
            raise TopologyError(f"a keyed state needs a name, a text, not {name!r}")
        ttl_s = check_ttl(name, ttl_s)
        if self._claimed.setdefault(name, ttl_s) != ttl_s:
            raise TopologyError(
                f"keyed state {name!r} is used with ttl_s={ttl_s} and with ttl_s={self._claimed[name]}; give one"
            )
        state = self.restored(name)
        state.claim(ttl_s)
        return state

    def restored(self, name: str) -> KeyedState:
        """The state of this name, to be filled from a checkpoint."""
        state = self.states.get(name)
        if state is None:
            state = self.states[name] = KeyedState(name, None, self._owner, self._allow_pickle)
        return state
