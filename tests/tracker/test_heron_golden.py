"""Each document of Heron's tracker, against a golden file of its shape: the keys, all of them and no others, and types.

`golden/` has one file per address, from the models of Heron 0.20.5 (heron/tools/tracker/src/python/topology.py and
routers/, heron/shell/src/python/handlers/). A shape is a type (`str|null`: one of them), a list with the shape of each
item, an object with the shape of each key, or `{"*": shape}` for names that a topology chooses. Where Heron has a
number that nothing here has, as a port that nobody listens on, the file allows null.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import httpx
import pytest

from heronpy.executor.files_door import ContainerFiles
from heronpy.proto import control_pb2
from heronpy.tracker.app import routes
from heronpy.tracker.heron import table as of_heron
from heronpy.tracker.heron_shell import table as of_shell
from heronpy.tracker.shelf import Entry
from heronpy.tracker.tracker import Tracker
from heronpy.views.evidence import Evidence, Heap, HeapType
from tests.cli.conftest import FakeTopology
from tests.tracker.conftest import Asking

GOLDEN = {
    document["address"]: document["shape"]
    for document in (json.loads(path.read_text()) for path in sorted(Path(__file__).with_name("golden").glob("*.json")))
}
TASK, SIBLING = "container_1_count_2", "container_1_count_3"
NAMED = {"cluster": "local", "environ": "default", "topology": "wordy"}
#: What else an address needs.
MORE: dict[str, dict[str, Any]] = {
    "/clusters": {}, "/topologies": {}, "/topologies/states": {}, "/machines": {},
    "/topologies/metrics": {"component": "count"},
    "/topologies/exceptions": {"component": "count"}, "/topologies/exceptionsummary": {"component": "count"},
    "/topologies/pid": {"instance": TASK}, "/topologies/jstack": {"instance": TASK},
    "/topologies/histo": {"instance": TASK},
    "/topologies/container/filestats": {"container": 1, "path": "log-files"},
    "/topologies/container/filedata": {"container": 1, "path": f"log-files/{TASK}.log", "offset": 0, "length": 100},
}  # fmt: skip
for _name in ("metricstimeline", "metrics/timeline"):
    MORE[f"/topologies/{_name}"] = {"component": "count", "metricname": "busy", "starttime": 6000, "endtime": 6060}
for _name in ("metricsquery", "metrics/query"):
    MORE[f"/topologies/{_name}"] = {"query": "TS(count, *, busy)", "starttime": 6000, "endtime": 6060}
FILTERED = ("/clusters", "/topologies", "/topologies/states", "/machines")
TYPES = {"str": str, "int": int, "float": float, "bool": bool, "null": type(None)}


def differences(found: Any, shape: Any, where: str = "$") -> list[str]:
    """Where a document is not of its shape."""
    if isinstance(shape, str):
        allowed = [TYPES[name] for name in shape.split("|")] if shape != "any" else None
        # True is an int to Python; to JSON it is not.
        return [] if allowed is None or type(found) in allowed else [f"{where} is {found!r}, not {shape}"]
    if isinstance(shape, list):
        if not isinstance(found, list):
            return [f"{where} is no list"]
        return [text for n, one in enumerate(found) for text in differences(one, shape[0], f"{where}[{n}]")]
    if not isinstance(found, dict):
        return [f"{where} is no object"]
    if set(shape) == {"*"}:
        return [text for key, one in found.items() for text in differences(one, shape["*"], f"{where}.{key}")]
    wrong = [f"{where} lacks {key}" for key in shape.keys() - found.keys()]
    wrong += [f"{where} has {key}, which Heron has not" for key in found.keys() - shape.keys()]
    for key in shape.keys() & found.keys():
        wrong += differences(found[key], shape[key], f"{where}.{key}")
    return sorted(wrong)


def emptiness(found: Any, shape: Any, where: str = "$") -> list[str]:
    """Lists and maps with nothing in them, whose items no comparison has seen."""
    if isinstance(shape, str) or found is None:
        return []
    if isinstance(shape, list):
        return [text for one in found for text in emptiness(one, shape[0], where + "[]")] if found else [where]
    if set(shape) == {"*"}:
        return (
            [text for one in found.values() for text in emptiness(one, shape["*"], where + ".*")] if found else [where]
        )
    return [text for key in shape for text in emptiness(found[key], shape[key], f"{where}.{key}")]


@pytest.fixture
def whole(asking: Asking, busy: FakeTopology, monkeypatch: pytest.MonkeyPatch) -> FakeTopology:
    """wordy, with something of everything."""
    metrics = control_pb2.MetricsReply(interval_s=60.0)
    metrics.reports.add(process=TASK).samples.add(name="__execute-count", label="word/default", value=7.0)
    raised = control_pb2.ExceptionsReply()
    raised.exceptions.add(type="ValueError", traceback="T", first_at=1.5, last_at=9.5, count=3, instance_id=TASK)
    timeline = control_pb2.TimelineReply(first=6000.0, step_s=60.0, points=2, known_since=6000.0)
    timeline.series.add(component="count", name="busy", values=struct.pack("<2f", 0.25, 0.5))
    busy.answers |= {"get_metrics": metrics, "get_exceptions": raised, "get_timeline": timeline}
    busy.status.stmgrs.add(stmgr_id="stmgr-1")
    executor = busy.status.executors.add(container=1, host="here", files_door="ipc:///nowhere", pid=5)
    executor.processes.add(name=TASK, task_id=2, state=control_pb2.PROC_RUNNING, pid=12)
    executor.processes.add(name=SIBLING, task_id=3, state=control_pb2.PROC_BACKOFF)
    folder = Path(busy.record.working_dir)
    (folder / "log-files" / f"{TASK}.log").write_text("<b>one</b>\ntwo\n")
    (folder / "dead-letters").mkdir()
    (folder / "dead-letters" / f"{TASK}.jsonl").write_text("{}\n")

    async def list_files(self: object, container: int) -> control_pb2.ListFilesReply:
        return ContainerFiles(folder, container).listed()

    async def read_file(self: object, container: int, request: control_pb2.ReadFile) -> control_pb2.ReadFileReply:
        return ContainerFiles(folder, container).read(request)

    async def take(self: object, container: int, request: object, timeout_s: float) -> control_pb2.DumpStacksReply:
        assert request == control_pb2.DumpStacks(name=TASK)
        return control_pb2.DumpStacksReply(text="Thread 0x1\n")

    for function in (list_files, read_file, take):
        monkeypatch.setattr(f"heronpy.clusters.masters.Master.{function.__name__}", function)
    return busy


async def counted(tracker: Tracker) -> None:
    """Somebody has counted the objects of the task."""
    heap = Heap(
        types=[HeapType(name="dict", count=4, bytes=99)], kinds=1, objects=4, bytes=99, share=1.0, paused_s=0.1,
        memory_bytes=1 << 20,
    )  # fmt: skip
    found = Evidence(process=TASK, kind="heap", under_way=False, at=0.0, takes_s=1.0, heap=heap)

    async def taken() -> Evidence:
        return found

    tracker.shelf.begin(Entry("wordy-1", TASK, "heap", found), taken())


def test_every_address_has_a_golden_document() -> None:
    own = {route.path for route in (*of_heron.routes, *of_shell.routes)}
    # A download is the file itself, and a dump is refused.
    assert own - {"/topologies/container/filedownload", "/topologies/jmap"} == set(GOLDEN)
    assert own <= {route.path for route in routes()}


#: What a topology of the tests has nothing of: links that a tracker's configuration would add.
EMPTY = ("extra_links",)


@pytest.mark.parametrize("address", GOLDEN)
def test_the_document_is_herons(address: str, asking: Asking, whole: FakeTopology) -> None:
    query = {**({} if address in FILTERED else NAMED), **MORE.get(address, {})}

    async def ask(client: httpx.AsyncClient, tracker: Tracker) -> httpx.Response:
        if address.endswith("histo"):
            await counted(tracker)
        return await client.get(address, params=query)

    answer = asking.within(ask)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert differences(found, GOLDEN[address]) == []
    empty = [
        where
        for where in emptiness(found, GOLDEN[address])
        if not any(where.endswith(name) for name in (*EMPTY, ".config", "runtime_state.stmgrs", ".outputs"))
    ]
    assert not empty, "compared with nothing"


def test_a_shape_that_differs_is_noticed() -> None:
    shape = {"a": "int", "b": [{"c": "str|null"}], "d": {"*": "bool"}}
    assert differences({"a": 1, "b": [{"c": None}], "d": {"x": True}}, shape) == []
    wrong = {"a": True, "b": [{"c": 1}, {}], "d": {"x": 0}, "e": 1}
    assert len(differences(wrong, shape)) == 5


def ask(asking: Asking, address: str, **query: Any) -> httpx.Response:
    return asking.ask("GET", f"/topologies/{address}", params={**NAMED, **query})


def test_what_a_shell_answered_is_answered_by_the_executor(
    asking: Asking, whole: FakeTopology, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "heronpy.tracker")
    assert ask(asking, "pid", instance=TASK).json()["stdout"] == "12\n"
    assert ask(asking, "jstack", instance=TASK).json()["stdout"] == "Thread 0x1\n"
    assert f"asked for stacks of {TASK} of local/me/default/wordy: done" in caplog.text
    page = ask(asking, "container/filedata", container=1, path=f"log-files/{TASK}.log", offset=-1, length=4).json()
    assert page == {"offset": 11, "length": 4, "data": "two\n"}
    html = ask(asking, "container/filedata", container=1, path=f"log-files/{TASK}.log", offset=0, length=10).json()
    assert html["data"] == "&lt;b&gt;one&lt;/b&gt;"[:25] and html["length"] == 10
    down = ask(asking, "container/filedownload", container=1, path=f"log-files/{TASK}.log")
    assert down.content == b"<b>one</b>\ntwo\n" and down.headers["content-type"] == "application/octet-stream"
    folders = ask(asking, "container/filestats", container=1, path=".").json()
    assert set(folders) == {"log-files", "dead-letters"} and folders["log-files"]["is_dir"] is True
    assert set(ask(asking, "container/filestats", container=1, path="dead-letters/").json()) == {f"{TASK}.jsonl"}
    assert ask(asking, "metrics/timeline", component="count", metricname="busy", starttime=6000, endtime=6060).json()[
        "timeline"
    ] == {"busy": {"*": {"6000": "0.25", "6060": "0.5"}}}


@pytest.mark.parametrize(
    ("address", "query", "status", "said"),
    [
        ("jmap", {"instance": TASK}, 404, "heaps are not dumped"),
        ("histo", {"instance": TASK}, 404, f"the objects of {TASK} have not been counted"),
        ("pid", {"instance": "container_1_cuont_2"}, 404, f"did you mean '{TASK}'"),
        ("jstack", {"instance": SIBLING}, 409, "is not running now"),
        ("pid", {}, 400, "the parameter instance is missing"),
        ("container/filedata", {"container": 1, "path": "launch.json", "offset": 0, "length": 9}, 404, "has no file"),
        ("container/filedata", {"container": 1, "path": "log-files/../launch.json", "offset": 0, "length": 9}, 404, "no file"),
        ("container/filedownload", {"container": 1, "path": "/etc/passwd"}, 404, "has no file '/etc/passwd'"),
        ("container/filestats", {"container": 1, "path": ".."}, 404, "there is no folder '..'"),
        ("metrics/timeline", {"component": "count", "instance": TASK, "starttime": 0, "endtime": 60}, 400, "not by instance"),
        ("metrics/timeline", {"component": "cuont", "starttime": 0, "endtime": 60}, 404, "no component 'cuont'"),
        ("metricstimeline", {"component": "count", "starttime": 61, "endtime": 60}, 400, "starttime is 61, after endtime"),
        ("metricstimeline", {"component": "count", "metricname": "x", "starttime": 0, "endtime": 60}, 400, "no minutes are kept"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_one_sentence(
    address: str, query: dict[str, Any], status: int, said: str, asking: Asking, whole: FakeTopology
) -> None:
    answer = ask(asking, address, **query)
    assert answer.status_code == status and said in answer.json()["title"], answer.text
