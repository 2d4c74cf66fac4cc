"""Decides which tuples for a full task are kept if `topology.droptuples.upon.backpressure` is set. Pure."""

from __future__ import annotations

from heronpy.common.topology_keys import DROP_NEWEST, SAMPLE

#: The fill level, as a multiple of a queue's limit, above which SAMPLE discards all tuples.
SAMPLED_MAX = 2.0


class DropPolicy:
    """Decides for each task which tuples are kept.

    Up to the queue's limit all tuples are kept. DROP_NEWEST keeps no tuple beyond the limit. SAMPLE keeps a share that
    falls from 1 at the limit to 0 at twice the limit, spread evenly: with a share of 1/4, every fourth tuple is
    kept.
    """

    def __init__(self, name: str) -> None:
        self.name = name if name == SAMPLE else DROP_NEWEST
        #: SAMPLE: the sum of shares since the last kept tuple.
        self._shares: dict[int, float] = {}

    def keeps(self, task: int, fill: float) -> bool:
        """Whether the next tuples for a task are kept if its queue is filled to `fill` times its limit."""
        if fill <= 1.0:
            return True
        if self.name != SAMPLE or fill >= SAMPLED_MAX:
            return False
        share = self._shares.get(task, 0.0) + SAMPLED_MAX - fill
        self._shares[task] = share % 1.0
        return share >= 1.0
