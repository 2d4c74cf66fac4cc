"""The known pods of a topology, including pods that are no longer listed. Pure.

Accepts lists and watch events in any order, and keeps the first report of a confirmed end. A pod that vanishes without
a report from its kubelet counts as abandoned after a short wait for a late watch event.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from heronpy.engines.contract import Ended, EnginePhase, Seen
from heronpy.engines.kubernetes.seen import is_deleted, name_of, node_of, printed, seen_of, uid_of
from heronpy.procs.exit_reason import ExitReason

#: Time in which a watch may still report the end of a pod that is no longer listed.
GONE_S: Final = 3.0
#: The ends of vanished pods are reported for this time, and for this number of pods.
KEPT_S: Final = 300.0
KEPT_MAX: Final = 1024
_PRINTED_MAX: Final = 4096


@dataclass(slots=True)
class _Alive:
    seen: Seen
    uid: str
    #: Time of the first list without it.
    gone_at: float | None = None


@dataclass(slots=True)
class _End:
    seen: Seen
    at: float
    printed: str = ""
    #: Whether an earlier list has reported this end to the caller.
    told: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """The result of listing the pods."""

    seen: Sequence[Seen]
    #: Pods whose end was listed before, and whose deletion was not requested yet.
    over: Sequence[str]
    #: Names and uids of pods whose deletion was not requested.
    stay: Mapping[str, str]


class KnownPods:
    """The pods of one topology. `wall` is wall-clock time, as in the pods' timestamps; `now` is monotonic time."""

    def __init__(self, gone_s: float = GONE_S) -> None:
        self._gone_s = gone_s
        self._alive: dict[str, _Alive] = {}
        self._ends: OrderedDict[str, _End] = OrderedDict()

    # ---- queries ----------------------------------------------------------------------------
    def alive(self) -> list[tuple[int, str, str]]:
        """Container, name and uid of the living pods; pods whose uid is unknown are left out."""
        return [(one.seen.container, name, one.uid) for name, one in self._alive.items() if one.uid]

    def printed(self, name: str) -> str:
        """The output of an ended pod, if it was kept; else empty."""
        found = self._ends.get(name)
        return found.printed if found is not None else ""

    # ---- facts ------------------------------------------------------------------------------
    def made(self, seen: Seen, uid: str) -> None:
        if seen.engine_id not in self._ends:
            self._alive.setdefault(seen.engine_id, _Alive(seen, uid))

    def on_list(self, pods: Iterable[Mapping[str, Any]], wall: float, now: float) -> Listing:
        """Record a list of all existing pods."""
        found = {name_of(one): one for one in pods}
        seen = [one for pod in found.values() if (one := self._look(pod, wall, now)) is not None]
        stay = {name: uid_of(pod) for name, pod in found.items() if not is_deleted(pod)}
        over = []
        for one in seen:
            end = self._ends.get(one.engine_id) if one.ended is Ended.CONFIRMED else None
            if end is not None:
                over += [one.engine_id] if end.told and one.engine_id in stay else []
                end.told = True
        return Listing([*seen, *self._gone(found, now)], over, stay)

    def on_event(self, kind: str, pod: Mapping[str, Any], wall: float, now: float) -> None:
        """Record a watch event; a DELETED event contains the pod's last state."""
        seen = self._look(pod, wall, now)
        if kind != "DELETED" or seen is None or seen.ended is Ended.CONFIRMED:
            return
        if not node_of(pod):
            self.on_unplaced(seen.engine_id, now)
            return
        del self._alive[seen.engine_id]
        self._remember(_given_up(seen), "", now)

    def on_unplaced(self, name: str, now: float) -> None:
        """Record the deletion of a pod that never had a node, so that none of its processes ran."""
        known = self._alive.pop(name, None)
        if known is not None:
            words = "the pod was deleted before it had a node"
            end = replace(known.seen, phase=EnginePhase.ENDED, ended=Ended.CONFIRMED, reason=ExitReason.KILLED)
            self._remember(replace(end, cancelled=True, words=words), "", now)

    def _look(self, pod: Mapping[str, Any], wall: float, now: float) -> Seen | None:
        seen = seen_of(pod, wall)
        if seen is None:
            return None
        known = self._ends.get(seen.engine_id)
        if known is not None and known.seen.ended is Ended.CONFIRMED:
            return known.seen  # the pod's current state may show a later deletion by this engine instead
        if seen.ended is Ended.CONFIRMED:
            self._alive.pop(seen.engine_id, None)
            self._remember(seen, printed(pod), now)
        else:
            self._ends.pop(seen.engine_id, None)
            self._alive[seen.engine_id] = _Alive(seen, uid_of(pod))
        return seen

    def _remember(self, seen: Seen, said: str, now: float) -> None:
        self._ends[seen.engine_id] = _End(seen, now, said[-_PRINTED_MAX:])
        while len(self._ends) > KEPT_MAX:
            self._ends.popitem(last=False)

    def _gone(self, listed: Mapping[str, object], now: float) -> list[Seen]:
        found: list[Seen] = []
        for name, known in [*self._alive.items()]:
            if name in listed:
                continue
            known.gone_at = now if known.gone_at is None else known.gone_at
            if now - known.gone_at < self._gone_s:
                found.append(replace(known.seen, phase=EnginePhase.ENDING, ended=Ended.NO))
                continue
            del self._alive[name]
            self._remember(_given_up(known.seen), "", now)
        for name, end in [*self._ends.items()]:
            if name not in listed and now - end.at > KEPT_S:
                del self._ends[name]
            elif name not in listed:
                found.append(end.seen)
        return found


def _given_up(seen: Seen) -> Seen:
    words = "the pod is gone, but its node has not confirmed the end"
    return replace(seen, phase=EnginePhase.ENDED, ended=Ended.UNCONFIRMED, reason=None, words=words)
