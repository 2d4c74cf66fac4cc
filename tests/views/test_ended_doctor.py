"""What is said of a topology that has ended: only what its last minutes, events and totals tell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.clusters.summary import topology_of
from heronpy.proto import plan_pb2
from heronpy.views.build_ended import FIGURES_S, doctor_of_ended
from heronpy.views.overview import Topology, Totals
from heronpy.views.past import Event, Series, Timeline

END = 1_000_000.0


def ended(state: str = "KILLED", **totals: int) -> Topology:
    record = plan_pb2.ExecutionState(cluster="prod", topology="clicks", submitted_at=END - 7200)
    found = topology_of(record, None, None, None)
    found.state, found.cause, found.ended_at, found.uptime_s = state, "topology 'clicks' was killed", END, 7200.0
    zero = {"acked": 9, "failed": 0, "not_resent": 0, "replayed": 0, "dead_letters": 0, "lost": 0, "restores": 0}
    found.totals = Totals(**(zero | totals), at_least=False, begun_again=[], lost_estimated=False)  # type: ignore[arg-type]
    return found


def event(kind: str, subject: str, at: float = END - 60, **fields: object) -> Event:
    known = {"number": 1, "first_at": at, "times": 1, "reason": "", "text": "", "lasted_s": None, "warning": True,
             "detail": ""}  # fmt: skip
    return Event(kind=kind, subject=subject, at=at, **(known | fields))  # type: ignore[arg-type]


def minutes(**series: list[float | None]) -> Timeline:
    """Up to the last whole minute; names as `count__busy_max`."""
    count = max((len(values) for values in series.values()), default=0)
    found = [Series(component=name.partition("__")[0], metric=name.partition("__")[2], values=values)
             for name, values in series.items()]  # fmt: skip
    return Timeline(times=[END - 60.0 * (count - place) for place in range(count)], step_s=60.0, series=found,
                    kept_from=None)  # fmt: skip


def verdicts(found: list[object]) -> list[str]:
    return [one.verdict for one in found]  # type: ignore[attr-defined]


def test_the_cause_that_was_there_to_the_end_is_named() -> None:
    events = [
        event("restart", "container_1_parse_3", reason="user_exception", detail="ValueError: no number", times=4),
        event("oom", "container_1_count_7"),
        event("backpressure", "container_1_count_7", lasted_s=249.0),
        event("backpressure", "container_1_count_8", lasted_s=280.0, reason="avoided"),
        event("restart", "container_9_old_1", at=END - 4000, times=50),
    ]
    timeline = minutes(
        __held=[0.0, 0.0, 0.8, 0.9, 0.9, 0.8, 0.6],
        logs__emitted_per_s=[1.0, 1.0, 50.0, 50.0, 50.0, 50.0, 50.0],
        count__executed_per_s=[1.0] * 7,
        count__busy_max=[0.1, 0.1, 0.98, 0.98, 0.98, 0.98, 0.98],
        count__busy=[0.1, 0.1, 0.5, 0.5, 0.5, 0.5, 0.5],
    )
    found = doctor_of_ended(ended(dead_letters=3, lost=2), events, timeline)
    assert verdicts(found.findings) == ["ended", "memory", "crashing", "losses", "held", "busy"]
    said = [one.sentence for one in found.findings]
    assert said == [
        "topology 'clicks' was killed, after 2h00m",
        "container_1_count_7 ran out of memory 1 time in the run's last half hour",
        "container_1_parse_3 was restarted 4 times in the run's last half hour; last reason: user exception: "
        "ValueError: no number",
        "the topology's results are not complete: 3 dead letters, 2 lost",
        "the spouts were held back for 80 % of the run's last 5m00s, mostly by container_1_count_7",
        "the busiest task of count was 98 % busy in the run's last 5m00s, all its tasks 50 % on average",
    ]
    assert found.findings[2].next == "heron logs prod clicks container_1_parse_3 --level ERROR"
    assert (found.healthy, found.window_s, found.emitted_per_s, found.ended_at) == (False, FIGURES_S, 50.0, END)
    assert "stacks" in found.not_known and "no figures" not in found.not_known


def test_what_was_discarded_on_purpose_is_said_and_is_no_fault() -> None:
    found = doctor_of_ended(ended(discarded=1200), [], minutes())
    assert [one.sentence for one in found.findings][1:] == [
        "tuples for full tasks were discarded, as configured: 1,200"
    ]
    assert found.findings[1].calm


def test_nothing_that_stood_out_is_said_too() -> None:
    found = doctor_of_ended(ended(), [], minutes(logs__emitted_per_s=[None, 7.0, 9.0], __held=[None, 0.1, 0.0]))
    assert [one.sentence for one in found.findings][1:] == [
        "nothing stood out in the run's last 2m00s: the spouts emitted 8 tuples a second"
    ]
    assert found.healthy


def test_what_the_doctor_said_last_goes_before_what_follows_from_minutes() -> None:
    shown = ended()
    shown.verdict, shown.calm, shown.component, shown.task = "skew", False, "count", "container_1_count_2"
    shown.sentence = (
        "topology 'clicks' was killed; the doctor's last finding: data skew: 98 % of its tuples have user='big'"
    )
    timeline = minutes(__held=[0.9] * 5, count__executed_per_s=[1.0] * 5, count__busy_max=[0.98] * 5)
    found = doctor_of_ended(shown, [], timeline)
    assert verdicts(found.findings) == ["skew", "ended"] and not found.healthy
    assert (found.findings[0].sentence, found.findings[0].task) == (shown.sentence, "container_1_count_2")
    shown.verdict, shown.calm = "healthy", True
    assert verdicts(doctor_of_ended(shown, [], timeline).findings)[0] == "ended"


def test_without_figures_that_is_what_is_said() -> None:
    found = doctor_of_ended(ended("FAILED"), [], minutes())
    assert verdicts(found.findings) == ["ended"] and not found.healthy
    assert found.findings[0].next == "the topology's last errors: heron logs prod clicks --level ERROR"
    assert found.not_known.startswith("no figures of the last minutes were kept") and found.window_s == 0


@given(
    st.dictionaries(
        st.sampled_from(["__held", "a__busy_max", "a__emitted_per_s", "b__executed_per_s", "a__busy"]),
        st.lists(st.none() | st.floats(0, 1), min_size=8, max_size=8),
    )
)
def test_gaps_are_unknown_and_not_0(series: dict[str, list[float | None]]) -> None:
    found = doctor_of_ended(ended(), [], minutes(**series))
    known = [value for value in series.get("__held", [])[-8:] if value is not None]
    assert 0.0 <= found.held <= max(known, default=0.0) + 1e-9
    assert found.window_s <= FIGURES_S and found.findings[0].verdict == "ended"
