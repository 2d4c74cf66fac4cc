from __future__ import annotations

import threading
import time
from dataclasses import replace

import pyarrow as pa
import pytest

from heronpy.common.errors import ConfigError, FencedError, StateError
from heronpy.connectors.durable_files import run_token, safe_name
from heronpy.connectors.spark.handover import Folder, Manifest, parse_stem
from heronpy.connectors.spark.outbox import Outbox
from heronpy.connectors.spark.tables import publish
from heronpy.spark.batch import Batch
from heronpy.spark.inbox import OUTCOMES_KEPT, Inbox
from heronpy.spark.lanes import Ticket

RUN = run_token("T-1")
ROWS = pa.table({"n": [1, 2, 3]})


def outbox(tmp_path, run=RUN, keep=False, task=3):
    return Outbox(Folder(tmp_path, "store"), "store", task, run, keep)


def tickets(inbox):
    return list(inbox.scan())


def test_a_batch_is_seen_claimed_committed_and_its_rows_removed(tmp_path):
    box, inbox = outbox(tmp_path), Inbox(tmp_path, RUN)
    written = box.write(ROWS)
    (ticket,) = tickets(inbox)
    manifest = inbox.claim(ticket)
    assert manifest is not None and replace(manifest, waited_s=0.0) == written and manifest.rows == 3
    inbox.save(ticket, manifest)
    assert inbox.claim(ticket) == manifest, "a claimed batch can be gone on with"
    with pa.memory_map(str(inbox.rows_file(ticket))) as source:
        assert pa.ipc.open_file(source).read_all() == ROWS
    outcome = inbox.commit(ticket, manifest)
    assert outcome.committed and inbox.claim(ticket) is None
    assert tickets(inbox) == []
    assert list(inbox.folder("store").inbox.iterdir()) == list(inbox.folder("store").claimed.iterdir()) == []


def test_the_outcome_has_the_times_of_the_batch(tmp_path):
    box, inbox = outbox(tmp_path), Inbox(tmp_path, RUN)
    box.write(ROWS)
    (ticket,) = tickets(inbox)
    began = time.time()
    # It came an hour ago: the clock that its file shows cannot be set back, so this one is set forward.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("heronpy.spark.inbox.time.time", lambda: began + 3600)
        manifest = inbox.claim(ticket)
        manifest.run_s = 2.5
        inbox.commit(ticket, manifest)
    outcome = inbox.folder("store").outcome(ticket.stem)
    assert 3590 < outcome.waited_s < 3660 and outcome.run_s == 2.5
    assert 0 <= outcome.publish_s < 60 and outcome.ended_at == began + 3600


def test_the_time_that_a_batch_waited_outlives_a_gateway(tmp_path):
    box, inbox = outbox(tmp_path), Inbox(tmp_path, RUN)
    box.write(ROWS)
    (ticket,) = tickets(inbox)
    manifest = inbox.claim(ticket)
    manifest.waited_s, manifest.run_s, manifest.started = 7.0, 1.5, 1
    inbox.save(ticket, manifest)
    again = Inbox(tmp_path, RUN)
    outcome = again.fail(ticket, again.claim(ticket), "it raised")
    assert (outcome.waited_s, outcome.run_s, outcome.publish_s) == (7.0, 1.5, 0.0) and outcome.ended_at > 0


def test_numbers_and_ids_are_never_reused(tmp_path):
    ids = []
    for _ in range(4):
        box = outbox(tmp_path)
        ids += [box.write(ROWS).id, box.write(ROWS).id]
    numbers = [int(i.split("-")[2]) for i in ids]
    assert len(set(ids)) == 8 and numbers == sorted(set(numbers))


def test_ids_of_two_submissions_differ(tmp_path):
    assert outbox(tmp_path / "a").write(ROWS).id != outbox(tmp_path / "b", run=run_token("T-2")).write(ROWS).id


def test_a_new_incarnation_withdraws_what_was_not_claimed(tmp_path):
    old, inbox = outbox(tmp_path), Inbox(tmp_path, RUN)
    for _ in range(3):
        old.write(ROWS)
    first = tickets(inbox)[0]
    inbox.claim(first)
    new = outbox(tmp_path)
    assert (new.takeover.withdrawn, new.takeover.kept, new.takeover.claimed) == (2, 0, 1)
    assert tickets(inbox) == [first] and inbox.rows_file(first).exists()
    assert len(list(old.folder.inbox.iterdir())) == 1
    with pytest.raises(FencedError, match="replaced by a newer process"):
        old.write(ROWS)
    assert new.write(ROWS).number > 3


def test_where_nothing_is_replayed_leftovers_are_kept(tmp_path):
    old, inbox = outbox(tmp_path, keep=True), Inbox(tmp_path, RUN)
    written = [old.write(ROWS).stem for _ in range(3)]
    new = outbox(tmp_path, keep=True)
    assert (new.takeover.withdrawn, new.takeover.kept) == (0, 3)
    assert [ticket.stem for ticket in tickets(inbox)] == written
    assert all(inbox.claim(ticket) for ticket in tickets(inbox))


def test_the_gateway_refuses_a_zombie(tmp_path):
    old, inbox = outbox(tmp_path), Inbox(tmp_path, RUN)
    outbox(tmp_path)
    # The old process passed its own check just before it was replaced.
    old._check_permit = lambda: None
    old.write(ROWS)
    (ticket,) = tickets(inbox)
    assert inbox.claim(ticket) is None and tickets(inbox) == []


def test_batches_of_another_submission_are_dropped(tmp_path):
    old = outbox(tmp_path, run=run_token("T-0"), keep=True)
    old.write(ROWS)
    old.write(ROWS)
    inbox = Inbox(tmp_path, RUN)
    old_inbox = Inbox(tmp_path, run_token("T-0"))
    assert old_inbox.claim(tickets(inbox)[0])
    assert [inbox.claim(ticket) for ticket in tickets(inbox)] == [None, None]
    assert tickets(inbox) == []


def test_rows_without_a_manifest_are_removed_by_the_successor(tmp_path):
    box = outbox(tmp_path)
    (box.folder.inbox / "3-0000000009-1.arrow").write_bytes(b"x")
    (box.folder.inbox / ".3-0000000010-1.arrow.tmp").write_bytes(b"x")
    (box.folder.inbox / "4-0000000001-1.arrow").write_bytes(b"of another task")
    new = outbox(tmp_path)
    assert [path.name for path in box.folder.inbox.iterdir()] == ["4-0000000001-1.arrow"]
    assert new.write(ROWS).number == 10


def test_a_damaged_manifest_is_an_error_not_a_crash(tmp_path):
    box, inbox = outbox(tmp_path), Inbox(tmp_path, RUN)
    stem = box.write(ROWS).stem
    (box.folder.inbox / f"{stem}.json").write_bytes(b"{")
    with pytest.raises(StateError, match="damaged"):
        inbox.claim(Ticket("store", stem))
    assert not inbox.fail(Ticket("store", stem), None, "damaged").committed
    assert tickets(inbox) == []


def test_outcomes_are_bounded(tmp_path):
    box, inbox = outbox(tmp_path), Inbox(tmp_path, RUN)
    for _ in range(OUTCOMES_KEPT + OUTCOMES_KEPT // 2):
        box.write(ROWS)
        (ticket,) = tickets(inbox)
        inbox.commit(ticket, inbox.claim(ticket))
    assert OUTCOMES_KEPT <= len(list(box.folder.done.iterdir())) <= OUTCOMES_KEPT + OUTCOMES_KEPT // 4


@pytest.mark.parametrize("name", ["store", "a.b-c_1"])
def test_plain_component_names_are_kept(name):
    assert safe_name(name) == name


def test_other_component_names_are_made_plain_and_stay_apart():
    names = {safe_name(n) for n in ("a b", "a/b", "../x", ".", "_s", "ä", "")}
    assert len(names) == 7 and all("/" not in n and not n.startswith((".", "_")) for n in names)


def test_names_of_files():
    assert parse_stem("3-0000000012-1") == (3, 12, 1)
    for name in ("", "x", "3-1", "../3-1-1", "3-1-1/x", "3-1-1\n"):
        assert parse_stem(name) is None


# -- publication ------------------------------------------------------------------------------


def batch(attempt=1, number=1):
    manifest = Manifest("store-3-1-x", RUN, "store", 3, 1, number, 0, 3, False, started=attempt)
    return Batch(manifest, {"output": "o"})


def test_an_attempt_is_invisible_until_published_and_published_once(tmp_path):
    import pyarrow.parquet as pq

    table = tmp_path / "table"
    first, second = batch(1), batch(2)
    first.write_parquet(ROWS, table)
    second.write_parquet(ROWS, table)
    second.write_parquet(ROWS.to_pandas(), table)
    assert pq.read_table(table).num_rows == 0 if any(table.glob("batch=*")) else True
    tables = second.staged_tables()
    publish(tables)
    publish(tables)
    assert pq.read_table(table).num_rows == 6
    assert [path.name for path in table.iterdir()] == ["batch=store-3-1-x"]


def test_publishing_what_somebody_removed_is_an_error(tmp_path):
    attempt = batch()
    attempt.write_parquet(ROWS, tmp_path / "t")
    tables = attempt.staged_tables()
    attempt.drop_staged()
    with pytest.raises(ConfigError, match="are gone"):
        publish(tables)


def test_paths_must_be_absolute():
    with pytest.raises(ConfigError, match="must be absolute"):
        batch().write_parquet(ROWS, "table")


def test_a_path_of_the_batch_is_the_same_in_every_attempt(tmp_path):
    assert batch(1).path(tmp_path / "x", ".csv") == batch(2).path(tmp_path / "x", ".csv")


def test_what_is_no_frame_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="not list"):
        batch().write_parquet([1], tmp_path)


def test_batches_staged_and_published_at_once_do_not_disturb_each_other(tmp_path):
    """Whoever publishes removes the staging folder when it is empty, maybe just when another is about to use it."""
    table, failures = tmp_path / "t", []

    def work(task):
        try:
            for number in range(1, 41):
                attempt = Batch(Manifest(f"b-{task}-{number}", RUN, "store", task, 1, number, 0, 3, False), {})
                attempt.write_parquet(ROWS, table)
                publish(attempt.staged_tables())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(task,)) for task in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(table.glob("batch=*/*.parquet"))) == 160 and not (table / "_staging").exists()
