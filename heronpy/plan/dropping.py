"""Which tuples a topology with `topology.droptuples.upon.backpressure` keeps when a task is full. Pure."""

from __future__ import annotations

from heronpy.common.topology_keys import DROP_NEWEST, SAMPLE

#: With SAMPLE all is discarded from here on, in units of the mark of a queue.
SAMPLED_MAX = 2.0


class DropPolicy:
    """What is kept, by task. Up to the mark that is everything.

    DROP_NEWEST keeps nothing beyond it. SAMPLE keeps a share that falls from 1 at the mark to 0 at twice the mark. It
    spreads that share evenly over what comes: of the share 1/4 every fourth is kept.
    """

    def __init__(self, name: str) -> None:
        self.name = name if name == SAMPLE else DROP_NEWEST
        #: SAMPLE: the shares since the last one that was kept.
        self._shares: dict[int, float] = {}

    def keeps(self, task: int, fill: float) -> bool:
        """Whether what comes now for a task is kept; its queue holds `fill` times its mark."""
        if fill <= 1.0:
            return True
        if self.name != SAMPLE or fill >= SAMPLED_MAX:
            return False
        share = self._shares.get(task, 0.0) + SAMPLED_MAX - fill
        self._shares[task] = share % 1.0
        return share >= 1.0
