"""Jobs by REST: read as `heron job show` has them, and changed by the store's function, layer and version named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.jobs.store import Store
from heronpy.statemgr import open_state
from tests.jobs.job_worlds import make_job
from tests.tracker.conftest import Asking

DAY = "/api/v1/jobs/local/Day"


@pytest.fixture
def store(asking: Asking, home: Path) -> Iterator[Store]:
    state = open_state("local", str(home / "state" / "local"))
    yield make_job(state)
    state.close()


def change(asking: Asking, layer: str, version: str | None, body: dict[str, Any], job: str = DAY) -> Any:
    headers = {"X-Heron": "1", **({"If-Match": version} if version is not None else {})}
    return asking.ask("POST", f"{job}/layers/{layer}", json=body, headers=headers)


def test_a_layer_is_read_and_changed_with_the_version_that_was_seen(asking: Asking, store: Store) -> None:
    [row] = asking.get("/api/v1/jobs")
    assert (row["cluster"], row["job"], row["state"]) == ("local", "Day", "NEW")
    found = asking.get(DAY)
    assert asking.get("/api/v1/jobs?job=Day&cluster=local") == [{"cluster": "local", **found}]
    assert asking.get("/api/v1/jobs?job=Dya") == []
    assert found["document"]["parallelism"]["work"] == 10 and found["versions"]["oncall"] == 0
    assert found["origin"]["parallelism.work"]["layer"] == "provisioner" and found["scaler"]["components"] == {}

    done = change(asking, "oncall", '"0"', {"set": {"parallelism": {"work": 6}}, "for_s": 60, "why": "backfill"}).json()
    assert done["versions"]["oncall"] == 1 and done["document"]["parallelism"]["work"] == 6
    entry = store.get("Day").found["parallelism", "work"].entry
    assert (
        entry.stamp.why == "backfill" and entry.stamp.who.endswith("at the tracker") and entry.stamp.until is not None
    )
    # Another key is merged, the same one is refused with both values.
    assert change(asking, "oncall", "0", {"set": {"run": "paused"}}).json()["versions"]["oncall"] == 2
    stale = change(asking, "oncall", "0", {"set": {"parallelism": {"work": 7}}})
    assert stale.status_code == 412 and "was set to 6 by" in stale.json()["title"]
    assert change(asking, "oncall", "2", {"unset": ["run"]}).json()["versions"]["oncall"] == 3
    assert change(asking, "oncall", "3", {"revert": 2}).json()["document"]["run"] == "paused"


@pytest.mark.parametrize(
    ("layer", "version", "body", "status", "said"),
    [
        ("scaler", "0", {"set": {"parallelism": {"work": 2}}}, 400, "layer scaler cannot be written by hand"),
        ("base", "0", {"set": {"priority": 2}}, 400, "layer base cannot be written by hand; change jobs.yaml"),
        ("oncal", "0", {"set": {"run": "paused"}}, 400, "did you mean 'oncall'"),
        ("oncall", None, {"set": {"run": "paused"}}, 428, "needs the header If-Match"),
        ("oncall", "*", {"set": {"run": "paused"}}, 428, "needs the header If-Match"),
        ("oncall", "9", {"set": {"run": "paused"}}, 400, "has version 0 and not 9"),
        ("oncall", "0", {}, 400, "one of set, unset and revert"),
        ("oncall", "0", {"unset": ["run"], "for_s": 3}, 400, "for_s with set alone"),
        ("oncall", "0", {"set": {"parallelism": {"wrk": 2}}}, 400, "did you mean 'work'"),
        ("oncall", "0", {"set": {"definition": "a" * 64}}, 400, "heron job deploy"),
        ("oncall", "0", {"sett": {}}, 400, "the body does not fit"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_changes_nothing(
    asking: Asking, store: Store, layer: str, version: str | None, body: dict[str, Any], status: int, said: str
) -> None:
    before = store.get("Day")
    answer = change(asking, layer, version, body)
    assert answer.status_code == status and said in answer.json()["title"], answer.text
    assert store.get("Day") == before
    missing = change(asking, "oncall", "0", {"set": {"run": "paused"}}, "/api/v1/jobs/local/Dya")
    assert missing.status_code == 404 and "there is no job 'Dya'; did you mean 'Day'?" in missing.json()["title"]
    assert asking.ask("GET", "/api/v1/jobs/nix/Day").status_code == 404
