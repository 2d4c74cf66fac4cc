"""An executor that is given limits, and one whose machine has no control groups that can be written."""

from __future__ import annotations

import logging
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heronpy.executor.__main__ import _limit, parse
from heronpy.procs import container_group

WORDS = ["--launch=x", "--container=2", "--epoch=1", "--cpu=1.5", "--ram-bytes=1073741824"]


def test_what_its_topology_asks_for_becomes_its_limits_or_the_log_says_why_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    launch, entered = cast(Any, SimpleNamespace(topology_id="wc-1")), list[object]()
    monkeypatch.setattr(container_group, "enter", lambda *words: entered.append(words))
    with caplog.at_level(logging.INFO, "heronpy.executor"):
        assert _limit(launch, parse(WORDS)) == ""
        assert entered == [("heron.wc-1.2", os.getpid(), 1.5, 1 << 30)]

        def refuses(*_: object) -> None:
            raise PermissionError(13, "Permission denied", "/sys/fs/cgroup/memory/heron.wc-1.2")

        monkeypatch.setattr(container_group, "enter", refuses)
        assert _limit(launch, parse(WORDS)) == "[Errno 13] Permission denied: '/sys/fs/cgroup/memory/heron.wc-1.2'"
    assert caplog.messages == [
        "a control group limits container 2 to 1.5 cores and 1GB of memory",
        "container 2 is not limited to the requested 1.5 cores and 1GB of memory:"
        " [Errno 13] Permission denied: '/sys/fs/cgroup/memory/heron.wc-1.2'",
    ]
