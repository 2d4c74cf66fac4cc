"""Full disks, damaged files, few descriptors and verbs at bad times, under the oracle (F21, F23, F24, F26, F34)."""

from __future__ import annotations

import pytest

from tests.fault.conftest import Verify

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]


@pytest.mark.parametrize("disk", ["store", "logs", "state", "packages", "spark-handover", "spark-table"])
def test_a_full_disk(verify: Verify, disk: str) -> None:
    """F21: the topology runs on, what fails is counted and said, and all is well when there is space again."""
    verify("EFFECTIVELY_ONCE", f"F21-{disk}")


def test_damaged_checkpoints(verify: Verify) -> None:
    """F23: a flipped bit, a truncated, deleted or emptied file, swapped metadata: found, named, the one before used."""
    damaged, none, _ = verify("EFFECTIVELY_ONCE", "F23")
    assert damaged["notes"]["damages"] == 7
    assert "metadata" in none["notes"]["cause"]


def test_a_damaged_or_newer_state_manager(verify: Verify) -> None:
    """F24: garbage is named and cured by the right content; unknown fields are kept."""
    verify("EFFECTIVELY_ONCE", "F24")


def test_few_files(verify: Verify) -> None:
    """F26: refused as a whole, in one sentence, and nothing is left of it."""
    verify("ATMOST_ONCE", "F26")


def test_verbs_twice_at_once_and_killed(verify: Verify) -> None:
    """F34: submit, update and kill happen once or not at all."""
    verify("EFFECTIVELY_ONCE", "F34")
