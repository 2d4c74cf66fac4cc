"""A disk without a free byte takes no control away: topologies are paused, restarted and killed all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.loadtest.errors import LabError
from heronpy.verify.disk import SmallDisk
from tests.support import warm
from tests.support.command import EXAMPLES, Heron

WORD_COUNT = EXAMPLES / "word_count.py"
#: More than any verb may take here; waiting for space would take longer.
SOON_S = 45.0


@pytest.fixture
def disk(heron: Heron, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    """The home of the command on a small disk of its own."""
    monkeypatch.setattr(warm, "here", None)  # a process that was started earlier does not see what is mounted now
    small = SmallDisk(heron.home, 16 << 20)
    try:
        small.__enter__()
    except LabError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    try:
        yield small
        small.empty()
        for name in heron.names():
            heron.kill(name)
    finally:
        small.__exit__(None, None, None)


def filled(disk: SmallDisk, heron: Heron, *words: object) -> str:
    """What a verb says while the disk is full."""
    disk.fill()
    return heron(*words, timeout_s=SOON_S).ok().out


@pytest.mark.heavy
def test_every_verb_that_controls_works_on_a_full_disk(heron: Heron, disk: SmallDisk) -> None:
    heron.submit(WORD_COUNT, "wc")
    assert "deactivated" in filled(disk, heron, "deactivate", "local", "wc")
    assert heron.status("wc")["lifecycle"] == "PAUSED"
    assert "activated" in filled(disk, heron, "activate", "local", "wc")
    assert "1 task back" in filled(disk, heron, "restart", "local", "wc", "--task", 2)
    assert "container 1: 4 tasks back" in filled(disk, heron, "restart", "local", "wc", 1)

    disk.fill()
    scale = ("update", "local", "wc", "--component-parallelism", "count:3")
    heron(*scale, timeout_s=SOON_S).refused(1, "nothing was updated", f"the disk of {heron.home}", "is full")
    assert heron.status("wc")["lifecycle"] == "RUNNING"

    assert "killed" in filled(disk, heron, "kill", "local", "wc")
    assert heron.names() == [] and heron.processes() == []
    disk.empty()
    heron.submit(WORD_COUNT, "wc")
    heron(*scale).ok()


def test_kill_works_when_the_reserve_is_gone_as_well(heron: Heron, disk: SmallDisk) -> None:
    heron.submit(WORD_COUNT, "wc")
    reserve = heron.home / "state" / "local" / ".reserve"
    assert reserve.stat().st_size == 1 << 20
    reserve.unlink()
    assert "killed" in filled(disk, heron, "kill", "local", "wc")
    assert heron.names() == [] and heron.processes() == []


def test_a_submit_on_a_full_disk_leaves_nothing(heron: Heron, disk: SmallDisk, home: Path) -> None:
    disk.fill()
    result = heron("submit", "local", WORD_COUNT, "wc")
    assert result.code != 0 and "space" in result.err, str(result)
    assert heron.names() == [] and heron.processes() == []
