"""Bad links between stream managers, and to the topology master, under the oracle (F12-F16)."""

from __future__ import annotations

import pytest

from tests.fault.conftest import Verify

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]


def test_partitions(verify: Verify) -> None:
    """F12, F13: both ways, one way, flapping, and from the topology master; no loss at most once, either."""
    [document] = verify("ATMOST_ONCE", "F12", "F13", together=True)
    assert document["notes"]["proxy"]["connections"] >= 6
    assert document["verdict"]["loss"] == 0


@pytest.mark.parametrize("mode", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_resets_delays_and_flipped_bits(verify: Verify, mode: str) -> None:
    """F14: damaged frames are detected and their links opened again."""
    [document] = verify(mode, "F14", together=True)
    counts = document["notes"]["proxy"]
    assert counts["resets"] > 0 and counts["corruptions"] > 0


def test_a_narrow_link_and_half_open_connections(verify: Verify) -> None:
    """F15, F16."""
    verify("EFFECTIVELY_ONCE", "F15", "F16", together=True)
