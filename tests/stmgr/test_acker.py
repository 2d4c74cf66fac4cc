"""The acker's ring against a dict model: partial, repeated, late and out-of-order acks, fails, growth."""

from __future__ import annotations

import random

import pytest

from heronpy.wire.frames import Frame, edges_of, one_run, pack64
from stmgr.acker import RING_MIN, Acker
from tests.stmgr.test_acks_in_any_order import Naive, roots_in


@pytest.mark.parametrize("seed", range(60))
def test_ring_equals_model(seed: int) -> None:
    rng = random.Random(seed)
    acker, model = Acker(), Naive()
    next_root = (seed + 1 << 40) + 1
    sent: list[Frame] = []
    for _ in range(250):
        choice = rng.random()
        if choice < 0.35:
            count = rng.randint(1, 900) if rng.random() < 0.2 else rng.randint(1, 20)
            frame = Frame(
                count=count, root_base=next_root, edge=rng.getrandbits(64) | 1, derived_edges=rng.random() < 0.3
            )
            assert roots_in(acker.register(frame)) == []
            model.trees.update(zip(range(next_root, next_root + count), edges_of(frame).tolist(), strict=True))
            next_root += count
            sent.append(frame)
        elif choice < 0.75 and sent:
            frame = sent.pop(rng.randrange(len(sent))) if rng.random() < 0.8 else rng.choice(sent)
            if rng.random() < 0.4:
                roots = [rng.randrange(frame.root_base - 3, frame.root_base + frame.count + 3) for _ in range(20)]
                values = [rng.getrandbits(64) for _ in roots]
                for _ in range(rng.choice((1, 2))):
                    message = Frame(count=20, roots=pack64(roots), values=pack64(values))
                    assert roots_in(acker.ack(message)) == model.ack(list(zip(roots, values, strict=True)))
            pairs = list(
                zip(range(frame.root_base, frame.root_base + frame.count), edges_of(frame).tolist(), strict=True)
            )
            assert roots_in(acker.ack(frame)) == model.ack(pairs)
        elif choice < 0.85 and model.trees:
            first = rng.choice(list(model.trees))
            message = Frame(count=rng.randint(1, 5), root_base=first)
            expected = [root for root in range(first, first + message.count) if model.trees.pop(root, None) is not None]
            assert roots_in(acker.fail(message)) == expected
        assert acker.live_roots == len(model.trees)


def test_ring_grows_and_forgets_nothing() -> None:
    acker = Acker()
    frames = [Frame(count=1000, root_base=1 + 1000 * i, edge=7) for i in range(3 * RING_MIN // 1000)]
    for frame in frames:
        acker.register(frame)
    assert acker.live_roots == 1000 * len(frames)
    for frame in reversed(frames):
        assert acker.ack(frame) == one_run(frame.root_base, 1000)
    assert acker.live_roots == 0
