"""Records when the tuples of a real spout come, for test_linger_recorded.py:

    heron submit local tests/instance/arrivals/record.py Arrivals FOLDER

Three tasks one after the other; a program of its own feeds each through a pipe, which keeps to a clock as well as the
machine lets it. A file has the microseconds since the tuple before, one line each; 0 is a tuple that was read together
with the one before.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import time
from pathlib import Path

from heronpy import AsyncSpout, Bolt, Grouping, TopologyBuilder, Tuple

#: Pauses of the feeding program, in seconds: of chance at a steady rate, and bursts of 50 after silence.
STEADY_S, BURSTS = 2.5, (50, 40, 0.05)


def pauses_of(kind: str) -> list[float]:
    """The pauses of a file, before its tuples."""
    chance = random.Random(kind)
    if kind == "bursts":
        size, bursts, silence_s = BURSTS
        return [silence_s if not place % size else 0.0 for place in range(size * bursts)]
    rate = int(kind.removeprefix("steady-"))
    return [chance.expovariate(rate) for _ in range(int(rate * STEADY_S))]


KINDS = ("steady-1000", "steady-5000", "bursts")


def feed(kind: str) -> None:
    """A line for each tuple, when it is due."""
    due = time.monotonic()
    for pause_s in pauses_of(kind):
        due += pause_s
        if (early := due - time.monotonic()) > 0:
            time.sleep(early)
        sys.stdout.write("\n")
        sys.stdout.flush()


class Arrivals(AsyncSpout):
    """Emits a tuple for each line, and notes when."""

    outputs = ["number"]

    async def run(self) -> None:
        folder = Path(sys.argv[2])
        for kind in KINDS:
            feeder = await asyncio.create_subprocess_exec(
                sys.executable, __file__, "--feed", kind, stdout=asyncio.subprocess.PIPE
            )
            assert feeder.stdout is not None
            moments = []
            while await feeder.stdout.readline():
                moments.append(time.monotonic_ns())
                await self.emit([len(moments)])
            await feeder.wait()
            gaps = [0, *(after - before for before, after in itertools.pairwise(moments))]
            (folder / f"{kind}.txt").write_text("".join(f"{gap // 1000}\n" for gap in gaps), "ascii")


class Sink(Bolt):
    def process(self, tup: Tuple) -> None: ...


if __name__ == "__main__":
    if sys.argv[1:2] == ["--feed"]:
        feed(sys.argv[2])
    else:
        builder = TopologyBuilder(sys.argv[1])
        source = builder.add_spout("arrivals", Arrivals, par=1)
        builder.add_bolt("sink", Sink, par=1, inputs={source: Grouping.SHUFFLE})
        builder.build_and_submit()
