"""Tuples at a rate in Bytewax, one or two processes: paced source, redistribute, sink.

The source tells Bytewax when to call it again (`next_awake`), which costs less than sleeping in the source.
"""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from pacing import Arrivals, Pace


def build():
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    rate, seconds, prefix = os.environ["PEER_ARGS"].split("\n")

    class Numbers(StatefulSourcePartition):
        def __init__(self):
            self.pace = Pace(float(rate), float(seconds))

        def next_batch(self):
            if self.pace.done():
                self.pace.write(prefix)
                raise StopIteration
            return self.pace.take()

        def next_awake(self):
            if self.pace.done():
                return None
            left_ns = self.pace.due_ns() - time.monotonic_ns()
            return datetime.now(UTC) + timedelta(microseconds=left_ns / 1000) if left_ns > 0 else None

        def snapshot(self):
            return None

    class Source(FixedPartitionedSource):
        def list_parts(self):
            return ["numbers"]

        def build_part(self, step_id, for_part, resume_state):
            return Numbers()

    class Part(StatelessSinkPartition):
        def __init__(self, worker):
            self.arrivals, self.worker = Arrivals(), worker

        def write_batch(self, items):
            for number, due_ns, _ in items:
                self.arrivals.take(number, due_ns)

        def close(self):
            self.arrivals.write(prefix, f"-{self.worker}")

    class Sink(DynamicSink):
        def build(self, step_id, worker_index, worker_count):
            return Part(worker_index)

    flow = Dataflow("rate")
    stream = op.input("numbers", flow, Source())
    op.output("out", op.redistribute("spread", stream), Sink())
    return flow


def main():
    processes = int(sys.argv[4])
    environment = {**os.environ, "PEER_ARGS": "\n".join(sys.argv[1:4])}
    run = [sys.executable, "-m", "bytewax.run", f"{__file__}:build()"]
    if processes == 1:
        subprocess.run(run, env=environment, check=True)
        return
    import socket

    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(processes)]
    addresses = ";".join(f"127.0.0.1:{sock.getsockname()[1]}" for sock in held)
    for sock in held:
        sock.close()
    children = [
        subprocess.Popen([*run, "-i", str(number), "-a", addresses], env=environment) for number in range(processes)
    ]
    if any([child.wait() for child in children]):
        sys.exit(1)


if __name__ == "__main__":
    main()
