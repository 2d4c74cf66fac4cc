"""Exceptions in words."""

from __future__ import annotations

import pytest

from heronpy.cli.render.exceptions import exception_text, group_text
from heronpy.proto import control_pb2
from heronpy.views.exception_groups import groups_of


@pytest.mark.parametrize(
    ("kind", "startup", "words"),
    [
        ("ValueError", False, "ValueError"),
        ("ValueError", True, "ValueError while it started"),
        ("heronpy.common.errors.GaveUpError", True, "GaveUpError, for which it has given up"),
    ],
)
def test_it_is_said_when_a_task_ended_by_it(kind: str, startup: bool, words: str) -> None:
    report = control_pb2.ExceptionReport(type=kind, startup=startup, component="w", instance_id="w_1", count=1)
    assert words in exception_text(report).splitlines()[0].replace("heronpy.common.errors.", "")
    assert ("while it started" in exception_text(report)) is (startup and "while" in words)
    [group] = groups_of([report])
    assert words + ": once" in group_text(group).replace("heronpy.common.errors.", "")
