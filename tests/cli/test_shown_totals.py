"""What became of all tuples, as status, top and the end of a watched submit show it."""

from __future__ import annotations

import json

import pytest

from heronpy.cli.render import containers, summary
from heronpy.proto import control_pb2, topology_pb2
from tests.cli.conftest import FakeTopology, Heron


def test_every_view_shows_the_cause_behind_the_state(heron: Heron, wordy: FakeTopology) -> None:
    wordy.status.lifecycle = control_pb2.LIFE_DEGRADED
    wordy.status.cause = "1 of 2 tasks of count is down, restart 7 of 10, next in 4 s"
    for verb in (("status", "local", "wordy"), ("list", "local"), ("top", "local", "wordy", "-n", "1")):
        assert f"DEGRADED: {wordy.status.cause}" in heron(*verb).out, verb
    assert json.loads(heron("list", "local", "--json").out)[0]["cause"] == wordy.status.cause
    [row] = [line for line in heron("list", "local").out.splitlines() if "default" in line]
    assert "DEGRADED" in row and "count" not in row, "the state column has the word alone"


def test_losses_are_part_of_the_state(heron: Heron, wordy: FakeTopology) -> None:
    wordy.status.lifecycle = control_pb2.LIFE_FINISHED
    totals = wordy.status.totals
    totals.acked, totals.failed, totals.replayed = 1000, 7, 9
    assert "FINISHED WITH LOSSES" not in heron("status", "local", "wordy").out
    assert json.loads(heron("status", "local", "wordy", "--json").out)["losses"] is None
    totals.dead_letters, totals.lost = 2, 1000
    for verb in (("status", "local", "wordy"), ("list", "local"), ("top", "local", "wordy", "-n", "1")):
        assert "FINISHED WITH LOSSES: 1,002" in heron(*verb).out, verb
    line = "acked 1,000, failed 7, replayed up to 9 (may be counted twice), dead letters 2, lost 1,000"
    assert line in heron("status", "local", "wordy").out and line in heron("top", "local", "wordy", "-n", "1").out
    shown = json.loads(heron("status", "local", "wordy", "--json").out)["totals"]
    assert (shown["acked"], shown["lost"], shown["lost_estimated"]) == (1000, 1000, False)
    assert json.loads(heron("status", "local", "wordy", "--json").out)["losses"] == "1,002"
    totals.lost_estimated = True
    assert "FINISHED WITH LOSSES: about 1,002" in heron("list", "local").out
    totals.lost_unknown = True
    assert "FINISHED WITH LOSSES: at least 2" in heron("list", "local").out
    assert "dead letters 2, lost an unknown number" in heron("status", "local", "wordy").out
    assert json.loads(heron("status", "local", "wordy", "--json").out)["totals"]["lost_unknown"]
    totals.lost_unknown, totals.letters_at_least = False, True
    assert "dead letters at least 2, lost about 1,000" in heron("status", "local", "wordy").out
    totals.letters_at_least = False
    totals.dead_letters = totals.lost = 0
    assert "FINISHED WITH LOSSES: an unknown number" in heron("list", "local").out
    assert "dead letters 0, lost an unknown number" in heron("status", "local", "wordy").out
    assert summary.given_up_text(totals) == "0 dead letters, an unknown number lost"
    totals.lost_estimated, totals.failed, totals.replayed, totals.not_resent = False, 7, 0, 5
    assert "FINISHED WITH LOSSES: 5" in heron("list", "local").out, "nobody sends them again"
    assert "failed 7 (5 not sent again), replayed 0, dead letters 0, lost 0" in heron("status", "local", "wordy").out
    assert summary.given_up_text(totals) == "0 dead letters, 0 lost, 5 failed and not sent again"
    assert json.loads(heron("status", "local", "wordy", "--json").out)["totals"]["not_resent"] == 5


def test_where_nothing_is_tracked_nothing_is_at_least(heron: Heron, wordy: FakeTopology) -> None:
    totals = wordy.status.totals
    totals.at_least = True
    assert "  tuples     acked 0, failed 0" in heron("status", "local", "wordy").out, "at most once, without ids"
    assert summary.trouble_texts(wordy.status) == []
    wordy.status.plan.topology.topology_config.kvs.add(key="topology.reliability.mode", value="ATLEAST_ONCE")
    assert "acked at least 0, failed at least 0" in heron("status", "local", "wordy").out
    totals.untracked = True
    assert "acked 0, failed 0" in heron("status", "local", "wordy").out
    totals.acked = 1
    assert "acked at least 1, failed at least 0" in heron("status", "local", "wordy").out


def test_what_stream_managers_gave_up_is_sent_again_only_where_that_is_so(heron: Heron, wordy: FakeTopology) -> None:
    wordy.status.discarded_tuples = 12
    assert "  discarded  12 tuples\n" in heron("status", "local", "wordy").out
    kvs = wordy.status.plan.topology.topology_config.kvs
    kvs.add(key="topology.reliability.mode", value="ATLEAST_ONCE").type = topology_pb2.STRING_VALUE
    assert "  discarded  12 tuples at most, which the spouts emit again\n" in heron("status", "local", "wordy").out
    wordy.status.totals.untracked = True
    told = "  discarded  12 tuples at most; the spouts emit tuples with an id again\n"
    assert told in heron("status", "local", "wordy").out
    wordy.status.totals.lost_unknown = True
    assert "  discarded  12 tuples, and an unknown number more; " in heron("status", "local", "wordy").out


def test_what_is_dropped_on_purpose_is_shown_by_component_and_policy(heron: Heron, wordy: FakeTopology) -> None:
    wordy.status.lifecycle = control_pb2.LIFE_FINISHED
    wordy.status.dropped["count"] = 1200
    config = wordy.status.plan.topology.topology_config.kvs
    config.add(key="topology.droptuples.upon.backpressure", value="sample").type = topology_pb2.STRING_VALUE
    wordy.status.culprits.add(task_id=2, component="count", instance_id="container_1_count_2", drops=True)
    for verb in (("status", "local", "wordy"), ("top", "local", "wordy", "-n", "1")):
        shown = heron(*verb).out
        assert "1,200 tuples for count, which was full (sample)" in shown and "WITH LOSSES" not in shown, verb
        assert "full: container_1_count_2; tuples that do not fit are discarded (for 0s, 0B queued)" in shown, verb
    assert ", lost 0, discarded 1,200\n" in heron("status", "local", "wordy").out
    assert "discarded 1,200" in summary.totals_text(wordy.status), "a watched submit ends with it"
    told = json.loads(heron("status", "local", "wordy", "--json").out)
    assert told["dropped"] == {"policy": "sample", "tuples": {"count": 1200}}
    assert [one["drops"] for one in told["backpressure"]] == [True]
    assert not any(row["backpressure"] for row in told["components"])


@pytest.mark.parametrize(("since_s", "words"), [(0.004, "is full"), (0.4, "is too slow")])
def test_a_task_that_was_full_for_a_moment_is_not_called_slow(since_s: float, words: str) -> None:
    culprit = control_pb2.Culprit(instance_id="container_1_count_2", stmgr_id="stmgr-1", since_s=since_s)
    assert f"container_1_count_2 {words} (full for " in summary.culprit_text(culprit)


def test_a_spout_that_began_again_leaves_no_bound_of_what_is_counted_twice(heron: Heron, wordy: FakeTopology) -> None:
    totals = wordy.status.totals
    totals.acked, totals.replayed = 1000, 11
    shown = json.loads(heron("status", "local", "wordy", "--json").out)["totals"]
    assert (shown["replayed_unknown"], shown["begun_again"]) == (False, [])
    totals.spouts_begun_again = 1
    totals.begun_again.append("task 1 of src")
    line = "replayed 0, but task 1 of src began again (may be counted twice), dead letters 0, lost 0"
    assert line in summary.totals_text(wordy.status), "at most once nothing is replayed"
    wordy.status.plan.topology.topology_config.kvs.add(key="topology.reliability.mode", value="ATLEAST_ONCE")
    line = "replayed an unknown number: task 1 of src began again (may be counted twice), dead letters 0, lost 0"
    for verb in (("status", "local", "wordy"), ("top", "local", "wordy", "-n", "1")):
        assert line in heron(*verb).out and "up to 11" not in heron(*verb).out, verb
    shown = json.loads(heron("status", "local", "wordy", "--json").out)["totals"]
    assert (shown["replayed_unknown"], shown["begun_again"]) == (True, ["task 1 of src"])
    assert summary.losses_text(totals) == "", "it is no loss"
    totals.spouts_begun_again = 5
    assert summary.begun_again_text(wordy.status) == "task 1 of src and 4 more began again"


def test_effectively_once_a_spout_that_began_again_could_not_be_rewound(wordy: FakeTopology) -> None:
    status = control_pb2.StatusReply()
    status.CopyFrom(wordy.status)
    status.totals.spouts_begun_again = 0
    del status.totals.begun_again[:]
    mode = status.plan.topology.topology_config.kvs.add(key="topology.reliability.mode", value="EFFECTIVELY_ONCE")
    mode.type = topology_pb2.STRING_VALUE
    status.totals.restores = 2
    assert "restored 2 times (replayed tuples count once), dead letters" in summary.totals_text(status)
    assert summary.counted_twice_text(status) == ""
    totals = status.totals
    totals.dead_letters, totals.lost, totals.lost_estimated, totals.not_resent = 41, 0, False, 0
    assert summary.losses_text(totals) == "about 41" and "dead letters about 41, lost 0" in summary.totals_text(status)
    assert summary.given_up_text(totals) == "about 41 dead letters, 0 lost", "a tuple may come again to another task"
    totals.restores = 0
    assert summary.losses_text(totals) == "41" and "dead letters 41, lost 0" in summary.totals_text(status)
    totals.restores, totals.dead_letters = 2, 0
    assert summary.losses_text(totals) == ""
    status.totals.spouts_begun_again = 1
    status.totals.begun_again.append("task 1 of src")
    told = "restored 2 times, replayed an unknown number: task 1 of src cannot be rewound (may be counted twice), dead"
    assert told in summary.totals_text(status) and "count once" not in summary.totals_text(status)
    assert summary.counted_twice_text(status).startswith(
        "task 1 of src cannot be rewound, so an unknown number of tuples may be counted twice; a spout is rewound only if"
    )


def test_what_removed_tasks_have_counted_stays_in_their_component(wordy: FakeTopology) -> None:
    before, status = control_pb2.StatusReply(), control_pb2.StatusReply()
    for reply in (before, status):
        reply.plan.topology.bolts.add().comp.name = "count"
        reply.tasks.add(task_id=2, component="count", executed=100, emitted=10, acked=5, failed=1)
    before.tasks.add(task_id=3, component="count", executed=90)
    status.retired.add(component="count", tasks=1, executed=90, emitted=9, acked=8, failed=7)
    status.retired.add(component="gone", tasks=1, executed=90)
    [row] = summary.components(status, before, 1.0)
    assert (row.tasks, row.executed, row.emitted, row.acked, row.failed) == (1, 190, 19, 13, 8)
    assert (row.executed_per_s, row.emitted_per_s) == (0.0, 0.0), "a count that changes its place is no rate"


def test_effectively_once_what_was_replayed_counts_once() -> None:
    status = control_pb2.StatusReply()
    status.plan.topology.topology_config.kvs.add(
        key="topology.reliability.mode", value="EFFECTIVELY_ONCE", type=topology_pb2.STRING_VALUE
    )
    assert "replayed 0," in summary.totals_text(status)
    status.totals.restores = 2
    assert "restored 2 times (replayed tuples count once)" in summary.totals_text(status)
    assert "may be counted twice" not in summary.totals_text(status)


def test_a_component_shows_the_frames_that_it_receives_a_spout_those_that_it_sends(wordy: FakeTopology) -> None:
    before, status = control_pb2.StatusReply(), control_pb2.StatusReply()
    status.plan.topology.spouts.add().comp.name = "word"
    status.plan.topology.bolts.add().comp.name = "count"
    for reply, at, part in ((before, 100.0, 0), (status, 102.0, 1)):
        reply.tasks.add(task_id=1, component="word", counted_at=at, sent_frames=7 + 200 * part,
                        sent_tuples=9 + 1000 * part)  # fmt: skip
        for task in (2, 3):
            reply.tasks.add(task_id=task, component="count", counted_at=at, consumed_frames=100 * part,
                            consumed_tuples=500 * part, sent_frames=3 * part)  # fmt: skip
        reply.tasks.add(task_id=4, component="count", epoch=part, counted_at=at, consumed_frames=10 - part)
    word, count = summary.components(status, before, 2.0)
    assert (word.frames_per_s, word.tuples_per_frame) == (100.0, 5.0)
    assert (count.frames_per_s, count.tuples_per_frame) == (100.0, 5.0), "a restarted task has no rate"
    assert count.as_json()["tuples_per_frame"] == 5.0 and "frame_tuples_per_s" not in count.as_json()
    [idle, _] = summary.components(status)
    assert (idle.frames_per_s, idle.tuples_per_frame) == (0.0, 0.0)


@pytest.mark.parametrize(("width", "frames"), [(80, False), (100, True)])
def test_a_narrow_table_fits(width: int, frames: bool) -> None:
    from rich.console import Console

    from heronpy.cli.look.top import component_table, short
    from heronpy.cli.render.summary import ComponentRow

    counts = (0, 950, 999.6, 12_345, 99_960, 1_862_719, 10**14)
    assert [short(count) for count in counts] == ["0", "950", "1.00k", "12.3k", "100k", "1.86M", "100T"]
    row = ComponentRow("a_component", False, 10, 10, *[12_345_678] * 4, 2e6, 2e6, 99_999, 1, 99_999, 5, 0.0, True,
                       99_999.0, 12_345_678.0)  # fmt: skip
    screen = Console(width=width, file=open("/dev/null", "w"))
    lines = screen.render_lines(component_table([row], narrow=True, frames=frames))
    assert any("t/frm" in part.text for line in lines for part in line) == frames
    assert len([line for line in lines if "".join(part.text for part in line).strip()]) == 3


def test_the_memory_of_a_container_counts_shared_pages_once(heron: Heron, wordy: FakeTopology) -> None:
    executor = wordy.status.executors.add(container=1, host="here", pid=5)
    for number in range(4):
        executor.processes.add(name=f"stmgr-{number}", pid=6 + number, rss_bytes=40_000_000, pss_bytes=9_000_000)
    assert "34.3MB" in heron("status", "local", "wordy").out
    executor.processes[0].pss_bytes = 0
    assert "up to 63.9MB" in heron("status", "local", "wordy").out, "its share is not known yet"


def test_a_moved_container_starts_until_its_stream_manager_has_registered() -> None:
    """Its executor has; the tasks that the topology master knows are still the old ones."""
    stmgr = control_pb2.ProcessRecord(name="stmgr-1", kind=control_pb2.PROCESS_STMGR)
    known = control_pb2.RegisterExecutor(container=1, epoch=3, host="n1", processes=[stmgr])
    status = control_pb2.StatusReply(lifecycle=control_pb2.LIFE_RUNNING, executors=[known])
    here = control_pb2.ProcessRecord(name="executor-1", phase="RUNNING", host="n1", epoch=3)
    containers.tell_starting(status, [here])
    assert (status.lifecycle, status.cause) == (control_pb2.LIFE_DEGRADED, "container 1 is starting on host n1")
    status.lifecycle = control_pb2.LIFE_RUNNING
    status.executors[0].processes[0].state = control_pb2.PROC_RUNNING
    containers.tell_starting(status, [here])
    assert status.lifecycle == control_pb2.LIFE_RUNNING


def test_a_constant_rate_is_shown_whatever_the_times_of_the_replies() -> None:
    """Tasks report once a second, so replies 2.5 s apart have counts of two or of three seconds."""
    from heronpy.cli.render.summary import components

    def reply(at: float) -> control_pb2.StatusReply:
        status = control_pb2.StatusReply()
        status.plan.topology.spouts.add().comp.name = "words"
        status.tasks.add(task_id=1, component="words", epoch=1, emitted=int(49 * at), counted_at=1000.0 + at)
        return status

    for before, after in ((0.0, 2.0), (2.0, 5.0)):
        (row,) = components(reply(after), reply(before), 2.5)
        assert row.emitted_per_s == 49.0
