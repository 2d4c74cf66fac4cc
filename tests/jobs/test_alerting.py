"""One alert per cause, told to a command that may hang, fail or be missing."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from heronpy.jobs import alerting
from heronpy.jobs.alerting import WAITING_MAX, Alert, Alerts, of_decision, of_running, tell
from heronpy.jobs.manager import Syncing
from heronpy.jobs.syncer import TRIES_MAX, Running, StepError
from heronpy.scaling.capacity import Allotted
from heronpy.scaling.decisions import Alerted, Cleared, Refused
from tests.jobs.job_worlds import make_job
from tests.jobs.test_manager import Driver
from tests.support.memory_state import MemoryStateManager, MemoryStore
from tests.support.waiting import wait_for

ALERT = Alert("Day", "work", "dependency", "it waits", False, 7.0)


def writes(file: Path) -> tuple[str, ...]:
    return (sys.executable, "-c", f"import sys; open({str(file)!r}, 'a').write(sys.stdin.read())")


def test_a_plan_that_fails_is_told_once_when_it_is_given_up_and_when_it_is_over() -> None:
    state, driver = MemoryStateManager(MemoryStore()), Driver()
    store, told = make_job(state), list[Alert]()
    syncing = Syncing(store, driver, "m1", alert=told.extend)

    def breaks() -> None:
        raise StepError("day.py does not import", fatal=True)

    driver.meanwhile = breaks
    for _ in range(3):
        syncing.sync("Day")
    assert [(one.job, one.cause, one.over) for one in told] == [("Day", "plan failed", False)] * 2
    assert told[0].text == "day.py does not import"
    assert told[1].text == "not retried until the job is changed or released: day.py does not import"
    driver.meanwhile = lambda: None
    store.release("Day")
    syncing.sync("Day")
    assert [(one.cause, one.over) for one in told[2:]] == [("plan failed", True)]


def test_a_job_without_room_and_what_the_scaler_finds_are_told() -> None:
    none = Running("m", allotted=Allotted("PREEMPTED", why="no room"))
    assert of_running("Day", Running("m"), none, 7.0) == [Alert("Day", "", "preempted", "no room", False, 7.0)]
    assert of_running("Day", none, none, 8.0) == []
    assert of_running("Day", none, Running("m", tries=TRIES_MAX), 9.0)[0].over
    assert of_decision("Day", Alerted("work", "dependency", "it waits"), 7.0) == [ALERT]
    assert of_decision("Day", Cleared("work", "dependency", "no longer"), 7.0)[0].over
    assert of_decision("Day", Refused("work", "pinned", "pinned"), 7.0) == []


def test_the_command_gets_each_alert_as_json(tmp_path: Path) -> None:
    alerts, file = Alerts("local"), tmp_path / "told"
    alerts.tell([ALERT])
    alerts.command = writes(file)
    alerts.tell([ALERT, ALERT])
    wait_for(lambda: file.exists() and file.read_text().count("\n") == 2, 20.0, "two alerts")
    assert json.loads(file.read_text().splitlines()[0]) == {
        "job": "Day", "component": "work", "cause": "dependency", "text": "it waits", "over": False, "at": 7.0,
        "cluster": "local",
    }  # fmt: skip


def test_a_command_that_hangs_fails_or_is_missing_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(alerting, "COMMAND_S", 0.3)
    with caplog.at_level(logging.ERROR):
        tell(("sh", "-c", "sleep 60 & sleep 60"), ALERT)
        tell(("sh", "-c", "exit 3"), ALERT)
        tell((str(tmp_path / "missing"),), ALERT)
    hung, failed, missing = (record.getMessage() for record in caplog.records)
    assert "did not end within 0.3 s and was killed" in hung and "exit code 3" in failed and "No such file" in missing


def test_more_alerts_than_may_wait_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerting.threading.Thread, "start", lambda self: None)
    alerts = Alerts("local")
    alerts.command = writes(tmp_path / "told")
    alerts.tell([ALERT] * (WAITING_MAX + 3))
    assert alerts.discarded == 3
