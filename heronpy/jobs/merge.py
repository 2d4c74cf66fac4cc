"""Changes a layer for a writer, and merges all layers into a document. Pure.

A layer is a set of entries, one for each leaf. Merging starts with the leaves of the weakest layer; each stronger layer
replaces leaves. Maps are merged key by key, other values are replaced, and no layer deletes a leaf. A writer names the
version of the layer that it has read. A change is refused if another writer has changed the same leaf since then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.errors import ConfigError, HeronError
from heronpy.common.nearest import did_you_mean
from heronpy.common.redaction import redacted
from heronpy.jobs.documents import (
    LAYERS,
    LEAVES_MAX,
    SCALER_KEYS,
    Document,
    Leaves,
    Path,
    Scale,
    Value,
    component_of,
    document_of,
    name_of,
)

T = TypeVar("T")

#: Maximum number of future ends of temporary entries for which a change is checked.
ENDS_MAX: Final = 20


class ConflictError(HeronError):
    """Another writer has changed the same leaf."""


class Stamp(Struct, frozen=True):
    """Author, reason and time of a change, and the time when it ends (None: never), in seconds since 1970."""

    who: str
    why: str
    at: float
    until: float | None = None


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """A leaf of a layer, and the version of the layer that set it."""

    path: Path
    value: Value
    version: int
    stamp: Stamp
    under: Entry | None = None
    """The entry that applies again after the end of this one; it has no such entry itself."""

    def at(self, now: float) -> Entry | None:
        """Return the entry that is in effect at this time: this one, or the one below it; None if both have ended."""
        those = (one for one in (self, self.under) if one is not None)
        return next((one for one in those if one.stamp.until is None or one.stamp.until > now), None)

    def over(self, old: Entry | None) -> Entry:
        """Return this entry with the one to which it goes back if it replaces `old`, which is in effect."""
        if old is None or self.stamp.until is None:
            return self
        below = old.under or old  # of two temporary entries, the second goes back to the permanent one
        return replace(self, under=below.at(self.stamp.until))


class Layer(Struct, frozen=True, forbid_unknown_fields=True):
    """The entries of one kind of writer, sorted by path."""

    name: str
    version: int = 0
    entries: tuple[Entry, ...] = ()

    @property
    def by_path(self) -> dict[Path, Entry]:
        return {entry.path: entry for entry in self.entries}

    def in_effect(self, now: float) -> dict[Path, Entry]:
        """Return the entries that are in effect at this time, by path."""
        return {entry.path: one for entry in self.entries if (one := entry.at(now)) is not None}


class Change(Struct, frozen=True, forbid_unknown_fields=True):
    """One change to a layer: the entries that differ, with their values before and after."""

    layer: str
    version: int
    stamp: Stamp
    before: tuple[Entry, ...]
    after: tuple[Entry, ...]


class Found(Struct, frozen=True):
    """A leaf of the merged document, and its origin."""

    layer: str
    value: Value
    entry: Entry


def merge(layers: Iterable[Mapping[Path, T]]) -> dict[Path, T]:
    """Merge the leaves of all layers, given from the weakest to the strongest."""
    merged: dict[Path, T] = {}
    for layer in layers:
        merged.update(layer)
    return merged


def effective(layers: Mapping[str, Layer], now: float) -> dict[Path, Found]:
    """Return the merged leaves with their origins, without entries that have ended.

    Values of the scaler are limited by the current values of the other layers.
    """
    live = {
        name: {
            entry.path: Found(name, one.value, one)
            for entry in (layers[name].entries if name in layers else ())
            if (one := entry.at(now)) is not None
        }
        for name in LAYERS
    }
    scale = document_of(values_of(merge(found for name, found in live.items() if name != "scaler"))).scale
    scaled = {path: found for path, found in live["scaler"].items() if path[1] in scale.max}
    for path, found in scaled.items():
        if path[0] == "parallelism":
            value = min(cast(int, found.value), scale.max[path[1]])
            scaled[path] = replace(found, value=max(value, scale.min.get(path[1], 1)))
    return merge((live | {"scaler": scaled}).values())


def pins_of(found: Mapping[Path, Found]) -> dict[str, str]:
    """Return the components that the scaler leaves alone because layer oncall sets one of their values, each with a
    sentence that gives the reason.
    """
    pins: dict[str, list[str]] = {}
    for path, one in found.items():
        if path[0] in SCALER_KEYS and one.layer == "oncall":
            pins.setdefault(path[1], []).append(name_of(path[:2]))
    return {part: f"layer oncall sets {' and '.join(dict.fromkeys(keys))}" for part, keys in pins.items()}


def values_of(found: Mapping[Path, Found]) -> Leaves:
    """Return the leaves without their origins."""
    return {path: one.value for path, one in found.items()}


def put(layer: Layer, leaves: Leaves, seen: int, history: Sequence[Change], stamp: Stamp) -> Layer:
    """Return the layer with these leaves set; `history` contains the layer's changes, oldest first."""
    there, version = layer.in_effect(stamp.at), layer.version + 1
    new = {path: Entry(path, value, version, stamp).over(there.get(path)) for path, value in leaves.items()}
    return _edited(layer, new, seen, history, stamp)


def take_out(layer: Layer, keys: Collection[str], seen: int, history: Sequence[Change], stamp: Stamp) -> Layer:
    """Return the layer without these keys and all keys below them."""
    names = {path: {name_of(path[: depth + 1]) for depth in range(len(path))} for path in layer.by_path}
    known = set().union(*names.values())
    for key in keys:
        if key not in known:
            raise ConfigError(f"layer {layer.name} does not set '{key}'{did_you_mean(key, known)}; leave the key out")
    out = [path for path, those in names.items() if not those.isdisjoint(keys)]
    return _edited(layer, dict.fromkeys(out), seen, history, stamp)


def become(layer: Layer, leaves: Leaves, seen: int, history: Sequence[Change], stamp: Stamp) -> Layer:
    """Replace all leaves of the layer except the program, which only a deployment sets."""
    new: dict[Path, Entry | None] = dict.fromkeys(layer.in_effect(stamp.at).keys() - {("definition",)})
    new |= {path: Entry(path, value, layer.version + 1, stamp) for path, value in leaves.items()}
    return _edited(layer, new, seen, history, stamp)


def gone_back(layer: Layer, to: int, seen: int, history: Sequence[Change], stamp: Stamp) -> Layer:
    """Return the layer as it was in version `to`, without entries that have ended since then."""
    later = [change for change in history if change.version > to]
    if layer.version < 2:
        raise ConfigError(f"layer {layer.name} has no earlier version, so there is nothing to revert")
    if not 0 < to < layer.version or [one.version for one in later] != list(range(to + 1, layer.version + 1)):
        oldest = max(1, min((change.version for change in history), default=layer.version) - 1)
        raise ConfigError(
            f"version {to} of layer {layer.name} is not in the history; give one from {oldest} to {layer.version - 1}"
        )
    was = there = layer.by_path
    for change in reversed(later):
        new = {entry.path for entry in change.after}
        was = {path: entry for path, entry in was.items() if path not in new}
        was |= {entry.path: entry for entry in change.before}
    back: dict[Path, Entry | None] = dict.fromkeys(there.keys() - was.keys())
    for path, entry in was.items():
        one = entry.at(stamp.at)
        until = one.stamp.until if one is not None else None
        back[path] = one and Entry(path, one.value, layer.version + 1, replace(stamp, until=until), one.under)
    return _edited(layer, back, seen, history, stamp)


def change_of(before: Layer, after: Layer, stamp: Stamp) -> Change:
    """Return the change between two versions of a layer; what had ended before the change is not part of it."""
    old, new = before.by_path, after.by_path
    return Change(
        after.name,
        after.version,
        stamp,
        tuple(one for path, entry in old.items() if new.get(path) != entry and (one := entry.at(stamp.at)) is not None),
        tuple(entry for path, entry in new.items() if old.get(path) != entry),
    )


def ends_of(layers: Mapping[str, Layer], now: float) -> dict[float, list[str]]:
    """Return the next ENDS_MAX times at which entries end, with the names of the entries."""
    ends: dict[float, list[str]] = {}
    for layer in layers.values():
        for one in (one for entry in layer.entries for one in (entry, entry.under) if one is not None):
            if one.stamp.until is not None and one.stamp.until > now:
                ends.setdefault(one.stamp.until, []).append(f"'{name_of(one.path)}' of layer {layer.name}")
    return dict(sorted(ends.items())[:ENDS_MAX])


def left_at(change: Change, at: float) -> Change:
    """Return a change as it is at a later time, without the entries that have ended by then."""
    left = tuple(one for entry in change.after if (one := entry.at(at)) is not None)
    paths = {entry.path for entry in left}
    gone = {entry.path: entry for entry in (*change.before, *change.after) if entry.path not in paths}
    return replace(change, before=tuple(gone.values()), after=left)


def followed(scaler: Layer, change: Change, scale: Scale, stamp: Stamp) -> Layer:
    """Return layer `scaler`, extended by the task counts that the change removes from layer `oncall`, so that scaling
    continues from these counts.
    """
    kept = {entry.path for entry in change.after}
    numbers: Leaves = {
        entry.path: max(scale.min.get(entry.path[1], 1), min(cast(int, entry.value), scale.max[entry.path[1]]))
        for entry in change.before
        if entry.path[0] == "parallelism" and entry.path not in kept
        if entry.path[1] in scale.max and scale.mode == "act"
    }
    return put(scaler, numbers, scaler.version, (), stamp)


def check_change(change: Change, merged: Document, components: Mapping[str, bool]) -> None:
    """Raise ConfigError if the changed leaves do not fit the merged document or the program.

    `components` maps each component of the program to whether it is an asynchronous bolt.
    """
    replaced = {entry.path for entry in change.after}
    for entry in (one for one in change.before if one.path not in replaced):
        key, part = f"'{name_of(entry.path)}' of layer {change.layer}", component_of(entry.path)
        low, high = merged.scale.min.get(part or "", 1), merged.scale.max.get(part or "")
        if entry.path[0] == "scale" and part in components and high is not None and low > high:
            raise ConfigError(f"without {key}, scale.min would be {low} and scale.max {high}; change both")
    for entry in change.after:
        key, part = f"'{name_of(entry.path)}' of layer {change.layer}", component_of(entry.path)
        if part is None:
            continue
        if part not in components:
            raise ConfigError(
                f"{key} names component '{part}', which the program does not have{did_you_mean(part, components)};"
                f" its components are {', '.join(sorted(components))}"
            )
        if entry.path[0] == "concurrency" and not components[part]:
            raise ConfigError(
                f"{key} is for asynchronous bolts, but '{part}' is not an asynchronous bolt; set parallelism.{part}"
                " instead"
            )
        low, high = merged.scale.min.get(part, 1), merged.scale.max.get(part)
        if entry.path[0] == "scale" and high is not None and low > high:
            raise ConfigError(f"{key} is {entry.value}, but scale.min would be {low} and scale.max {high}; change both")
        if change.layer != "scaler":
            continue
        if merged.scale.mode != "act":
            raise ConfigError(f"{key} is refused, because scale.mode is {merged.scale.mode}; set scale.mode to act")
        if high is None:
            raise ConfigError(f"{key} is refused, because '{part}' has no maximum; set scale.max.{part}")
        if entry.path[0] == "parallelism" and not low <= cast(int, entry.value) <= high:
            raise ConfigError(f"{key} is {entry.value}; it must be from scale.min ({low}) to scale.max ({high})")


def _edited(
    layer: Layer, wanted: Mapping[Path, Entry | None], seen: int, history: Sequence[Change], stamp: Stamp
) -> Layer:
    """Return the layer with these entries, without entries that are None or have ended; the same object if nothing
    changes.
    """
    there = layer.in_effect(stamp.at)
    later = [change for change in history if change.version > seen]
    if not 0 <= seen <= layer.version:
        raise ConfigError(f"layer {layer.name} has version {layer.version}, not {seen}; read the layer again")
    if seen < layer.version and [change.version for change in later] != list(range(seen + 1, layer.version + 1)):
        raise ConflictError(f"version {seen} of layer {layer.name} is no longer in the history; read the layer again")
    for change in reversed(later):
        for path in {entry.path for entry in (*change.before, *change.after)} & wanted.keys():
            mine, theirs = wanted[path], there.get(path)
            if not _same(mine, theirs):
                raise ConflictError(
                    f"'{name_of(path)}' of layer {layer.name} was {_became(theirs)} by {change.stamp.who} in the"
                    f" meantime, but {stamp.who}'s change would leave it {_became(mine)}; read the layer and decide"
                    " again"
                )
    new = {
        path: entry
        for path, entry in wanted.items()
        if not _same(entry, old := there.get(path)) or (entry and old and entry.stamp.until != old.stamp.until)
    }
    if not new:
        return layer
    whole = {path: entry for path, entry in layer.by_path.items() if path in there}
    kept = {path: entry for path, entry in (whole | new).items() if entry}
    if len(kept) > LEAVES_MAX:
        raise ConfigError(f"layer {layer.name} would have {len(kept)} values, more than {LEAVES_MAX}; unset some")
    return Layer(layer.name, layer.version + 1, tuple(kept[path] for path in sorted(kept)))


def _same(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is other
    return type(one.value) is type(other.value) and one.value == other.value  # 1 is not True


def _became(entry: Entry | None) -> str:
    if entry is None:
        return "unset"
    return f"set to {entry.value!r:.200}" if redacted(entry.value, name_of(entry.path)) == entry.value else "set"
