"""Spark's task for a container: it starts the container's first process, and returns when that process has ended.

The function is sent by value and needs only Python and pyspark, so that a host without heronpy can report that heronpy
is missing. The join token is part of the closure; the process reads it from its standard input. A task that Spark
repeats after losing an executor returns immediately, because the first task may still be running.
"""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator

#: Maximum number of bytes kept of the process's output.
TAIL_BYTES = 4096
DRAIN_S = 2.0
#: Environment variables that Spark sets for its own Python workers.
_SPARKS = (
    "SPARK_", "PYSPARK_", "_PYSPARK", "PYTHON_", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "JAVA_WORKER",
)  # fmt: skip
_PR_SET_PDEATHSIG = 1


def container_task(given: dict) -> Callable[[Iterator], Iterator[bytes]]:  # type: ignore[type-arg]
    """The function of a one-task job, which yields one line of JSON. `given`: command, join token and identity."""

    def run(_: Iterator) -> Iterator[bytes]:  # type: ignore[type-arg]
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            yield json.dumps({"repeated": True}).encode()
            return
        yield json.dumps(run_process(given)).encode()

    return run


def run_process(given: dict) -> dict:  # type: ignore[type-arg]
    """Run a container's first process to its end; return its wait status, and the last part of its output."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_SPARKS)}
    environ.update(
        HERON_TOPOLOGY_ID=given["topology_id"],
        HERON_CONTAINER=str(given["container"]),
        HERON_SUBMISSION=str(given["submission"]),
    )
    parent = os.getpid()

    def die_with_parent() -> None:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    try:
        process = subprocess.Popen(
            given["command"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environ,
            cwd="/", start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
    except OSError as error:
        return {"status": 127 << 8, "printed": f"{given['command'][0]}: {error.strerror}"}
    tail = [b""]

    def read() -> None:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), TAIL_BYTES):
            tail[0] = (tail[0] + piece)[-TAIL_BYTES:]

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert process.stdin is not None
    try:
        process.stdin.write(given["join_token"].encode())
        process.stdin.close()
    except OSError:
        pass  # it has already ended, and its status shows why
    code = process.wait()
    reader.join(DRAIN_S)
    return {"status": -code if code < 0 else code << 8, "printed": tail[0].decode(errors="replace")}
