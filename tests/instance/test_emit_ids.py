"""Ids of untracked spout tuples are acked at once, however the tuple travels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.common.setting_types import InstanceSettings
from heronpy.plan.grouping import Fields, Shuffle
from instance.emitter import Emitter, OutStream

VALUES = ["small", "x" * 5000, ["a", "list"], 1 << 80, None]


@pytest.mark.parametrize("chooser", [Fields([0], [2, 3]), Shuffle([2, 3])])
def test_every_id_comes_back(chooser: Any) -> None:
    acked: list[Any] = []
    sent: list[int] = []
    stream = OutStream("default", 0, ["value"], False)
    emitter = Emitter("words", 1, [stream], InstanceSettings(), lambda d, b, n: sent.append(n), lambda: 7)
    emitter.route({"default": [chooser]})
    emit = emitter.compile_emit("spout", lambda *a: None, SimpleNamespace(has_hooks=False), acked.append)
    for number, value in enumerate(VALUES):
        emit([value], tup_id=number)
        emit([value])
    emitter.flush()
    assert acked == list(range(len(VALUES)))
    assert sum(sent) == 2 * len(VALUES)
