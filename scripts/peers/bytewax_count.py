"""Word count in Bytewax, one or two processes, with state per partition or per word.

By default words are keyed by partition and counted in a plain dict per record, which is faster in
Bytewax than the usual way, a state for each word ("word" as the fifth argument).
"""

import json
import os
import subprocess
import sys
import zlib
from itertools import chain, islice, repeat

BATCH = 1000
PARTITIONS = 2


def build():
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
    from bytewax.operators import StatefulBatchLogic
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    words_file, passes, result_file = os.environ["PEER_ARGS"].split("\n")
    by_word = os.environ["PEER_KEY"] == "word"
    with open(words_file) as file:
        words = json.load(file)

    class Words(StatefulSourcePartition):
        def __init__(self):
            self.values = chain.from_iterable(repeat(words, int(passes)))

        def next_batch(self):
            batch = list(islice(self.values, BATCH))
            if not batch:
                raise StopIteration
            return batch

        def snapshot(self):
            return None

    class Source(FixedPartitionedSource):
        def list_parts(self):
            return ["words"]

        def build_part(self, step_id, for_part, resume_state):
            return Words()

    class Count(StatefulBatchLogic):
        def __init__(self):
            self.counts = {}

        def on_batch(self, batch):
            counts = self.counts
            for word in batch:
                counts[word] = counts.get(word, 0) + 1
            return ((), StatefulBatchLogic.RETAIN)

        def on_notify(self):
            return ((), StatefulBatchLogic.RETAIN)

        def on_eof(self):
            return ((self.counts,), StatefulBatchLogic.DISCARD)

        def notify_at(self):
            return None

        def snapshot(self):
            return None

    class Part(StatelessSinkPartition):
        def write_batch(self, items):
            for _, counts in items:
                with open(f"{result_file}.part-{os.getpid()}", "a") as file:
                    file.write(json.dumps(counts) + "\n")

    class Sink(DynamicSink):
        def build(self, step_id, worker_index, worker_count):
            return Part()

    class CountWord(Count):
        def __init__(self):
            self.word, self.count = None, 0

        def on_batch(self, batch):
            for word in batch:
                self.word = word
                self.count += 1
            return ((), StatefulBatchLogic.RETAIN)

        def on_eof(self):
            return (({self.word: self.count},), StatefulBatchLogic.DISCARD)

    memo = {}

    def key(word):
        found = memo.get(word)
        if found is None:
            found = memo[word] = str(zlib.crc32(word.encode()) % PARTITIONS)
        return found

    flow = Dataflow("count")
    stream = op.input("words", flow, Source())
    keyed = op.key_on("key", stream, str if by_word else key)
    counted = op.stateful_batch("count", keyed, lambda resume_state: CountWord() if by_word else Count())
    op.output("out", counted, Sink())
    return flow


def main():
    processes = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    result_file = sys.argv[3]
    state = sys.argv[5] if len(sys.argv) > 5 else "partition"
    environment = {**os.environ, "PEER_ARGS": "\n".join(sys.argv[1:4]), "PEER_KEY": state}
    run = [sys.executable, "-m", "bytewax.run", f"{__file__}:build()"]
    if processes == 1:
        subprocess.run(run, env=environment, check=True)
    else:
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
    total = {}
    folder, name = os.path.split(result_file)
    for part in os.listdir(folder):
        if part.startswith(f"{name}.part-"):
            with open(os.path.join(folder, part)) as file:
                for line in file:
                    total.update(json.loads(line))
    with open(result_file, "w") as file:
        json.dump({"counts": total}, file)


if __name__ == "__main__":
    main()
