"""Keyed state: a mapping whose changes are saved, and whose keys move with their tuples when tasks are added.

`context.keyed_state(name)` returns a keyed state. Each task holds the keys of its own key groups. The keys of
`context.partitioned_state(name)` are partitions of a source, and a rule assigns each partition to a task. A key counts
as changed when it is written or deleted, and also when its mutable value (a list, an object) is read. So
`state[word].append(x)` is saved. If a list is kept in a variable and modified later, without another read from the
state, the change is not saved.

A checkpoint may read the state while the task changes it. The checkpoint reads a *cut*: the state at one moment,
without a copy. Before a key changes for the first time after the cut, the state saves the key's old value (`Cut.save`).
The writer saves *before* it writes; the reader checks for a saved value *after* it has read.
"""

from __future__ import annotations

import datetime
import decimal
import time
import uuid
from collections.abc import Callable, ItemsView, Iterator, MutableMapping, ValuesView
from typing import Any, Final

from msgspec import Struct

from heronpy.common.errors import HeronError, TopologyError
from heronpy.common.hashing import stable_hash, stable_hash_many
from heronpy.plan.grouping import group_range, key_group_of_hash, task_index
from heronpy.wire.codec import PLAIN, freeze

ABSENT: Final = object()
#: Maximum number of expired keys that one write removes, so that freeing memory causes no pause.
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
    """Return whether a value is certainly immutable."""
    kind = type(value)
    if kind in _FIXED:
        return True
    return (kind is tuple or kind is frozenset) and all(map(_cannot_change, value))


class KeyOwner(Struct, frozen=True):
    """Determines which keys of a keyed state belong to one task of a component."""

    component: str
    index: int
    parallelism: int
    key_groups: int
    width: int = 1
    """Number of fields by which the component's input is grouped. If there are several, keys are tuples."""

    def group_of(self, key: Any) -> int:
        """Return the key group of a key, as the fields grouping computes it."""
        if self.width <= 1:
            return key_group_of_hash(stable_hash(key), self.key_groups)
        if not isinstance(key, tuple) or len(key) != self.width:
            raise TopologyError(
                f"key {key!r} is not a tuple of {self.width} values; component {self.component} is grouped by"
                f" {self.width} fields, so its keyed state needs keys of that length"
            )
        return key_group_of_hash(stable_hash_many(key), self.key_groups)

    def owns(self, group: int) -> bool:
        """Return whether the task owns a key group."""
        return task_index(group, self.parallelism, self.key_groups) == self.index

    def owns_key(self, key: Any) -> bool:
        """Return whether the task owns a key."""
        return self.owns(self.group_of(key))

    def check(self, name: str, key: Any) -> None:
        """Raise TopologyError if the key does not belong to the task."""
        group = self.group_of(key)
        if not self.owns(group):
            other = task_index(group, self.parallelism, self.key_groups)
            raise TopologyError(
                f"keyed state {name!r} of {self.component}[{self.index}] got key {key!r}, which belongs to"
                f" {self.component}[{other}]; use the value of the field that the component's input is grouped by"
                " (Grouping.fields) as key"
            )

    @property
    def groups(self) -> range:
        """The key groups of the task."""
        return group_range(self.index, self.parallelism, self.key_groups)


def task_of_partition(log: Any, number: int, parallelism: int) -> int:
    """Return the index of the task that reads a partition of a log.

    The partitions of a log are spread evenly over any number of tasks. A partition keeps its task when
    partitions are added to the log.
    """
    return (stable_hash(log) + number) % parallelism


class PartitionOwner:
    """Determines which partitions of a partitioned state belong to one task. A key is a pair (log, number)."""

    #: There are few partitions, so all have the same key group: a task reads all of them from a checkpoint and keeps
    #: its own.
    groups = range(1)
    width = 2

    def __init__(self, component: str, place: Callable[[], tuple[int, int]], saved: bool = True) -> None:
        """`place` returns the task's index and the number of tasks. Unless the state is `saved`, both may change."""
        self._component = component
        self._place = place
        self._saved = saved

    def group_of(self, key: Any) -> int:
        """Return 0: all partitions have the same key group."""
        return self.groups.start

    def owns_key(self, key: Any) -> bool:
        """Return whether a partition belongs to the task now."""
        index, parallelism = self._place()
        log, number = key
        return task_of_partition(log, number, parallelism) == index

    def own(self, log: Any, count: int) -> range:
        """Return the numbers of the partitions that belong to the task now; the log has `count` partitions."""
        index, parallelism = self._place()
        return range((index - stable_hash(log)) % parallelism, count, parallelism) if index >= 0 else range(0)

    def check(self, name: str, key: Any) -> None:
        """Raise TopologyError if the partition does not belong to the task."""
        if not (isinstance(key, tuple) and len(key) == 2 and type(key[1]) is int):
            raise TopologyError(f"partitioned state {name!r} got key {key!r}; a key is a pair (log, partition number)")
        if self._saved and not self.owns_key(key):
            (log, number), (index, parallelism) = key, self._place()
            raise TopologyError(
                f"partitioned state {name!r} of {self._component}[{index}] got key {key!r}, which belongs to"
                f" {self._component}[{task_of_partition(log, number, parallelism)}];"
                " put only keys for which owns() is true"
            )


class KeyedState(MutableMapping[Any, Any]):
    """A mapping from this task's keys to values; with `ttl_s`, a key expires `ttl_s` seconds after its last write."""

    __slots__ = ("_allow_pickle", "_changed", "_cut", "_disorder", "_expires", "_latest", "_values",
                 "name", "owner", "ttl_s")  # fmt: skip

    def __init__(
        self,
        name: str,
        ttl_s: float | None = None,
        owner: KeyOwner | PartitionOwner | None = None,
        allow_pickle: bool = True,
        tracks: bool = True,
    ) -> None:
        """With an `owner`, the state refuses keys of other tasks. With `tracks`, it records the keys that change."""
        self.name = name
        self.ttl_s = check_ttl(name, ttl_s)
        self.owner = owner
        self._allow_pickle = allow_pickle
        self._values: dict[Any, Any] = {}
        #: Wall-clock time at which each key expires; soonest first, if `_disorder` is 0.
        self._expires: dict[Any, float] = {}
        self._latest = 0.0
        #: Number of writes since the order was lost: the time to live became shorter, or the clock was set back.
        self._disorder = 0
        self._changed: set[Any] | None = set() if tracks and owner is not None else None
        self._cut: Cut | None = None

    # ---- the mapping -------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        value = self._read(key)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        value = self._values.get(key, ABSENT)
        # The fast path makes no further call.
        if type(value) in PLAIN and not self._expires:
            return value
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
                " topology forbids it (heron.instance.allow_pickle: false); store a plain scalar"
            )
        # The same as `_will_change`, without a call.
        if self._cut is not None:
            self._cut.save(key)
        if self._changed is not None:
            self._changed.add(key)
        self._values[key] = value
        if self.ttl_s is not None:
            self._set_expiry(key, time.time(), self.ttl_s)
        elif self._expires:
            self._expires.pop(key, None)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of `key`."""
        self[key] = value

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self._drop(key)

    def __len__(self) -> int:
        self._purge_all()
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        self._purge_all()
        # If there is a time to live, a read may drop a key during the loop.
        return iter(list(self._values) if self._expires else self._values)

    def items(self) -> ItemsView[Any, Any]:
        """Return a view of the (key, value) pairs. Iterating counts as a read of every value."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """Return a view of the values. Iterating counts as a read of every value."""
        return _Values(self)

    def clear(self) -> None:
        """Remove every key."""
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
        """Return whether the key belongs to this task; a spout reads only the partitions that belong to its task."""
        return self.owner is None or self.owner.owns_key(key)

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
        owner.check(self.name, key)

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
        self._expires.pop(key, None)  # so that the key moves to the end
        self._expires[key] = end
        if self._disorder or end < self._latest:
            self._disorder += 1
        self._latest = end
        # Until the old keys have expired, each write may lose the order again, so many writes share one sort.
        if 2 * self._disorder > len(self._expires):
            self._sort()
        self._purge(_PURGE_PER_WRITE)

    def _sort(self) -> None:
        if self._disorder:
            self._expires = dict(sorted(self._expires.items(), key=lambda item: item[1]))
            self._disorder = 0
            self._latest = next(reversed(self._expires.values()), 0.0)

    def _purge_all(self) -> None:
        self._sort()
        self._purge(len(self._expires))

    def _purge(self, most: int) -> None:
        """Remove up to `most` expired keys from the front."""
        if not self._expires:
            return
        now = time.time()
        for _ in range(most):
            key, end = next(iter(self._expires.items()), (None, now + 1))
            if end > now:
                return
            self._drop(key)

    # ---- for the runtime -----------------------------------------------------------------------

    def claim(self, ttl_s: float | None) -> None:
        """Set the time to live of a restored state, when user code requests the state.

        Without one, the restored keys that have not expired no longer expire; the next checkpoint saves this.
        """
        self.ttl_s = check_ttl(self.name, ttl_s)
        if self.ttl_s is None and self._expires:
            self._purge_all()
            for key in self._expires:
                self._will_change(key)
            self._expires.clear()

    def load(self, key: Any, value: Any, expires: float) -> None:
        """Add a restored entry without marking it as changed; `expires` is 0 if the entry does not expire."""
        self._values[key] = value
        if expires:
            self._expires[key] = expires
            self._disorder = len(self._expires)

    def unload(self, key: Any) -> None:
        """Remove a restored entry that a later segment of the checkpoint deletes."""
        self._values.pop(key, None)
        self._expires.pop(key, None)

    def dump(self) -> list[tuple[Any, Any, float]]:
        """Return every entry as arguments for `load`."""
        return [(key, self._values[key], self._expires.get(key, 0.0)) for key in self]

    @property
    def held(self) -> int:
        """Number of keys in memory, including expired ones."""
        return len(self._values)

    def take_changes(self) -> set[Any]:
        """Return the keys that changed since the last call, in constant time."""
        changed = self._changed
        self._changed = set()
        return set() if changed is None else changed

    def cut(self, keys: tuple[set[Any], ...] | None) -> Cut:
        """Take a snapshot of these keys (None: all keys), and end the previous cut."""
        self._cut = Cut(self, keys)
        return self._cut

    def end_cut(self, cut: Cut) -> None:
        """Discard a cut that has been read or is no longer needed."""
        if self._cut is cut:
            self._cut = None


class PartitionedState(KeyedState):
    """A mapping from the partitions that this task reads to values; a key is a pair (log, number)."""

    __slots__ = ("_partitions",)

    def __init__(self, name: str, owner: PartitionOwner, allow_pickle: bool = True, tracks: bool = True) -> None:
        super().__init__(name, None, owner, allow_pickle, tracks)
        self._partitions = owner

    def own(self, log: Any, count: int) -> range:
        """Return the numbers of the partitions that belong to this task; the log has `count` partitions."""
        return self._partitions.own(log, count)


class Cut:
    """A snapshot of a keyed state. Another thread or a forked child may read it."""

    __slots__ = ("_keys", "_now", "_saved", "_state")

    def __init__(self, state: KeyedState, keys: tuple[set[Any], ...] | None) -> None:
        self._state = state
        self._keys = keys
        self._now = time.time()
        self._saved: dict[Any, tuple[Any, float] | HeronError] = {}

    def save(self, key: Any) -> None:
        """Save the old value of a key that is about to change."""
        if key in self._saved:
            return
        if self._keys is not None and not any(key in keys for keys in self._keys):
            return
        value = self._state._values.get(key, ABSENT)
        end = self._state._expires.get(key, 0.0)
        try:
            self._saved[key] = (value if value is ABSENT else freeze(value), end)
        except HeronError as error:
            self._saved[key] = error  # the reader reports it, because this call to user code is not the cause

    def keys(self) -> list[Any]:
        """The keys to read, including keys that did not exist at the cut."""
        if self._keys is None:
            now = list(self._state._values)
            # Looked up after the read: a key that was removed since the cut was saved before its removal.
            return list(dict.fromkeys([*now, *list(self._saved)]))
        return list(self._keys[0] if len(self._keys) == 1 else set().union(*self._keys))

    def entry(self, key: Any) -> tuple[Any, float]:
        """Return the encodable value of a key at the cut, or ABSENT, and its time of expiry (0: never)."""
        value = self._state._values.get(key, ABSENT)
        end = self._state._expires.get(key, 0.0)
        trouble: HeronError | None = None
        if value is not ABSENT and type(value) not in PLAIN:
            try:
                value = freeze(value)
            except HeronError as error:  # perhaps only because the task changed the value during the read
                trouble = error
        saved = self._saved.get(key)
        if isinstance(saved, tuple):
            value, end = saved
        elif (reason := saved or trouble) is not None:
            raise TopologyError(
                f"key {key!r} of keyed state {self._state.name!r} cannot be saved: {reason}"
            ) from reason
        return (ABSENT, 0.0) if end and end <= self._now else (value, end)


class _Items(ItemsView[Any, Any]):
    """A view of the items that skips keys that expire during the loop."""

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
    """Return `ttl_s` as a float; raise an error if it is not a valid time to live."""
    if ttl_s is not None and not (isinstance(ttl_s, (int, float)) and ttl_s > 0):
        raise TopologyError(f"keyed state {name!r} has ttl_s={ttl_s!r}; give a number of seconds above 0, or None")
    return None if ttl_s is None else float(ttl_s)


class KeyedStates:
    """The keyed and the partitioned states of one task, by name."""

    def __init__(
        self,
        owner: KeyOwner | None = None,
        allow_pickle: bool = True,
        partitions: PartitionOwner | None = None,
        tracks: bool = True,
    ) -> None:
        """With `tracks`, the states track their changes. Only checkpoints after the first one need this."""
        self._owner, self._tracks = owner, tracks
        self._partitions = partitions or PartitionOwner("", _alone)
        self._allow_pickle = allow_pickle
        self._claimed: dict[str, float | None] = {}
        self.states: dict[str, KeyedState] = {}

    def __call__(self, name: str, ttl_s: float | None = None) -> KeyedState:
        """Return the keyed state with this name, created on first use. Each use must pass the same time to live."""
        ttl_s = check_ttl(name, ttl_s)
        state = self.restored(_named(name))
        if isinstance(state, PartitionedState):
            raise TopologyError(f"state {name!r} is already a partitioned state; give the keyed state another name")
        if self._claimed.setdefault(name, ttl_s) != ttl_s:
            raise TopologyError(
                f"keyed state {name!r} is used with ttl_s={ttl_s} and with ttl_s={self._claimed[name]};"
                " give only one value"
            )
        state.claim(ttl_s)
        return state

    def partitioned(self, name: str) -> PartitionedState:
        """Return the partitioned state with this name, created on first use."""
        state = self.restored(_named(name), partitioned=True)
        if not isinstance(state, PartitionedState):
            raise TopologyError(f"state {name!r} is already a keyed state; give the partitioned state another name")
        return state

    @property
    def has_partitions(self) -> bool:
        """True if any of the states is partitioned."""
        return any(isinstance(state, PartitionedState) for state in self.states.values())

    def restored(self, name: str, partitioned: bool = False) -> KeyedState:
        """Return the state with this name, to be filled from a checkpoint."""
        state = self.states.get(name)
        if state is None:
            if partitioned:
                state = PartitionedState(name, self._partitions, self._allow_pickle, self._tracks)
            else:
                state = KeyedState(name, None, self._owner, self._allow_pickle, self._tracks)
            self.states[name] = state
        return state


def _named(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise TopologyError(f"a keyed or partitioned state needs a string as its name, not {name!r}")
    return name


def _alone() -> tuple[int, int]:
    """Return the place of a component's only task: index 0 of 1."""
    return 0, 1
