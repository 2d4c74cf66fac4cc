"""What `heron submit --wait` prints where the output is no terminal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.cli.submit import watching
from heronpy.proto import control_pb2
from heronpy.views.progress import WRITING


def test_the_end_of_a_batch_run_is_one_line_for_each_state(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark may write for an hour, and may have to be waited for."""
    states = [control_pb2.LIFE_RUNNING] * 3 + [control_pb2.LIFE_DEGRADED] * 2 + [control_pb2.LIFE_FINISHED]
    replies = [
        (
            control_pb2.StatusReply(
                lifecycle=state, uptime_s=second, cause="Spark is away" if state == control_pb2.LIFE_DEGRADED else ""
            ),
            [],
        )
        for second, state in enumerate(states)
    ]
    monkeypatch.setattr(watching, "samples", lambda *_, **__: iter(replies))
    monkeypatch.setattr(watching.pipelines, "ask", lambda *_: None)
    monkeypatch.setattr(watching.pipelines, "lines", lambda _: [])
    record: Any = SimpleNamespace(topology="visits", topology_id="visits-1")
    watching.Watch(SimpleNamespace(), record, lambda: f"2 of 2 units, {WRITING}").until_finished()  # type: ignore[arg-type]
    said = [line.split()[1].rstrip(":") for line in capsys.readouterr().out.splitlines()]
    assert said == ["RUNNING", "DEGRADED", "FINISHED"]
