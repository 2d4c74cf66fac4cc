"""Pending roots of a spout against a dict model."""

from __future__ import annotations

import random

import pytest

from instance.pending import PendingRoots


@pytest.mark.parametrize("seed", range(60))
def test_pending_equals_model(seed: int) -> None:
    rng = random.Random(seed)
    pending = PendingRoots(1 << 40)
    model: dict[int, tuple[object, int]] = {}
    for now in range(200):
        choice = rng.random()
        if choice < 0.3:
            ids = [object() for _ in range(rng.randint(1, 10))]
            base = pending.add(list(ids), now, 0)
            model.update({base + i: (x, now) for i, x in enumerate(ids)})
        elif choice < 0.9 and model:
            first, length = rng.choice(list(model)) - rng.randint(0, 3), rng.randint(1, 12)
            got = [i for ids, _ in pending.complete(first, length) for i in ids]
            assert got == [model.pop(root)[0] for root in range(first, first + length) if root in model]
        elif choice > 0.97:
            got = [i for ids, _ in pending.expire(now - 50) for i in ids]
            assert got == [model.pop(root)[0] for root in sorted(model) if model[root][1] < now - 50]
        assert pending.total == len(model)
        oldest = pending.oldest()
        assert oldest == min((at for _, at in model.values()), default=None)
