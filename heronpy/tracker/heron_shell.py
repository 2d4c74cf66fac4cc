"""What Apache Heron's tracker passed on to the heron-shell of a container: pids, stacks, heaps, files.

Here the executor of the container answers, at its door: with stacks of Python's threads for `jstack`, the counts by
type that were asked for last for `histo`, and of files the logs and dead letters. A heap is not dumped.
"""

from __future__ import annotations

import html
import time
from collections.abc import AsyncIterator
from typing import Any

from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.clusters.live_evidence import Process, answer_s, find_process
from heronpy.common.errors import HeronError, InvalidRpcError
from heronpy.proto import control_pb2
from heronpy.tracker.calls import Call, Param, Table
from heronpy.tracker.guard import Scope
from heronpy.tracker.heron import NAMED, named
from heronpy.tracker.problems import Problem
from heronpy.tracker.sources import Watched
from heronpy.tracker.taking import HEAP
from heronpy.views.evidence import Heap

Json = dict[str, Any]
PIECE_MAX_BYTES = 256 * 1024
_FOLDERS = ("log-files", "dead-letters")
_INSTANCE = Param("instance", "name of the instance, as container_1_word_3", required=True)
_CONTAINER = Param("container", "number of the container", int, required=True, low=0, high=(1 << 31) - 1)
_PATH = Param("path", "a folder or file of the container: log-files/tmaster.log", required=True)

table = Table()


async def _process(call: Call) -> tuple[Watched, Process]:
    """The process that the query names."""
    watched = await named(call)
    try:
        return watched, find_process(
            watched.name, await watched.master.ask(control_pb2.GetStatus()), call.query["instance"]
        )
    except RequestError as error:
        raise Problem(404, "not-found", str(error)) from None
    except ClusterError as error:
        raise Problem(409, "not-running", str(error)) from None


def _shell(call: Call, verb: str, stdout: str) -> Json:
    """As a command of a shell would have answered; `command` is the one of heronpy."""
    wanted = call.query
    return {
        "command": f"heron {verb} {wanted['cluster']} {wanted['topology']} {wanted['instance'][:200]}".rstrip(),
        "stdout": stdout,
        "stderr": None,
    }


@table.route("GET", "/topologies/pid", Scope.ALL, *NAMED, _INSTANCE, returns=dict[str, Any])
async def pid(call: Call) -> Json:
    """The process id of an instance."""
    _, process = await _process(call)
    return _shell(call, "status", f"{process.pid}\n")


@table.route("GET", "/topologies/jstack", Scope.ALL, *NAMED, _INSTANCE, returns=dict[str, Any])
async def jstack(call: Call) -> Json:
    """The stacks of an instance's Python threads."""
    watched, process = await _process(call)
    busy = call.tracker.shelf.busy(watched.record.topology_id, process.name)
    if busy is not None:
        text = f"evidence of {process.name} is being taken already: {busy.kind}"
        raise Problem(409, "busy", text, "wait until that has ended")
    outcome = "was interrupted"
    try:
        reply = await watched.master.take(process.container, control_pb2.DumpStacks(name=process.name), answer_s(1.0))
        outcome = "done"
    except HeronError as error:
        outcome = str(error)
        raise
    finally:
        call.tracker.changed(call.asker, f"stacks of {process.name}", watched, outcome)
    assert isinstance(reply, control_pb2.DumpStacksReply)
    return _shell(call, "stacks", reply.text)


@table.route("GET", "/topologies/jmap", Scope.ALL, *NAMED, _INSTANCE, returns=dict[str, Any])
async def jmap(call: Call) -> Json:
    """Refused: a dump of a heap has the values of all tuples in it."""
    await _process(call)
    raise Problem(
        404, "not-offered", "heaps are not dumped, because a dump holds the values of tuples",
        "POST /api/v1/.../tasks/ID/heap counts objects by type; /topologies/histo then shows them",
    )  # fmt: skip


@table.route("GET", "/topologies/histo", Scope.ALL, *NAMED, _INSTANCE, returns=dict[str, Any])
async def histo(call: Call) -> Json:
    """The objects of an instance by type, as they were counted last; a GET stops no task to count them."""
    watched, process = await _process(call)
    entry = call.tracker.shelf.find(watched.record.topology_id, process.name, HEAP)
    heap = entry.found.heap if entry is not None else None
    if heap is None:
        text = f"the objects of {process.name} have not been counted"
        raise Problem(404, "not-found", text, "POST /api/v1/.../tasks/ID/heap counts them, for which the task stops")
    return _shell(call, "heap", _histogram(heap))


def _histogram(heap: Heap) -> str:
    """As `jmap -histo` prints it."""
    rows = [f"{number:4}: {one.count:12} {one.bytes:14}  {one.name}" for number, one in enumerate(heap.types, 1)]
    head = [" num     #instances         #bytes  class name", "-" * 46]
    return "\n".join([*head, *rows, f"Total {heap.objects:12} {heap.bytes:14}", ""])


# ---- files --------------------------------------------------------------------------------------


@table.route(
    "GET", "/topologies/container/filestats", Scope.ALL, *NAMED, _CONTAINER, _PATH, returns=dict[str, dict[str, Any]]
)
async def file_stats(call: Call) -> Json:
    """What lies in a folder of a container: its logs and dead letters."""
    watched, path = await named(call), call.query["path"].strip("/")
    listed = await watched.master.list_files(call.query["container"])
    if path in ("", "."):
        return {name: {"formatted_stat": f"drwx------ {name}", "is_dir": True, "path": name} for name in _FOLDERS}
    if path not in _FOLDERS:
        raise Problem(404, "not-found", f"there is no folder {path[:200]!r}", f"there are {' and '.join(_FOLDERS)}")
    found: Json = {}
    for one in listed.files:
        folder, _, name = one.name.partition("/")
        if folder == path:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(one.changed_at))
            found[name] = {"formatted_stat": f"-rw------- {one.bytes} {when} {name}", "is_dir": False, "path": one.name}
    return found


@table.route(
    "GET", "/topologies/container/filedata", Scope.ALL, *NAMED, _CONTAINER, _PATH,
    Param("offset", "read from here on; -1: the end of the file", int, required=True, low=-1, high=(1 << 63) - 1),
    Param("length", f"at most this much, and {PIECE_MAX_BYTES}; -1: that", int, required=True, low=-1, high=1 << 62),
    returns=dict[str, Any],
)  # fmt: skip
async def file_data(call: Call) -> Json:
    """A piece of a file; what HTML would take for its own is escaped, as Heron does it."""
    watched, wanted = await named(call), call.query
    size = PIECE_MAX_BYTES if wanted["length"] < 0 else min(wanted["length"], PIECE_MAX_BYTES)
    reply = await _piece(watched, wanted["container"], wanted["path"], wanted["offset"], size)
    data = reply.data[:size]
    return {
        "offset": reply.offset,
        "length": len(data),
        "data": html.escape(data.decode("utf-8", "backslashreplace"), quote=False),
    }


@table.route(
    "GET", "/topologies/container/filedownload", Scope.ALL, *NAMED, _CONTAINER, _PATH,
    media="application/octet-stream",
)  # fmt: skip
async def file_download(call: Call) -> AsyncIterator[bytes]:
    """A file as it was when the answer began."""
    watched, wanted = await named(call), call.query
    first = await _piece(watched, wanted["container"], wanted["path"], 0, PIECE_MAX_BYTES)
    return _rest(watched, wanted["container"], wanted["path"], first)


async def _rest(watched: Watched, container: int, path: str, piece: control_pb2.ReadFileReply) -> AsyncIterator[bytes]:
    end, file, at = piece.size, piece.file, 0
    while piece.data and piece.file == file:
        yield piece.data[: end - at]
        at += len(piece.data)
        if at >= end:
            return
        piece = await _piece(watched, container, path, at, PIECE_MAX_BYTES)


async def _piece(watched: Watched, container: int, path: str, offset: int, size: int) -> control_pb2.ReadFileReply:
    request = control_pb2.ReadFile(name=path, offset=max(0, offset), bytes=max(1, size), from_end=offset < 0)
    try:
        return await watched.master.read_file(container, request)
    except InvalidRpcError:
        text = f"container {container} of '{watched.name}' has no file {path[:200]!r}"
        raise Problem(404, "not-found", text, "/topologies/container/filestats lists what there is") from None
