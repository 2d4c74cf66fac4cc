"""Jobs by REST: read as `heron job show` has them, and changed by the store's function, layer and version named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.jobs.driver import TopologyDriver
from heronpy.jobs.manager import minutes_of
from heronpy.jobs.store import Scaled, Store
from heronpy.jobs.syncer import Running
from heronpy.plan.launch import SLOT
from heronpy.pools.shards import BUCKETS, Answer, Map, Owner, Pool, Size, Spec, bucket_of, pack, shard_of
from heronpy.proto import plan_pb2
from heronpy.scaling.capacity import Amount
from heronpy.scaling.figures import Figures, Observation
from heronpy.scaling.slo import Attainment
from heronpy.scaling.state import State
from heronpy.statemgr import open_state, paths
from heronpy.tracker.guard import Scope
from heronpy.tracker.jobs import without_settings
from heronpy.tracker.tokens import Tokens
from tests.cli.conftest import Heron, heron
from tests.jobs.job_worlds import make_job, make_pool, record_minutes
from tests.support.command import USAGE
from tests.tracker.conftest import Asking

__all__ = ["heron"]

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
    assert (row["tasks"], row["running"], row["slo_kept"], row["decided"], row["kept"]) == (12, 0, None, None, False)
    found = asking.get(DAY)
    assert asking.get("/api/v1/jobs?job=Day&cluster=local") == [found]
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
        ("oncall", "9", {"set": {"run": "paused"}}, 400, "has version 0, not 9"),
        ("oncall", "0", {}, 400, "one of set, unset and revert"),
        ("oncall", "0", {"unset": ["run"], "for_s": 3}, 400, "for_s needs set"),
        ("oncall", "0", {"set": {"parallelism": {"wrk": 2}}}, 400, "did you mean 'work'"),
        ("oncall", "0", {"set": {"definition": "a" * 64}}, 400, "heron job deploy"),
        ("oncall", "0", {"sett": {}}, 400, "the body is invalid"),
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


def test_a_release_needs_the_version_of_the_document(asking: Asking, store: Store) -> None:
    def released(**headers: str) -> Any:
        return asking.ask("POST", DAY + "/release", json={}, headers={"X-Heron": "1", **headers})

    assert released().status_code == 428
    failed = Running("", "id", state="QUARANTINED", failure="the program crashes: order 4711")
    store.put_running("Day", failed, 0)
    assert asking.get("/api/v1/jobs")[0]["why"].endswith("order 4711")
    version = asking.get(DAY)["version"]
    store.set("Day", "oncall", {"run": "paused"}, 0, "ada", "")
    stale = released(**{"If-Match": str(version)})
    assert stale.status_code == 412 and stale.json()["title"] == "job 'Day' has version 2 now, not 1"
    assert asking.get(DAY)["state"] == "QUARANTINED"
    assert released(**{"If-Match": "2"}).json() == {"job": "Day", "released": True}
    assert asking.get(DAY)["state"] == "WAITING"


def test_a_stopped_job_has_no_lag_and_no_figures(asking: Asking, store: Store) -> None:
    work = Figures(name="work", is_spout=False, tasks=10, busy=0.5)
    look = Observation(topology="Day", at=1000.0, components=(work,), end_to_end_s=3.0)
    slo = State(slo=Attainment(measured_s=60.0))
    store.put_scaled("Day", Scaled(store.get("Day").created, slo, look), 0)
    version = 0
    for run, lag_s, components in (("running", 3.0, ["work"]), ("stopped", None, [])):
        leaves = ((("parallelism", "work"), 10), (("run",), run))
        version = store.put_running("Day", Running("", "Day-1", leaves, state="IN_SYNC"), version)
        scaler = asking.get(DAY)["scaler"]
        row = asking.get("/api/v1/jobs")[0]
        assert row["lag_s"] == scaler["lag_s"] == lag_s and row["old_at"] == (1000.0 if components else None)
        assert row["slo_kept"] is scaler["slo_kept"] is None, "it promises nothing"
        assert list(scaler["components"]) == components and (scaler["at"] is None) == (not components)


def test_the_token_view_sees_numbers_and_neither_settings_nor_reasons(asking: Asking, store: Store) -> None:
    given = {
        "parallelism": {"work": 6},
        "settings": {"heron.checkpoint.interval_s": 17},
        "config": {"key.of": "s3cret"},
    }
    store.set("Day", "oncall", given, 0, "ada", "s3cret")
    store.decided("Day", "scaler", "work", "skewed by s3cret")
    leaves = ((("definition",), store.get("Day").document.definition),)
    store.put_running("Day", Running("", leaves=leaves, state="WAITING", failure="s3cret"), 0)
    assert "settings.heron.checkpoint.interval_s" in asking.get(DAY)["blamed"]
    view = {"Authorization": f"Bearer {Tokens(asking.folder).create(Scope.VIEW)}"}
    for path in ("/api/v1/jobs", "/api/v1/jobs?job=Day", DAY):
        assert "s3cret" in asking.ask("GET", path).text
        seen = asking.ask("GET", path, headers=view)
        assert seen.status_code == 200 and "s3cret" not in seen.text and "interval" not in seen.text
    found = asking.get(DAY, headers=view)
    assert found["document"]["parallelism"]["work"] == 6 and found["origin"]["parallelism.work"]["who"] == "ada"
    assert found["blamed"] == ["parallelism.work"]
    assert found["failure"] == found["decisions"][0]["text"] == "the token 'all' shows the reason"
    answer = asking.ask("POST", DAY + "/release", json={}, headers={"X-Heron": "1", "If-Match": "2", **view})
    assert answer.status_code == 403


def test_no_token_and_no_log_shows_a_secret(asking: Asking, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Nor a conflict, whose sentence quotes what others have set."""
    caplog.set_level("INFO")
    given = {"config": {"db.password": "s3cret", "broker": "amqp://me:s3cret@host"}, "parallelism": {"work": 6}}
    store.set("Day", "oncall", given, 0, "ada", "")
    found = asking.ask("GET", DAY)
    assert found.status_code == 200 and "s3cret" not in found.text and found.json()["document"]["parallelism"]
    for version, value in (("0", "mine"), ("1", {"a": 1})):
        change = {"set": {"config": {"db.password": value}}}
        refused = asking.ask("POST", DAY + "/layers/oncall", json=change, headers={"X-Heron": "1", "If-Match": version})
        assert refused.status_code in (400, 412) and "s3cret" not in refused.text
    change = {"set": {"parallelism": {"work": 5}}}
    changed = asking.ask("POST", DAY + "/layers/oncall", json=change, headers={"X-Heron": "1", "If-Match": "1"})
    assert changed.status_code == 200 and "s3cret" not in changed.text
    assert "requested a change" in caplog.text and "s3cret" not in caplog.text and "mine" not in caplog.text


def test_a_setting_which_may_name_a_program_is_refused(asking: Asking, store: Store) -> None:
    change = {"set": {"settings": {"heron.engine.python": "/tmp/py"}}}
    refused = asking.ask("POST", DAY + "/layers/oncall", json=change, headers={"X-Heron": "1", "If-Match": "0"})
    assert refused.status_code == 403 and "heron job set local Day settings.KEY=VALUE" in refused.text


def test_the_token_view_sees_components_with_any_name() -> None:
    components = {name: {"tasks": 1} for name in ("document", "origin", "blamed", "failure", "why", "text")}
    job = {"document": {"config": {"a": 1}}, "origin": {"config.a": {}}, "scaler": {"components": components}}
    job |= {"blamed": ["config.a"], "ignored": ["component_config.old.password", "parallelism.x"], "why": "s3cret"}
    assert without_settings(job) == {
        "document": {}, "origin": {}, "scaler": {"components": components}, "blamed": [], "ignored": ["parallelism.x"],
        "why": "the token 'all' shows the reason",
    }  # fmt: skip


def test_tasks_for_which_a_pool_has_no_room_are_refused_with_the_sentence_of_the_command(
    asking: Asking, store: Store, heron: Heron, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    needs = {"read": Amount(), "work": Amount(1.0, 100), "call": Amount()}, Amount()
    monkeypatch.setattr(TopologyDriver, "needs", lambda self, job, leaves: needs)
    store.set("Day", "provisioner", {"place": {"pool": "small"}}, 1, "ada", "")
    store.unset("Day", "provisioner", ["scale"], 2, "ada", "")
    state = open_state("local", str(home / "state" / "local"))
    try:
        make_pool(state, 12)
        assert change(asking, "oncall", "0", {"set": {"parallelism": {"work": 12}}}).status_code == 200
        told = heron("job", "set", "local", "Day", "parallelism.work=20", "--detach")
        refused = change(asking, "oncall", "1", {"set": {"parallelism": {"work": 20}}})
        sentence = refused.json()["title"]
        assert (told.code, refused.status_code, told.err) == (USAGE, 400, f"error: {sentence}\n")
        assert sentence.startswith("job 'Day' would not run in pool 'small': it needs at least 20 cores")
        assert sentence.endswith("set parallelism.work=12, which fits, or add slots to the pool")

        assert change(asking, "oncall", "1", {"set": {"parallelism": {"work": 4}}}).status_code == 200
        make_pool(state, 6)
        for verb, body in (
            (("unset", "local", "Day", "parallelism.work"), {"unset": ["parallelism"]}),
            (("revert", "local", "Day", "--as", "oncall"), {"revert": 1}),
        ):
            told = heron("job", *verb, "--detach")
            refused = change(asking, "oncall", "2", body)
            assert told.code == USAGE and told.err == f"error: {refused.json()['title']}\n"
            assert "set parallelism.work=6, which fits" in told.err
        assert store.get("Day").versions["oncall"] == 2
    finally:
        state.close()


def test_the_minutes_of_a_job_are_lines(asking: Asking, store: Store) -> None:
    assert asking.get(DAY + "/minutes")["series"][0] == {"component": "", "metric": "lag_s", "values": []}
    store.set("Day", "oncall", {"slo": {"lag_s": 5}}, 0, "ada", "")
    file = minutes_of("local", "Day")
    record_minutes(file)
    found = asking.get(f"{DAY}/minutes?since=1000000002&points=3")
    lines = {(one["component"], one["metric"]): one["values"] for one in found["series"]}
    assert found["times"] == [1e9 + 3, 1e9 + 5, 1e9 + 7] and found["kept_from"] == 1e9 + 3
    assert lines["", "lag_s"] == [6.0, 10.0, 14.0] and lines["", "slo_lag_s"] == [5.0] * 3
    assert lines["work", "tasks"] == [3.0, 5.0, 7.0] and lines["work", "load_per_s"] == [42.0] * 3
    file.write_bytes(b"no history" * 100)
    assert "cannot be read now" in asking.ask("GET", DAY + "/minutes").json()["title"]
    assert file.read_bytes().startswith(b"no history"), "a reader sets nothing aside"


def test_pools_are_listed_and_shown(asking: Asking, home: Path) -> None:
    assert asking.get("/api/v1/pools") == []
    state = open_state("local", str(home / "state" / "local"))
    try:
        size = Size(4.0, 4 << 30)
        record = plan_pb2.ExecutionState(topology="small", topology_id="small-1", cluster="local", program=SLOT)
        state.create(paths.execution_state("small"), record.SerializeToString())
        state.create(paths.pool("small"), pack(Pool(2, 128, size, drained=(2,), members={"Day": "Day-1"})))
        [bucket, shard] = bucket_of("Day-1"), shard_of(("Day-1", 1), 128)
        spec = Spec("Day", "Day-1", "", {1: Size(1.0, 1 << 30)})
        owners = tuple(Owner(1 if number != shard else 2, 1, 1) for number in range(128))
        buckets = tuple(int(number == bucket) for number in range(BUCKETS))
        state.create(paths.pool_map("small"), pack(Map(1, owners, buckets)))
        state.create(paths.pool_specs("small", bucket), pack((spec,)))
        state.create(paths.pool_slot("small", 2), pack(Answer(1, 1, loads={"Day-1/1": Size(0.5, 3 << 30)})))
        [row] = asking.get("/api/v1/pools?cluster=local")
        assert (row["pool"], row["slots_wanted"], row["shards"], row["topologies"]) == ("small", 2, 128, ["Day"])
        found = asking.get("/api/v1/pools/local/small")
        first, second = found["slots"]
        assert not found["scheduler"] and first["state"] == "unknown" and first["shards"] == 127
        assert (second["state"], second["cpu"], second["ram_bytes"], second["load"]) == ("drained", 0.5, 3 << 30, 0.75)
        missing = asking.ask("GET", "/api/v1/pools/local/smal")
        assert missing.status_code == 404 and "did you mean 'small'" in missing.json()["title"]
    finally:
        state.close()
