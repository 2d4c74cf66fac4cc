"""User code that forks in every way that it should not, and in those that it may."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder

COUNT = 200


def square(number):
    return number * number


def for_ever():
    time.sleep(600)


class Numbers(Spout):
    outputs = ["n"]

    def initialize(self, config, context):
        self.n, self.acked, self.failed = 0, 0, 0
        self.out = Path(config["out"])

    def next_tuple(self):
        if self.n < COUNT:
            self.n += 1
            if self.n == 7 and os.fork() == 0:
                return  # into the runtime, as a child
            self.emit([self.n], tup_id=self.n)
        elif self.acked + self.failed == COUNT:
            (self.out / "acked").write_text(f"{self.acked} {self.failed}")
            self.end_of_input()

    def ack(self, n):
        self.acked += 1

    def fail(self, n):
        self.failed += 1


class Forks(Bolt):
    outputs = ["n"]

    def initialize(self, config, context):
        self.pool = multiprocessing.get_context("fork").Pool(2)

    def process(self, tup):
        n = tup.values[0]
        kind = {10: self.ends, 20: self.comes_back, 30: self.raises, 40: self.emits, 50: self.exits}.get(n)
        if n == 60:
            child = multiprocessing.get_context("fork").Process(target=for_ever)
            child.start()
            child.terminate()
            child.join()
            print("multiprocessing ended with", child.exitcode)
        if kind is not None:
            pid = os.fork()
            if pid == 0:
                kind(tup)
                return
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            print(f"child that {kind.__name__} ended with {code}")
        assert self.pool.map(square, [n, 2]) == [n * n, 4]
        self.emit([n], anchors=[tup])
        self.ack(tup)

    def ends(self, tup):
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        os._exit(3)

    def comes_back(self, tup):
        self.ack(tup)

    def raises(self, tup):
        raise ValueError("in a child")

    def exits(self, tup):
        sys.exit(5)

    def emits(self, tup):
        for _ in range(5000):
            self.emit([-1])

    def close(self):
        self.pool.terminate()


class Sink(Bolt):
    def initialize(self, config, context):
        self.seen, self.out = [], Path(config["out"])

    def process(self, tup):
        self.seen.append(tup.values[0])
        self.ack(tup)

    def finish(self):
        (self.out / "seen").write_text(repr(sorted(self.seen)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out")
    args = parser.parse_args()
    builder = TopologyBuilder(args.name)
    numbers = builder.add_spout("numbers", Numbers, par=1)
    forks = builder.add_bolt("forks", Forks, par=1, inputs={numbers: Grouping.SHUFFLE})
    builder.add_bolt("sink", Sink, par=1, inputs={forks: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", "out": args.out})
    builder.build_and_submit()


if __name__ == "__main__":
    main()
