"""Random topologies with random troubles: the right cause is named, and no decision makes anything wait longer."""

from __future__ import annotations

import pytest

from heronpy.loadtest.jobs.scenarios import Drawn, is_worse, is_wrong
from tests.support.seeds import seeds

#: Scenarios of one test.
EACH = 10


@pytest.mark.parametrize("ten", seeds(1, 100))
def test_of_ten_scenarios_none_is_mistaken(ten: int) -> None:
    """A scenario that is wrong replays by its seed."""
    mistaken, worse = [], []
    for seed in range(EACH * ten, EACH * ten + EACH):
        drawn = Drawn(seed)
        scene = drawn.scene("act")
        if is_wrong(drawn, scene):
            mistaken.append(f"seed {seed}, {drawn.kind} of {drawn.hit.name}:\n{scene.told()}")
        if is_worse(drawn, scene):
            worse.append(f"seed {seed}, {drawn.kind}:\n{scene.told()}")
    assert not worse, "\n\n".join(worse)
    assert not mistaken, "\n\n".join(mistaken)
