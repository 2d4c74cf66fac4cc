"""Where placement puts containers: drains and moves, hosts that are avoided, containers that stay apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heronpy.engines.contract import EnginePhase
from heronpy.packing.demand import ResourceRequest
from heronpy.procs.exit_reason import ExitReason
from heronpy.scheduler.containers import container_specs
from heronpy.scheduler.placement_events import (
    Activate,
    Cancel,
    Cause,
    ContainerSpec,
    DrainAsked,
    DrainEnded,
    GiveUp,
    Grant,
    Heard,
    HostLifted,
    Leaving,
    MoveAsked,
    MoveEnded,
    Persist,
    Phase,
    PlanChanged,
    Refused,
    Submit,
)
from tests.scheduler.placement_story import LIMITS, TIMES, Story, of


def test_leaving_hands_over_through_a_standby_and_is_not_counted() -> None:
    story = Story().run()
    for number in range(1, 8):
        effects = story.do(Leaving(1, number, "the end of its time"))
        assert [one.request.submission for one in of(effects, Submit)] == [number + 1]
        assert of(story.do(Heard(1, number, number)), Grant), "it runs on until its successor stands by"
        key = (1, number + 1)
        story.jobs[key] = replace(story.jobs[key], phase=EnginePhase.RUNNING, host="b")
        story.list()
        effects = story.do(Heard(*key))
        assert not of(effects, Activate) and [one.submission for one in of(effects, Cancel)] == [number]
        effects = story.do(Heard(1, number, 0, stopped=number))
        assert of(effects, Activate) == [Activate(1, number + 1, number + 1)]
        story.do(Heard(*key, number + 1))
        story.end(1, number, reason=ExitReason.PREEMPTED)
    assert story.phase() is Phase.RUNNING


def test_a_move_hands_over_through_a_standby_elsewhere() -> None:
    story = Story().run()
    [submit] = of(story.do(MoveAsked(1, "a")), Submit)
    assert (submit.request.submission, submit.request.avoid, submit.request.barred) == (2, ("a",), ("a",))
    assert of(story.do(Heard(1, 1, 1)), Grant), "it runs on until its successor stands by"
    assert [one.submission for one in of(story.start(1, 2, "b"), Cancel)] == [1]
    assert not story.machine.has_stopped(1, 1)
    assert of(story.do(Heard(1, 1, 0, stopped=1)), Activate) == [Activate(1, 2, 2)]
    assert story.machine.has_stopped(1, 1), "its end need not be confirmed"
    story.do(Heard(1, 2, 2))
    story.end(1, 1)
    assert story.machine.has_stopped(1, 1) and not story.machine.has_stopped(1, 2)
    [view] = story.machine.views()
    assert (view.phase, view.host, view.restarts, view.unmoved) == (Phase.RUNNING, "b", 0, "")
    story.end(1, 2)
    [submit] = of(story.wait(2), Submit)
    assert submit.request.barred == (), "a move bars its host once"


def test_a_container_of_another_size_stands_by_before_the_old_one_ends() -> None:
    story = Story().run()
    story.do(PlanChanged((ContainerSpec(1, 4.0, 1 << 32),)))
    [submit] = of(story.do(MoveAsked(1, "", "ann")), Submit)
    assert (submit.request.submission, submit.request.cpu, submit.request.barred) == (2, 4.0, ()), "any host will do"
    assert of(story.do(Heard(1, 1, 1)), Grant), "it runs on until its successor stands by"
    assert [one.submission for one in of(story.start(1, 2), Cancel)] == [1]
    effects = story.do(Heard(1, 1, 0, stopped=1))
    assert of(effects, Activate) == [Activate(1, 2, 2)]
    assert of(effects, Persist)[0].ledger[1].cause == Cause(ExitReason.RESTARTED, "ann changed its size")
    for refused in (True, False):
        stays = Story().run()
        stays.do(MoveAsked(1, "", "ann"))
        effects = stays.do(Refused(1, 2, "no room", fatal=True) if refused else MoveEnded(1))
        assert not of(effects, GiveUp)
        assert (stays.phase(), stays.machine.views()[0].unmoved) == (
            Phase.RUNNING,
            "no room" if refused else "it took too long",
        )


def test_a_drain_and_its_reason_outlive_the_scheduler() -> None:
    story = Story().run()
    story.do(DrainAsked("a", "ann on login1"))
    [persist] = of(story.do(MoveAsked(1, "a", "ann on login1")), Persist)
    heir = Story(ledger=persist.ledger, hosts=persist.hosts)
    assert heir.machine.draining == {"a": "ann on login1"}
    heir.jobs = story.jobs
    assert not of(heir.list() + heir.do(Heard(1, 1, 1, host="a")), Submit), "its successor is in the queue already"
    assert [one.submission for one in of(heir.start(1, 2, "b"), Cancel)] == [1], "the move goes on"
    effects = heir.do(Heard(1, 1, 0, stopped=1))
    assert of(effects, Activate) == [Activate(1, 2, 2)]
    moved = of(effects, Persist)[0].ledger[1]
    assert moved.cause == Cause(ExitReason.MOVED, "ann on login1 has moved it away from host a")
    assert moved.moves_from == ""
    [persist] = of(heir.do(DrainEnded("a", failed=False)), Persist)
    assert Story(hosts=persist.hosts).machine.draining == {}
    assert [one.host for one in persist.hosts] == ["a"], "it is avoided for its time"


def test_after_a_drain_that_failed_its_host_is_like_others_unless_it_was_lost_as_well() -> None:
    story = Story().run()
    story.do(DrainAsked("b", "ann"))
    [persist] = of(story.do(DrainEnded("b", failed=True)), Persist)
    assert persist.hosts == ()
    story.wait(TIMES.lost_s + 1, lists=False)
    story.do(DrainAsked("a", "ann"))
    [persist] = of(story.do(DrainEnded("a", failed=True)), Persist)
    assert [(one.host, one.by) for one in persist.hosts] == [("a", "")], "a container on it was lost"


@pytest.mark.parametrize("how", ["refused", "hopeless", "given up"])
def test_a_move_without_another_host_ends_nothing(how: str) -> None:
    story = Story().run()
    story.do(MoveAsked(1, "a"))
    if how == "refused":
        effects = story.do(Refused(1, 2, "no such configuration", fatal=True))
        del story.jobs[1, 2]
    elif how == "hopeless":
        story.jobs[1, 2] = replace(story.jobs[1, 2], hopeless=True, words="no such configuration")
        effects = story.wait(35, Heard(1, 1, 1))
    else:
        effects = story.do(MoveEnded(1))
    assert not of(effects, GiveUp) and {one.submission for one in of(effects, Cancel)} <= {2}
    [view] = story.machine.views()
    assert (view.phase, view.submission, view.host) == (Phase.RUNNING, 1, "a")
    assert view.unmoved == ("it took too long" if how == "given up" else "no such configuration")
    assert not of(story.wait(60, Heard(1, 1, 1)), Submit)


def test_one_that_dies_while_it_is_moved_may_be_replaced_anywhere_once_the_move_is_given_up() -> None:
    story = Story().run()
    story.do(MoveAsked(1, "a"))
    assert not of(story.end(1, 1), Submit), "its successor waits"
    effects = story.do(MoveEnded(1)) + story.wait(1)
    assert [one.request.barred for one in of(effects, Submit)] == [()]


def test_hosts_are_avoided_for_a_time_and_queued_submissions_freed_of_it() -> None:
    story = Story()
    story.do(DrainAsked("n7", "ann"))
    [submit] = of(story.list(), Submit)
    assert submit.request.avoid == ("n7",)
    story.do(DrainEnded("n7", failed=False))
    effects = story.wait(LIMITS.avoid_s + 2)
    assert [one.request.avoid for one in of(effects, Submit)] == [()]
    assert of(effects, Cancel)[0].submission == 1


def test_an_avoided_host_that_is_ready_is_used_at_once_when_nothing_else_has_room() -> None:
    story = Story().run()
    story.jobs.clear()
    [submit] = of(story.wait(200), Submit)
    assert submit.request.avoid == ("a",), "it is lost there"
    waiting = replace(story.jobs[1, 2], words="PENDING: Resources", waits=True)
    story.jobs[1, 2] = waiting
    assert not of(story.wait(5), Submit), "the host is not ready"
    story.ready = frozenset({"a"})
    story.jobs[1, 2] = replace(waiting, waits=False)
    assert not of(story.wait(5), Submit), "it does not wait for room"
    story.jobs[1, 2] = waiting
    effects = story.list()
    assert [(one.request.submission, one.request.avoid) for one in of(effects, Submit)] == [(3, ())]
    assert [one.submission for one in of(effects, Cancel)] == [2]
    story.ready = frozenset()
    assert not of(story.wait(5), Submit), "it is submitted again once"
    story.start(1, 3, "a")
    [submit] = of(story.end(1, 3, reason=ExitReason.PREEMPTED) + story.wait(2), Submit)
    assert submit.request.avoid == ("a",), "others are tried first the next time"


def test_a_drain_uses_the_host_that_was_drained_before_and_never_its_own() -> None:
    story = Story().run()
    story.do(DrainAsked("b", "ann"))
    story.do(DrainEnded("b", failed=False))
    story.do(DrainAsked("a", "ann"))
    [submit] = of(story.do(MoveAsked(1, "a")), Submit)
    assert submit.request.avoid == ("a", "b")
    story.jobs[1, 2] = replace(story.jobs[1, 2], waits=True)
    story.ready = frozenset({"a", "b"})
    story.do(Heard(1, 1, 1))
    [submit] = of(story.list(), Submit)
    assert (submit.request.avoid, submit.request.barred) == (("a",), ("a",))


def test_an_avoidance_is_lifted_but_not_a_drain_that_goes_on() -> None:
    story = Story()
    story.do(DrainAsked("n7", "ann"))
    story.list()
    assert story.do(HostLifted("n7", "bob")) == [] and story.do(HostLifted("n8", "bob")) == []
    story.do(DrainEnded("n7", failed=False))
    assert [(one.host, one.why) for one in story.machine.avoided(story.now)] == [("n7", "ann is draining it")]
    effects = story.do(HostLifted("n7", "bob"))
    assert of(effects, Persist)[0].hosts == () and story.machine.avoided(story.now) == ()
    assert [one.request.avoid for one in of(effects, Submit)] == [()], "what waits may use it"


def test_a_container_for_which_a_host_was_chosen_takes_any_when_that_has_no_room() -> None:
    story = Story()
    [submit] = of(story.list(), Submit)
    assert not submit.request.anywhere
    story.jobs[1, 1] = replace(story.jobs[1, 1], pinned=True)
    assert not of(story.wait(3), Submit), "it may start any moment"
    story.jobs[1, 1] = replace(story.jobs[1, 1], waits=True)
    [submit] = of(story.list(), Submit)
    assert submit.request.anywhere and submit.request.submission == 2
    story.start(1, 2)
    [submit] = of(story.end(1, 2, reason=ExitReason.PREEMPTED) + story.wait(2), Submit)
    assert not submit.request.anywhere


def test_containers_stay_apart() -> None:
    story = Story(ContainerSpec(0, 1.0, 1), ContainerSpec(1, 1.0, 1, apart_from=(0,)))
    story.list()
    story.start(0, 1, "a")
    story.end(1, 1, reason=ExitReason.PREEMPTED)
    [submit] = of(story.wait(2, Heard(0, 1, 1)), Submit)
    assert submit.request.avoid == ("a",) and submit.request.apart_from == (0,)


def test_a_container_waits_for_the_host_that_it_stays_apart_from() -> None:
    """At first nobody has a host; an engine that cannot keep containers apart itself needs to be told which."""
    limits = replace(LIMITS, apart_wait_s=15.0)
    specs = (
        ContainerSpec(0, 1.0, 1, apart_from=(1,)),
        ContainerSpec(1, 1.0, 1, apart_from=(0,)),
        ContainerSpec(2, 1.0, 1),
    )
    story = Story(*specs, limits=limits)
    assert [one.request.container for one in of(story.list(), Submit)] == [0, 2]
    assert not of(story.list(), Submit)
    story.jobs[0, 1] = replace(story.jobs[0, 1], phase=EnginePhase.RUNNING, host="a")
    [submit] = of(story.list(), Submit)
    assert (submit.request.container, submit.request.avoid) == (1, ("a",))
    # Where container 0 waits itself, the other one does not for ever.
    story = Story(*specs, limits=limits)
    story.list()
    assert [one.request.avoid for one in of(story.wait(17), Submit)] == [()]


def test_a_container_that_finds_no_host_apart_takes_any() -> None:
    story = Story(ContainerSpec(0, 1.0, 1), ContainerSpec(1, 1.0, 1, apart_from=(0,)))
    story.list()
    story.start(0, 1, "a")
    story.end(1, 1, reason=ExitReason.PREEMPTED)
    [submit] = of(story.wait(2, Heard(0, 1, 1)), Submit)
    assert submit.request.avoid == ("a",)
    assert not of(story.wait(LIMITS.apart_queue_s - 5, Heard(0, 1, 1)), Submit)
    effects = story.wait(10, Heard(0, 1, 1))
    assert [(one.request.container, one.request.avoid) for one in of(effects, Submit)] == [(1, ())]
    assert [(one.container, one.submission) for one in of(effects, Cancel)] == [(1, 2)]


def test_the_standby_master_and_container_0_stay_apart() -> None:
    requests = dict.fromkeys((0, 1, 2), ResourceRequest(1.0, 1, 0))
    assert {one.container: one.apart_from for one in container_specs(requests, 1)} == {0: (1,), 1: (0,), 2: ()}
    assert {one.apart_from for one in container_specs(requests, 0)} == {()}
