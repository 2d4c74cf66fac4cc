"""The exceptions that the topology master remembers."""

from __future__ import annotations

from heronpy.proto import control_pb2
from heronpy.tmaster.exceptions import TRACEBACK_MAX_CHARS, ExceptionStore, last_line


def report(task: int = 1, message: str = "boom", **more: object) -> control_pb2.ExceptionReport:
    return control_pb2.ExceptionReport(
        process=f"container_1_word_{task}",
        task_id=task,
        component="word",
        type="ValueError",
        message=message,
        traceback=f"Traceback\nValueError: {message}\n",
        **more,
    )


def test_equal_exceptions_are_counted() -> None:
    store = ExceptionStore(10)
    store.add(report(first_at=5, last_at=5))
    store.add(report(first_at=3, last_at=9, count=4))
    store.add(report(task=2, first_at=1, last_at=1))
    (entry,) = store.select(task_id=1)
    assert (entry.count, entry.first_at, entry.last_at) == (5, 3, 9)
    assert [e.task_id for e in store.select("word")] == [2, 1]
    assert store.select("other") == []


def test_ends_of_a_process_are_one_entry_with_the_last_message() -> None:
    """They have no traceback, and numbers that differ each time."""
    store = ExceptionStore(10)
    for used in (201, 305):
        store.add(control_pb2.ExceptionReport(process="p", task_id=1, type="OutOfMemory", message=f"used {used}MB"))
    store.add(control_pb2.ExceptionReport(process="p", task_id=1, type="Crashed", message="signal SIGSEGV"))
    assert [(e.type, e.count, e.message) for e in store.select()] == [
        ("Crashed", 1, "signal SIGSEGV"),
        ("OutOfMemory", 2, "used 305MB"),
    ]


def test_oldest_makes_room_and_is_counted() -> None:
    store = ExceptionStore(2)
    store.add(report(message="a", count=3, startup=True))
    store.add(report(message="b"))
    store.add(report(message="c"))
    store.validate()
    assert len(store) == 2 and store.discarded == 3
    assert store.startup_of(1) is None


def test_last_line_and_long_tracebacks() -> None:
    assert last_line(report()) == "ValueError: boom"
    assert last_line(control_pb2.ExceptionReport(type="OSError", message="x\ny")) == "OSError: x"
    store = ExceptionStore(2)
    long = report()
    long.traceback = "x" * (TRACEBACK_MAX_CHARS * 2) + "ValueError: boom"
    store.add(long)
    (kept,) = store.select()
    assert len(kept.traceback) < TRACEBACK_MAX_CHARS + 100
    assert kept.traceback.endswith("ValueError: boom")
