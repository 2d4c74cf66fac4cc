"""The minutes of a job: bounded, kept, and set aside when they are damaged."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from heronpy.common.errors import StateError
from heronpy.scaling.figures import Past, Times
from heronpy.scaling.history import COMPONENTS_MAX, History

TIMES = Times.of(1440.0)
DAY, LOOK = TIMES.day_s, TIMES.look_s


def filled(file: Path, days: int) -> History:
    history = History(file, TIMES)
    for look in range(int(days * DAY / LOOK) + 1):
        at = look * LOOK
        history.add(at, {"work": (100.0 + 10 * (at // DAY) + (500 if at % DAY == 300 else 0), 7.0)})
    return history


def test_other_days_at_this_clock_time(tmp_path: Path) -> None:
    history = filled(tmp_path / "Day.sqlite", 3)
    past = history.past(["work", "new"], 3 * DAY)
    assert past["work"].days == 2, "of the first day the half hour before is not known"
    assert past["work"].ahead == 620.0 and past["work"].ahead_keys == 7.0, "the most within 8 hours, of all days"
    assert past["new"] == Past()
    history.close()
    again = History(tmp_path / "Day.sqlite", TIMES)
    assert again.past(["work"], 3 * DAY)["work"] == past["work"], "a deploy changes nothing"
    again.close()


def test_two_weeks_are_kept_and_no_more(tmp_path: Path) -> None:
    history = filled(tmp_path / "Day.sqlite", 20)
    size = sum(one.stat().st_size for one in tmp_path.iterdir())
    for look in range(int(20 * DAY / LOOK), int(40 * DAY / LOOK)):
        history.add(look * LOOK, {"work": (1.0, None)})
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) < 1.5 * size
    history.add(5.0, {f"c{number:03}": (1.0, None) for number in range(COMPONENTS_MAX + 3)})
    assert history.dropped == 3
    assert history.past(["work"], 10.0)["work"] == Past(), "what is later than now is forgotten"
    history.close()


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    file = tmp_path / "Day.sqlite"
    filled(file, 2).close()
    file.write_bytes(b"garbage" * 1000)
    history = History(file, TIMES)
    assert "Day.sqlite is damaged" in history.notice and "Day.damaged" in history.notice
    history.add(60.0, {"work": (1.0, None)})
    history.close()
    assert (tmp_path / "Day.damaged").read_bytes().startswith(b"garbage")
    with pytest.raises(StateError, match="cannot be opened"):
        History(tmp_path / "missing" / "Day.sqlite", TIMES)


def test_on_a_full_disk_it_says_so_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    history = filled(tmp_path / "Day.sqlite", 1)
    past, (soft, hard) = history.past(["work"], DAY), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        with pytest.raises(StateError, match=r"the history of a job cannot be used now .*; check its disk"):
            for look in range(1000):
                history.add(DAY + look * LOOK, {"work": (1.0, None)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert history.past(["work"], DAY) == past
    history.add(DAY + 2000 * LOOK, {"work": (1.0, None)})
    history.close()
