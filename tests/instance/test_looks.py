"""Looks at a task: the line and the key that were found most often, and nothing of a task that is idle."""

from __future__ import annotations

import inspect
from types import FrameType
from typing import Any

from heronpy.common.units import line_of
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.tmaster.task_reports import LooksStore
from instance import link
from instance.executed import KEEP_S, WISHES, Looks, keys_of
from instance.tuples import HeronTuple, InFrame

Report = control_pb2.ExceptionReport
PLAN = plan_pb2.PhysicalPlan()
_bolt = PLAN.topology.bolts.add()
_bolt.comp.name = "count"
_keyed = _bolt.inputs.add(gtype=topology_pb2.FIELDS)
_keyed.stream.id, _keyed.stream.component_name = "default", "words"
_keyed.grouping_fields.keys.add(key="user")
_spread = _bolt.inputs.add(gtype=topology_pb2.SHUFFLE)
_spread.stream.id, _spread.stream.component_name = "default", "ticks"


def tuple_of(component: str, *values: Any) -> HeronTuple:
    return HeronTuple(list(values), InFrame(component, "default", 1, 1, 0.0), 0)


def looking(*found: HeronTuple | None, at: float = 1.0) -> Looks:
    """After a look at each of these in hand, each the first of the next chunk."""
    looks = Looks()
    looks.keys = keys_of(PLAN, "count", {"words": [("default", ["word", "user"])]})
    frame = inspect.currentframe()
    assert isinstance(frame, FrameType)
    for one in found:
        looks.in_hand = lambda: (one, [frame])  # noqa: B023
        looks.look(at)
        if one is not None:
            looks.note(one, at)
    return looks


def test_what_was_found_most_often_is_told() -> None:
    big = tuple_of("words", "a", "big")
    told = looking(big, tuple_of("words", "b", "x"), big, tuple_of("ticks", 1), None).told(2.0)
    assert told is not None and (told.looks, told.keyed) == (4, 3)
    assert (told.key, told.of_key) == ("user='big'", 2)
    assert told.line.startswith("looking (test_looks.py:") and told.at_line == 4


def test_each_look_wishes_for_some_tuples_where_there_are_keys() -> None:
    looks = looking(None)
    assert looks.wished == WISHES
    for _ in range(WISHES):
        looks.note(tuple_of("words", "a", "big"), 1.0)
    assert looks.wished == 0
    looks.keys = {}
    looks.look(2.0)
    assert looks.wished == 0, "nothing is grouped by fields"


def test_nothing_is_told_of_a_task_that_is_idle_or_of_long_ago() -> None:
    assert looking(None).told(1.0) is None
    looks = looking(tuple_of("words", "a", "big"), at=1.0)
    assert looks.told(KEEP_S) is not None
    assert looks.told(KEEP_S + 2.0) is None


def test_a_key_whose_repr_raises_is_a_key() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError

    told = looking(tuple_of("words", "a", Odd())).told(1.0)
    assert told is not None and told.key.startswith("user=<")


def test_the_runtimes_own_code_is_nobodys_culprit() -> None:
    """The doctor said that a task waits in a function of `link.py`."""
    made: dict[str, Any] = {"currentframe": inspect.currentframe}
    exec(compile("def transmit():\n    return currentframe()", link.__file__, "exec"), made)
    own, users = made["transmit"](), inspect.currentframe()
    looks = looking(None)
    for at, frames in enumerate([[own], [own], [own, users]]):
        looks.in_hand = lambda: (tuple_of("words", "a", "x"), frames)  # noqa: B023
        looks.look(float(at))
    told = looks.told(3.0)
    assert told is not None and (told.looks, told.at_line) == (3, 1)
    assert told.line.startswith("test_the_runtimes_own_code") and told.line.endswith("which calls transmit")


def test_a_line_is_of_the_users_code() -> None:
    library = ("/usr/lib/python3.11/socket.py", 700, "recv")
    assert line_of([("/home/me/orders.py", 9, "parse")]) == "parse (orders.py:9)"
    assert line_of([library, ("/home/me/orders.py", 9, "parse")]) == "parse (orders.py:9), which calls recv"
    assert line_of([library]) == "recv (socket.py:700)"
    assert line_of([]) == ""


def test_the_topology_master_knows_the_newest_of_each_task() -> None:
    store = LooksStore()
    report = control_pb2.MetricsReport(process="container_1_count_2", task_id=2, component="count")
    report.found.looks, report.found.key = 7, "user='big'"
    store.take(report)
    raised = control_pb2.ExceptionReport(
        process="container_1_parse_3", component="parse", last_at=2.0,
        traceback='Traceback\n  File "/home/me/orders.py", line 62, in process\n    raise ValueError\nValueError',
    )  # fmt: skip
    older = control_pb2.ExceptionReport(process="container_1_parse_3", component="parse", last_at=1.0)
    tasks = store.of("", [raised, older])
    assert tasks["container_1_count_2"].key == "user='big'"
    assert tasks["container_1_parse_3"].raised == "process (orders.py:62)"
    assert list(store.of("count", [])) == ["container_1_count_2"] and store.of("parse", []) == {}
    report.ClearField("found")
    store.take(report)
    assert not store.of("", []), "idle now"


def test_the_topology_master_knows_what_the_exceptions_of_a_line_have_in_common() -> None:
    """The last one named the user who came by; that all were of order 49 was nowhere."""

    def raised(number: int, line: int = 62, kind: str = "ValueError", process: str = "parse-3") -> Report:
        message = f"order 49 of user {number}"
        return Report(
            process=process, component="parse", type=kind, message=message, count=2, last_at=float(number),
            traceback=f'Traceback\n  File "/home/me/orders.py", line {line}, in process\n{kind}: {message}',
        )  # fmt: skip

    others = [raised(1, line=9), raised(2, kind="KeyError"), raised(3, process="parse-4")]
    tasks = LooksStore().of("", [*map(raised, range(10, 30)), *others])
    found = {name: (one.alike, one.alike_times, one.raised_times) for name, one in tasks.items()}
    assert found == {
        "parse-3": ("ValueError: order 49 of user …", 40, 40),
        "parse-4": ("ValueError: order 49 of user 3", 2, 2),
    }
    [ended] = LooksStore().of("", [Report(process="parse-3", type="Crashed", message="SIGSEGV")]).values()
    assert (ended.raised, ended.alike) == ("", ""), "no line has raised it"
