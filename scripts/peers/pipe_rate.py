"""Hand-written program for tuples at a rate: source -> router -> sink, three processes connected by pipes.

Due tuples are sent in pickled batches. The router reads every tuple, like a router with several sinks.
"""

import pickle
import sys
from multiprocessing import Pipe, Process

from pacing import Arrivals, Pace


def source(rate, seconds, prefix, out):
    pace = Pace(rate, seconds)
    while not pace.done():
        if batch := pace.take():
            out.send_bytes(pickle.dumps(batch, 5))
        else:
            pace.wait()
    out.send_bytes(b"")
    pace.write(prefix)


def router(inlet, outs):
    buffers = [[] for _ in outs]
    while data := inlet.recv_bytes():
        for item in pickle.loads(data):
            buffers[item[0] % len(outs)].append(item)
        for buffer, out in zip(buffers, outs):
            if buffer:
                out.send_bytes(pickle.dumps(buffer, 5))
                buffer.clear()
    for out in outs:
        out.send_bytes(b"")


def sink(inlet, prefix):
    arrivals = Arrivals()
    while data := inlet.recv_bytes():
        for number, due_ns, _ in pickle.loads(data):
            arrivals.take(number, due_ns)
    arrivals.write(prefix)


def main():
    rate, seconds, prefix = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    to_router, from_source = Pipe(False)
    to_sink, from_router = Pipe(False)
    processes = [
        Process(target=source, args=(rate, seconds, prefix, from_source)),
        Process(target=router, args=(to_router, [from_router])),
        Process(target=sink, args=(to_sink, prefix)),
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main()
