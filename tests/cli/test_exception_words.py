"""Exceptions in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.cli.render.exceptions import exception_text, group_text
from heronpy.proto import control_pb2
from heronpy.tmaster.task_reports import alike
from heronpy.views import exception_groups as runtime
from heronpy.views.exception_groups import groups_of


@pytest.mark.parametrize(
    ("kind", "startup", "words"),
    [
        ("ValueError", False, "ValueError"),
        ("ValueError", True, "ValueError while it started"),
        ("heronpy.common.errors.GaveUpError", True, "GaveUpError, after which the task was not restarted"),
    ],
)
def test_it_is_said_when_a_task_ended_by_it(kind: str, startup: bool, words: str) -> None:
    report = control_pb2.ExceptionReport(type=kind, startup=startup, component="w", instance_id="w_1", count=1)
    assert words in exception_text(report).splitlines()[0].replace("heronpy.common.errors.", "")
    assert ("while it started" in exception_text(report)) is (startup and "while" in words)
    [group] = groups_of([report])
    assert words + ": once" in group_text(*group).replace("heronpy.common.errors.", "")


def test_errors_of_heronpy_come_last_and_without_a_traceback() -> None:
    def report(kind: str, at: float, *files: str) -> control_pb2.ExceptionReport:
        frames = "".join(f'  File "{file}", line 3, in work\n' for file in files)
        return control_pb2.ExceptionReport(
            type=kind, message="split 's3' has failed", traceback=f"Traceback\n{frames}{kind}: x", last_at=at, count=1
        )

    own, theirs = f"{runtime.__file__}", "/home/me/program.py"
    given = [report("heronpy.E", 9.0, own), report("heronpy.E", 8.0, own, theirs), report("KeyError", 7.0, own)]
    users, bug, last = groups_of(given)
    assert [one.of_heronpy for one, _ in (users, bug, last)] == [False, False, True]
    assert (users[0].type, bug[0].type) == ("heronpy.E", "KeyError") and bug[0].traceback
    assert "program.py:3" in users[0].where
    text = group_text(*last)
    assert "heronpy.E: once" in text and "E: split 's3' has failed" in text and "File" not in text


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([(f"order 49 of user {n} cannot be booked", 1) for n in range(49)] + [("order 3 of user 7 cannot be booked", 1)],
         ("order 49 of user … cannot be booked", 49, 50)),
        ([("no number", 3)], ("no number", 3, 3)),
        ([("no tariff for 12", 1), ("no tariff for 13", 4)], ("no tariff for …", 5, 5)),
        ([("'a'", 1), ("'b'", 1)], ("", 0, 2)),
        ([("1 of 2", 1), ("the disk is full", 9)], ("the disk is full", 9, 10)),
        ([("", 2)], ("", 0, 2)),
        ([], ("", 0, 0)),
    ],
)  # fmt: skip
def test_what_is_common_to_messages(messages: list[tuple[str, int]], found: tuple[str, int, int]) -> None:
    assert alike(messages) == found


@given(st.lists(st.tuples(st.text(" ab1", max_size=12), st.integers(1, 5)), max_size=30))
def test_no_more_messages_have_it_than_there_are(messages: list[tuple[str, int]]) -> None:
    text, having, total = alike(messages)
    assert 0 <= having <= total == sum(times for _, times in messages) and bool(text) >= bool(having)
