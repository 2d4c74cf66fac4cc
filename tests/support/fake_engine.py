"""A fake engine, which keeps its objects in a list and runs no processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext

from heronpy.engines.contract import Ended, EngineAwayError, EnginePhase, Explained, Found, NodeSize, Request, Seen


class FakeEngine:
    """A fake engine; cancelling does not remove the objects of `stubborn` containers."""

    def __init__(self, seen: Sequence[Seen] = (), stubborn: Sequence[int] = ()) -> None:
        self.seen = list(seen)
        self.stubborn = stubborn
        self.cancelled: list[str] = []
        self.away = 0

    def check(self) -> Sequence[Found]:
        return [Found("commands", True)]

    def node_sizes(self) -> Sequence[NodeSize]:
        return []

    def submit(self, requests: Sequence[Request]) -> dict[tuple[int, int], str]:
        return {}

    def list(self) -> Sequence[Seen]:
        if self.away:
            self.away -= 1
            raise EngineAwayError("the engine sleeps")
        return list(self.seen)

    def cancel(self, engine_ids: Sequence[str], grace_s: float) -> None:
        self.cancelled += engine_ids
        self.seen = [
            one
            if one.container in self.stubborn
            else Seen(one.engine_id, one.container, 1, EnginePhase.ENDED, one.host, Ended.CONFIRMED)
            for one in self.seen
        ]

    def watch(self, changed: Callable[[], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def reach(self) -> tuple[str, ...]:
        return ("127.0.0.1",)

    def ready(self, hosts: Collection[str]) -> set[str]:
        return {*hosts}

    def explain(self, engine_id: str) -> Explained:
        return Explained("Resources")

    def termination_report(self, engine_id: str) -> str:
        return ""

    def look_command(self) -> str:
        return "squeue of 7"

    def topologies(self) -> dict[str, int]:
        return {}


def running(container: int, ended: Ended = Ended.NO) -> Seen:
    phase = EnginePhase.RUNNING if ended is Ended.NO else EnginePhase.ENDED
    return Seen(f"7_{container}", container, 1, phase, f"n{container}", ended)
