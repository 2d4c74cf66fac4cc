"""`transport_cost.py`: messages come back out of a stream however it is cut; a short run of each transport."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def transport_cost(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import transport_cost

    return transport_cost


@given(st.lists(st.binary(max_size=20), max_size=10), st.lists(st.integers(1, 9), min_size=1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_stream_may_be_cut_anywhere(transport_cost: ModuleType, messages: list[bytes], cuts: list[int]) -> None:
    stream, frames, found = b"".join(map(transport_cost.framed, messages)), transport_cost.Frames(), []
    while stream:
        size = cuts[len(stream) % len(cuts)]
        found += frames.of(stream[:size])
        stream = stream[size:]
    assert found == messages


@pytest.mark.parametrize("name", ["zmq", "unix", "pipe"])
@pytest.mark.parametrize("rate", [500.0, 0.0])
def test_every_message_arrives_and_is_accounted_for(transport_cost: ModuleType, name: str, rate: float) -> None:
    found = transport_cost.measure(name, rate, 0.2)
    assert found["received"] == found["sent"] > 0 and found["cpu"] > 0 and found["switches"] > 0
    assert not rate or found["sent"] == 100
    assert 0 <= found["p50_ms"] <= found["p99_ms"]
    assert transport_cost.row(name, rate, found).count("|") == 9


def test_wrong_words_are_named() -> None:
    for words in (["--only", "pigeon"], ["--rates", "many"], ["--seconds", "16"]):
        done = subprocess.run(
            [sys.executable, str(SCRIPTS / "transport_cost.py"), *words], capture_output=True, text=True
        )
        assert done.returncode == 2 and "error:" in done.stderr and "Traceback" not in done.stderr
