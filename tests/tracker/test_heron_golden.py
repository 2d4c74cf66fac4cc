"""Each document of Heron's tracker, against a golden file of its shape: the keys, all of them and no others, and types.

`golden/` has one file per address, from the models of Heron 0.20.5 (heron/tools/tracker/src/python/topology.py and
routers/). A shape is a type (`str|null`: one of them), a list with the shape of each
item, an object with the shape of each key, or `{"*": shape}` for names that a topology chooses. Where Heron has a
number that nothing here has, as a port that nobody listens on, the file allows null.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from heronpy.proto import control_pb2
from heronpy.tracker.app import routes
from heronpy.tracker.heron import table as of_heron
from tests.cli.conftest import FakeTopology
from tests.support.views import timeline
from tests.tracker.conftest import Asking

GOLDEN = {
    document["address"]: document["shape"]
    for document in (json.loads(path.read_text()) for path in sorted(Path(__file__).with_name("golden").glob("*.json")))
}
TASK = "container_1_count_2"
NAMED = {"cluster": "local", "environ": "default", "topology": "wordy"}
#: What else an address needs.
MORE: dict[str, dict[str, Any]] = {
    "/clusters": {}, "/topologies": {}, "/topologies/states": {}, "/machines": {},
    "/topologies/metrics": {"component": "count"},
    "/topologies/exceptions": {"component": "count"}, "/topologies/exceptionsummary": {"component": "count"},
}  # fmt: skip
for _name in ("metricstimeline", "metrics/timeline"):
    MORE[f"/topologies/{_name}"] = {"component": "count", "metricname": "busy", "starttime": 6000, "endtime": 6060}
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
    minutes = timeline(6000.0, 2, count__busy=[0.25, 0.5], count__executed_per_s=[2.0, 3.0])
    busy.answers |= {"get_metrics": metrics, "get_exceptions": raised, "get_timeline": minutes}
    busy.status.stmgrs.add(stmgr_id="stmgr-1")
    return busy


def test_every_address_has_a_golden_document() -> None:
    own = {route.path for route in of_heron.routes}
    assert own == set(GOLDEN)
    assert own <= {route.path for route in routes()}


#: What a topology of the tests has nothing of: links that a tracker's configuration would add.
EMPTY = ("extra_links",)


@pytest.mark.parametrize("address", GOLDEN)
def test_the_document_is_herons(address: str, asking: Asking, whole: FakeTopology) -> None:
    query = {**({} if address in FILTERED else NAMED), **MORE.get(address, {})}
    answer = asking.ask("GET", address, params=query)
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


def test_a_timeline_has_the_minutes_that_are_asked_for(asking: Asking, whole: FakeTopology) -> None:
    query = {"component": "count", "metricname": ["busy", "__execute-count"], "starttime": 6000, "endtime": 6059}
    found = ask(asking, "metrics/timeline", **query).json()["timeline"]
    assert found == {"busy": {"*": {"6000": "0.25"}}, "__execute-count": {"*": {"6000": "120.0"}}}


@pytest.mark.parametrize(
    ("address", "query", "status", "said"),
    [
        ("metrics/timeline", {"component": "count", "instance": TASK, "starttime": 0, "endtime": 60}, 400, "not per instance"),
        ("metrics/timeline", {"component": "cuont", "starttime": 0, "endtime": 60}, 404, "no component 'cuont'"),
        ("metricstimeline", {"component": "count", "starttime": 61, "endtime": 60}, 400, "starttime (61) is after endtime"),
        ("metricstimeline", {"component": "count", "metricname": "x", "starttime": 0, "endtime": 60}, 400, "no history is kept"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_one_sentence(
    address: str, query: dict[str, Any], status: int, said: str, asking: Asking, whole: FakeTopology
) -> None:
    answer = ask(asking, address, **query)
    assert answer.status_code == status and said in answer.json()["title"], answer.text
