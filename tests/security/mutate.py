"""Seeded mutation of messages and files, as many as HERON_FUZZ_CASES says (`make fuzz`: many, another seed each time)."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence

import psutil

#: Per parser and unit of its share: some 10^5 in all parsers in `make test`.
CASES = int(os.environ.get("HERON_FUZZ_CASES", "1000"))
SEED = int(os.environ.get("HERON_FUZZ_SEED", "20261121"))
#: Growth of the process without a leak: caches, arenas, decisions of the allocator.
GROWTH_MAX_BYTES = 48 << 20
#: Lengths and varints that parsers have fallen for.
ODD = (
    b"\xff" * 10,
    b"\x80" * 40,
    b"\x00" * 8,
    b"\xff\xff\xff\x7f",
    b"\x0a" * 300,
    b"[" * 3000,
    b"\x91" * 3000,
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\x7f\xff\xff\xff",
    b"\r\n\x1b[31m\xe2\x80\xa8",
    b"cos\nsystem\n(S'true'\ntR.",
)


def mutated(data: bytes, others: Sequence[bytes], dice: random.Random) -> bytes:
    """One to four changes of any kind."""
    result = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randint(0, len(result))
        end = min(len(result), at + dice.choice((1, 2, 8, 64)))
        kind = dice.randrange(8)
        if kind == 0 and result:
            result[at % len(result)] ^= 1 << dice.randrange(8)
        elif kind == 1:
            del result[at:]
        elif kind == 2:
            del result[at:end]
        elif kind == 3:
            result[at:at] = dice.randbytes(dice.randint(1, 16))
        elif kind == 4:
            result[at:end] = dice.randbytes(end - at)
        elif kind == 5:
            result[at:at] = result[at:end] * dice.randint(1, 20)
        elif kind == 6:
            result[at:at] = dice.choice(ODD)
        else:
            other = dice.choice(others)
            result[at:] = other[dice.randint(0, len(other)) :]
    return bytes(result[: 1 << 20])


def cases(
    seeds: Sequence[bytes],
    name: str,
    share: float = 1,
    disfigure: Callable[[bytes, random.Random], bytes] | None = None,
) -> Iterator[bytes]:
    """Mutations of the seeds, a few of them untouched; memory must not grow with their number.

    `disfigure` makes half of them: messages that parse, with values that nobody sends.
    """
    dice = random.Random(f"{SEED}/{name}")
    process, before, count = psutil.Process(), 0, max(10, int(CASES * share))
    for number in range(count):
        if number == count // 5:
            before = process.memory_info().rss
        seed = dice.choice(seeds)
        kind = dice.random()
        if kind < 0.02:
            yield seed
        elif kind < 0.5 and disfigure is not None:
            yield disfigure(seed, dice)
        else:
            yield mutated(seed, seeds, dice)
    grown = process.memory_info().rss - before
    assert grown < GROWTH_MAX_BYTES, f"{name}: memory grew by {grown} bytes over {count} cases"
