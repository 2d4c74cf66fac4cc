"""One slow step of four in Bytewax: a source without a rate limit, redistribute, and a step on each of four workers.

The four workers are in one process; one of them also runs the source. Arguments: seconds, the prefix of the result
files, the number of the slow worker.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from serving import PAYLOAD, STEPS, Emits, Step

BATCH = 10


def build():
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    seconds, prefix, slow = os.environ["PEER_ARGS"].split("\n")

    class Firehose(StatefulSourcePartition):
        def __init__(self):
            self.emits = Emits(float(seconds), prefix)

        def next_batch(self):
            now = self.emits.note()
            if self.emits.done:
                raise StopIteration
            return [(now, PAYLOAD)] * BATCH

        def snapshot(self):
            return None

    class Source(FixedPartitionedSource):
        def list_parts(self):
            return ["firehose"]

        def build_part(self, step_id, for_part, resume_state):
            return Firehose()

    class Part(StatelessSinkPartition):
        def __init__(self, worker):
            self.step = Step(float(seconds), prefix, worker, worker == int(slow))

        def write_batch(self, items):
            for emitted_ns, _ in items:
                self.step.serve(emitted_ns)

    class Sink(DynamicSink):
        def build(self, step_id, worker_index, worker_count):
            return Part(worker_index)

    flow = Dataflow("slow")
    op.output("out", op.redistribute("spread", op.input("firehose", flow, Source())), Sink())
    return flow


if __name__ == "__main__":
    environment = {**os.environ, "PEER_ARGS": "\n".join(sys.argv[1:4])}
    run = [sys.executable, "-m", "bytewax.run", f"{__file__}:build()", "-w", str(STEPS)]
    subprocess.run(run, env=environment, check=True)
