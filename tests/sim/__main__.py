"""`python -m tests.sim --seeds N [--seed S] [--what batch|cluster|flow|placement|units]`: deterministic simulation (F39).

`cluster`: the whole control and data path of a topology; `flow`: the same with slow and frozen tasks; `placement`: its
schedulers over an engine with many hosts; `units`: logs, workers, keepers, ledger and table of work units, of one
pipeline, of one that waits for another, of two sites with several ledgers, of two homes with one table, and of bounded
runs; `batch`: runs of a topology in stages.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from heronpy.engines.lease import Fencing
from tests.sim.planted import WORLDS, machine_of
from tests.sim.run import Result
from tests.sim.units_after import run_two
from tests.sim.units_ledgers import run_homes, run_sealed, run_sites

#: Of each four seeds, three have one of these, too.
LEDGERS = (run_sites, run_homes, run_sealed)


def main(argv: list[str] | None = None) -> int:
    """Run seeds; returns 1 when one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one only and show its events")
    parser.add_argument("--story", action="store_true", help="with --seed: show every event, not only the last ones")
    parser.add_argument("--mode", default="", help="only this reliability mode, or this fencing")
    parser.add_argument("--what", choices=WORLDS, default="cluster")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    options = parser.parse_args(argv)
    world = WORLDS[options.what]
    chosen = {"fencing": Fencing(options.mode)} if options.what == "placement" and options.mode else {}
    chosen |= {"mode": options.mode} if options.what == "cluster" else {}

    def run(seed: int, story: bool = False) -> Result:
        result = world(seed, folder, story=story, **chosen)
        for more in (run_two, *LEDGERS[seed % 4 : seed % 4 + 1]) if options.what == "units" else ():
            result = more(seed, folder, story=story) if result.ok else result
        return result

    with machine_of(world) as folder:
        if options.seed is not None:
            result = run(options.seed, options.story)
            print(result.report() if not result.ok else f"{result.tail}\nseed {result.seed} passes")
            print(f"{result.events} events, {result.real_s:.2f} s, trace {result.digest}")
            print(f"{dict(sorted(result.stats.items()))}")
            return int(not result.ok)
        seeds = range(options.first, options.first + options.seeds)
        failed = run_many(seeds, run, options.stop)
    if failed:
        print("failed: " + " ".join(str(result.seed) for result in failed))
    return int(bool(failed))


def run_many(seeds: range, run: object, stop: bool) -> list[Result]:
    """Run seeds and show how it goes."""
    failed: list[Result] = []
    stats: Counter[str] = Counter()
    began = shown_at = time.perf_counter()
    for number, seed in enumerate(seeds, 1):
        result: Result = run(seed)  # type: ignore[operator]
        stats.update(result.stats)
        if not result.ok:
            failed.append(result)
            print(f"\n{result.report()}" if len(failed) <= 3 else f"\nseed {seed}: {result.violations[0][:200]}")
        now = time.perf_counter()
        if now - shown_at > 0.5 or number == len(seeds) or (stop and failed):
            shown_at = now
            speed = number / (now - began)
            print(f"\r{number} of {len(seeds)} seeds, {len(failed)} failed, {speed:.1f} seeds/s", end="", flush=True)
        if stop and failed:
            break
    print(f"\n{dict(sorted(stats.items()))}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
