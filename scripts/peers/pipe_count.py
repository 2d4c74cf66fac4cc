"""Hand-written word count: source -> router -> 2 counters, with pickled batches of 1,000 words over pipes.

It has no failure handling, no metrics, and only the flow control of the pipes, so it gives the minimum cost for the
comparison.
"""

import json
import pickle
import sys
import zlib
from itertools import chain, islice, repeat
from multiprocessing import Pipe, Process

BATCH = 1000
COUNTERS = 2


def source(words, passes, out):
    values = chain.from_iterable(repeat(words, passes))
    while batch := list(islice(values, BATCH)):
        out.send_bytes(pickle.dumps(batch, 5))
    out.send_bytes(b"")


def router(inlet, outs):
    memo = {}
    buffers = [[] for _ in outs]
    while data := inlet.recv_bytes():
        for word in pickle.loads(data):
            place = memo.get(word)
            if place is None:
                place = memo[word] = zlib.crc32(word.encode()) % len(outs)
            buffers[place].append(word)
        for buffer, out in zip(buffers, outs):
            if len(buffer) >= BATCH:
                out.send_bytes(pickle.dumps(buffer, 5))
                buffer.clear()
    for buffer, out in zip(buffers, outs):
        out.send_bytes(pickle.dumps(buffer, 5))
        out.send_bytes(b"")


def counter(inlet, result):
    counts = {}
    while data := inlet.recv_bytes():
        for word in pickle.loads(data):
            counts[word] = counts.get(word, 0) + 1
    result.send(counts)


def main():
    words_file, passes, result_file = sys.argv[1:4]
    with open(words_file) as file:
        words = json.load(file)
    to_router, from_source = Pipe(False)
    pipes = [Pipe(False) for _ in range(COUNTERS)]
    results = [Pipe(False) for _ in range(COUNTERS)]
    processes = [
        Process(target=source, args=(words, int(passes), from_source)),
        Process(target=router, args=(to_router, [out for _, out in pipes])),
        *(Process(target=counter, args=(pipes[i][0], results[i][1])) for i in range(COUNTERS)),
    ]
    for process in processes:
        process.start()
    total = {}
    for inlet, _ in results:
        total.update(inlet.recv())
    for process in processes:
        process.join()
    with open(result_file, "w") as file:
        json.dump({"counts": total}, file)


if __name__ == "__main__":
    main()
