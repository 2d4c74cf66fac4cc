"""What `heron status` and the page say of pipelines of work units."""

from __future__ import annotations

from heronpy.cli.look.doctor import seen
from heronpy.cli.look.pipelines import lines
from heronpy.health.signals import Signals, TaskSignals
from heronpy.ingest.figures import values_of
from heronpy.ingest.ledger.commands import Figures
from heronpy.proto import control_pb2
from heronpy.views.units import pipelines_of


def reply(*tasks: dict[str, float]) -> control_pb2.MetricsReply:
    made = control_pb2.MetricsReply()
    for task in tasks:
        report = made.reports.add()
        for name, value in task.items():
            report.samples.add(name=name, label="clicks", value=value)
    return made


def test_keepers_tell_of_the_whole_pipeline_and_each_task_of_what_it_did() -> None:
    found = pipelines_of(
        reply(
            {"units-backlog-bytes": 300, "units-oldest-seconds": 2.5, "units-ready": 3, "units-published": 4},
            {"units-backlog-bytes": 200, "units-oldest-seconds": 1.0, "units-ready": 2, "units-published": 5},
            {"units-attempts": 6, "units-backups": 1, "units-backups-won": 1},
            {"units-attempts": 5, "units-attempts-in-vain": 1, "__emit-count": 9},
        )
    )
    [one] = found.pipelines
    assert (one.name, one.backlog_bytes, one.oldest_s, one.ready, one.published_units) == ("clicks", 300, 2.5, 3, 9)
    assert (one.attempts, one.backups, one.backups_won, one.attempts_in_vain) == (11, 1, 1, 1)
    assert pipelines_of(control_pb2.MetricsReply()).pipelines == []


def test_a_line_says_what_waits_and_what_is_wrong() -> None:
    calm = {"units-published-rows": 12_000, "units-published-bytes": 2 << 20}
    [line] = lines(pipelines_of(reply(calm)).pipelines)
    assert line == (
        "clicks: 12,000 rows of 2MB published since the topology was submitted; 0B wait; units 0 ready, 0 in progress,"
        " 0 to publish"
    )
    wrong = {"units-backlog-bytes": 1 << 20, "units-oldest-seconds": 61.0, "units-failed": 2, "units-bad-ranges": 1}
    [line] = lines(pipelines_of(reply(calm, wrong, {"units-backups": 1, "units-bad-bytes": 17})).pipelines)
    assert "1MB wait, the oldest byte for 1m01s" in line and "1 backup, 0 won, 0 discarded" in line
    assert line.endswith("1 bad range of 17B; 2 units FAILED (heron units show clicks)")
    assert lines(None) == []


def test_counts_of_which_a_killed_process_had_the_last_are_lower_bounds() -> None:
    made = reply({"units-published-rows": 12_000}, {"units-published-rows": 0})
    made.reports[1].at_least = True
    [one] = pipelines_of(made).pipelines
    assert one.at_least and lines([one])[0].startswith("clicks: at least 12,000 rows")


def test_counts_are_lower_bounds_to_a_topology_master_that_does_not_know_those_of_all() -> None:
    """After a kill of all processes 2,048 rows were published since the submit, and 12,000 were in the table."""
    made = reply({"units-published-rows": 2_048})
    made.resumed_s = 12.0
    [one] = pipelines_of(made).pipelines
    assert one.at_least and lines([one])[0].startswith("clicks: at least 2,048 rows")


def test_what_waits_is_what_is_not_published_and_has_not_failed() -> None:
    units = {"ready": (2, 20), "leased": (1, 10), "failed": (1, 5)}
    figures = Figures(1, False, {}, 0, 7, 90, 3, 1, units, None, 1, 1, 0.0, 0, 0, ())
    values = values_of(figures, 4)
    assert (values["units-backlog-bytes"], values["units-waiting-bytes"], values["units-oldest-seconds"]) == (37, 7, 0)
    assert (values["units-leased"], values["units-committed"], values["units-failed"]) == (1, 0, 1)
    assert values["units-unfinished-bytes"] == 4


def test_the_doctor_says_what_is_published_where_nothing_is_emitted() -> None:
    tasks = [TaskSignals("clicks-worker-1", "clicks-worker", True, True, emits=False)]
    signals = Signals("clicks", control_pb2.LIFE_RUNNING, "", 60.0, tasks, units_backlog=5e6, units_published=2048.0)
    assert seen(signals) == ["1m00s: 2KB/s of log files are published, held 0 %"]
    tasks[0].emits = True
    assert seen(signals) == ["1m00s: spouts emit 0/s, 2KB/s of log files are published, held 0 %"]
