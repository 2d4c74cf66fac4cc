"""Placement, event by event."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heronpy.engines.contract import Ended, EnginePhase, Seen
from heronpy.engines.lease import Fencing
from heronpy.procs.exit_reason import ExitReason
from heronpy.scheduler.placement_events import (
    Activate,
    AllGone,
    Cancel,
    ContainerSpec,
    EngineAway,
    Entry,
    Fence,
    GiveUp,
    Grant,
    Heard,
    KillAsked,
    Leaving,
    MoveAsked,
    MoveEnded,
    Note,
    Past,
    Persist,
    Phase,
    PlanChanged,
    Refused,
    RestartAsked,
    Submit,
    Tick,
)
from tests.scheduler.placement_story import ONE, TIMES, Story, of


def test_a_container_is_submitted_activated_and_granted() -> None:
    story = Story()
    assert not of(story.effects, Submit), "there may be containers of a predecessor"
    [submit] = of(story.list(), Submit)
    assert submit.request.submission == 1 and submit.request.topology_id == "t"
    assert story.phase() is Phase.QUEUED
    assert of(story.start(), Activate) == [Activate(1, 1, 1)]
    assert of(story.do(Heard(1, 1, 1)), Grant) == [Grant(1, 1)]
    assert story.phase() is Phase.RUNNING
    assert story.machine.ledger == {1: Entry(1, 1, 1)}
    assert not of(story.wait(60, Heard(1, 1, 1)), Submit)


def test_an_activation_that_was_lost_is_repeated_with_its_epoch() -> None:
    story = Story()
    story.list()
    story.jobs[1, 1] = replace(story.jobs[1, 1], phase=EnginePhase.RUNNING)
    story.do(Heard(1, 1))
    effects = story.do(Heard(1, 1), after=1.0)
    assert of(effects, Activate) == [Activate(1, 1, 1)] and not of(effects, Persist)


def test_a_confirmed_end_is_replaced_at_once_and_activated_at_its_hello() -> None:
    story = Story().run()
    story.wait(30, Heard(1, 1, 1))
    story.end()
    assert [one.request.submission for one in of(story.do(Tick(), after=0.1), Submit)] == [2]
    assert of(story.start(submission=2), Activate) == [Activate(1, 2, 2)]
    assert of(story.do(Heard(1, 1, 1)), Fence), "a late message of the old one"


def test_an_unconfirmed_end_has_a_successor_at_once_that_waits_for_the_lease() -> None:
    story = Story().run()
    ended = replace(story.jobs[1, 1], phase=EnginePhase.ENDED, ended=Ended.UNCONFIRMED, words="NODE_FAIL")
    story.jobs[1, 1] = ended
    silent_since = story.now
    effects = story.wait(15)
    [submit] = of(effects, Submit)
    assert submit.request.submission == 2 and submit.request.avoid == ("a",)
    assert not of(story.start(submission=2, host="b"), Activate)
    effects = story.wait(TIMES.lost_s - (story.now - silent_since) - 1, Heard(1, 2))
    assert not of(effects, Activate) and story.phase() is Phase.STANDBY
    effects = story.wait(3, Heard(1, 2))
    assert of(effects, Activate)[0] == Activate(1, 2, 2)
    assert of(effects, Cancel)[0].submission == 1, "what is left of it is cancelled"
    assert of(story.do(Heard(1, 1, 1)), Fence) == [Fence(1, 1, "submission 2 has replaced it")]
    [view] = story.machine.views()
    assert (view.restarts, view.exit_reason) == (1, ExitReason.LOST_HOST), "of a lost host as of an end"
    assert "lost on a" in view.words or "lost on a" in story.machine.ledger[1].past.detail
    assert story.machine.ledger[1].past.restarts == 1


def test_one_that_is_back_before_its_successor_acts_and_never_stopped_was_not_restarted() -> None:
    story = Story().run()
    story.wait(62)
    story.do(Heard(1, 1, 1))
    story.wait(2, Heard(1, 1, 1))
    [view] = story.machine.views()
    assert (view.phase, view.restarts, view.exit_reason) == (Phase.RUNNING, 0, None)
    assert story.machine.ledger[1].cause is None


def test_one_that_is_back_before_its_successor_acts_goes_on() -> None:
    story = Story().run()
    story.wait(62)
    assert story.phase() is Phase.QUEUED and (1, 2) in story.jobs
    effects = story.do(Heard(1, 1, 0, stopped=1))
    assert of(effects, Activate) == [Activate(1, 1, 2)], "it has stopped its tasks, and starts again in place"
    effects += story.wait(3, Heard(1, 1, 2))
    assert [one.submission for one in of(effects, Cancel)] == [2]
    assert not story.machine.has_stopped(1, 1), "it acts again"
    [view] = story.machine.views()
    assert (view.phase, view.restarts, view.exit_reason) == (Phase.RUNNING, 1, ExitReason.LOST_HOST)


def test_with_confirmation_only_a_user_can_replace_what_is_lost() -> None:
    story = Story(fencing=Fencing.CONFIRMATION).run()
    story.wait(62)
    story.start(submission=2, host="b")
    assert not of(story.wait(300, Heard(1, 2)), Activate)
    assert "--force" in story.machine.views()[0].words
    story.do(RestartAsked((1,)))
    assert not of(story.wait(10, Heard(1, 2)), Activate)
    assert of(story.do(RestartAsked((1,), "its host burned", force=True)), Activate) == [Activate(1, 2, 2)]


def test_force_holds_for_one_that_is_heard_still_and_lost_a_moment_later() -> None:
    """Its host is gone and its last heartbeat is young: the user need not repeat the command."""
    story = Story(fencing=Fencing.CONFIRMATION).run()
    story.do(RestartAsked((1,), "its host burned", force=True))
    story.wait(62)
    assert of(story.start(submission=2, host="b"), Activate) == [Activate(1, 2, 2)]


def test_force_does_nothing_to_one_that_is_heard() -> None:
    story = Story(fencing=Fencing.CONFIRMATION).run()
    story.do(RestartAsked((1,), force=True))
    story.list()
    assert not of(story.start(submission=2, host="b"), Activate), "the old one has not ended"


@pytest.mark.parametrize("how", ["late", "refused", "empty"])
def test_absence_from_such_a_list_is_no_end(how: str) -> None:
    story = Story(ONE, ContainerSpec(2, 1.0, 1)).run()
    story.start(2)
    kept, story.jobs = story.jobs, {}
    if how == "late":
        story.jobs = {(2, 1): kept[2, 1]}
    for _ in range(25):
        story.do(Heard(2, 1, 1), after=1.0)
        if how == "refused":
            assert not of(story.do(EngineAway("timed out")), Submit)
        else:
            assert not of(story.list(after=0.0, asked_s=20.0 if how == "late" else 0.1), Submit)
    assert story.phase() is Phase.RUNNING


def test_absence_from_two_good_lists_is_an_unconfirmed_end() -> None:
    story = Story(ONE, ContainerSpec(2, 1.0, 1)).run()
    story.start(2)
    story.wait(15, Heard(1, 1, 1), Heard(2, 1, 1))
    del story.jobs[1, 1]
    assert not of(story.wait(20, Heard(1, 1, 1), Heard(2, 1, 1)), Submit), "it is heard"
    effects = story.wait(12, Heard(2, 1, 1))
    assert [one.request.container for one in of(effects, Submit)] == [1]
    story.start(1, 2, "b")
    assert not of(story.wait(30, Heard(1, 2), Heard(2, 1, 1)), Activate), "its lease is not over"


def test_a_submission_that_vanishes_from_the_queue_is_made_again() -> None:
    story = Story()
    story.list()
    story.jobs.clear()
    assert not of(story.wait(50), Submit)
    assert [one.request.submission for one in of(story.wait(30), Submit)] == [2]


def test_a_pause_of_the_scheduler_proves_no_silence() -> None:
    story = Story().run()
    effects = story.do(Tick(), after=90.0)
    assert not of(effects, Submit) and story.phase() is Phase.RUNNING
    assert of(story.do(Heard(1, 1, 1)), Grant)


def test_the_ledger_says_why_a_container_is_started_again() -> None:
    def cause(story: Story) -> tuple[ExitReason, str]:
        found = story.machine.ledger[1].cause
        assert found is not None
        return found.reason, found.text

    ended = Story().run()
    ended.end(host="a", words="FAILED, signal SIGKILL", reason=ExitReason.KILLED)
    assert cause(ended) == (ExitReason.KILLED, "it had ended on host a: FAILED, signal SIGKILL")
    lost = Story().run()
    lost.wait(TIMES.lost_s + 1)
    assert cause(lost) == (ExitReason.LOST_HOST, "it was lost on a: it is silent")
    leaves = Story().run()
    leaves.do(Leaving(1, 1, "preempted"))
    leaves.end(host="a", words="PREEMPTED", reason=ExitReason.PREEMPTED)
    assert cause(leaves) == (ExitReason.PREEMPTED, "it had to leave a: preempted")
    again = Story().run()
    again.do(RestartAsked((1,), "ann requested it"))
    again.end(host="a", words="CANCELLED", reason=ExitReason.KILLED)
    assert cause(again) == (ExitReason.RESTARTED, "ann requested it")
    told = Story().run()
    told.do(RestartAsked((1,), "ann requested it"))
    assert not of(told.do(Leaving(1, 1, "its engine is ending it")), Note), "because it was asked to"
    told.end(host="a", words="CANCELLED", reason=ExitReason.KILLED)
    assert cause(told) == (ExitReason.RESTARTED, "ann requested it")
    moved = Story().run()
    moved.do(MoveAsked(1, "a", "ann"))
    moved.do(MoveEnded(1))
    assert moved.machine.ledger[1].cause is None, "it stays"


def test_preemptions_are_never_counted_and_crashes_are() -> None:
    story = Story().run()
    number = 1
    for _ in range(20):
        story.end(1, number, reason=ExitReason.PREEMPTED)
        number += 1
        story.wait(2)
        story.start(1, number)
    assert story.machine.views()[0].restarts == 0
    for _ in range(2):
        story.end(1, number)
        number += 1
        story.wait(70)  # the pause after many short runs
        story.start(1, number)
    [give_up] = of(story.end(1, number, words="exit code 4"), GiveUp)
    assert give_up.reason is ExitReason.CRASHED and "exit code 4" in give_up.detail
    assert story.phase() is Phase.FAILED and not of(story.wait(100), Submit)
    assert of(story.do(RestartAsked((1,))), Submit), "a user starts it again"


def test_the_third_end_by_others_is_final_and_counted_apart() -> None:
    story = Story().run()
    for number in (1, 2):
        assert not of(story.end(1, number, reason=ExitReason.KILLED, cancelled=True), GiveUp)
        story.wait(2)
        story.start(1, number + 1)
    assert of(story.end(1, 3, reason=ExitReason.KILLED, cancelled=True), GiveUp)


def test_a_failure_to_start_is_final_and_finished_work_is_no_failure() -> None:
    story = Story().run()
    [give_up] = of(story.end(reason=ExitReason.STARTUP_FAILURE, words="heronpy is missing"), GiveUp)
    assert give_up.detail == "heronpy is missing"
    story = Story().run()
    effects = story.end(reason=ExitReason.FINISHED)
    assert not of(effects, GiveUp) and not of(story.wait(30), Submit)


def test_a_refusal_for_good_fails_and_one_for_now_is_tried_again() -> None:
    story = Story()
    story.list()
    story.jobs.clear()
    story.do(Refused(1, 1, "the queue is full", fatal=False))
    effects = story.wait(100)
    assert [one.request.submission for one in of(effects, Submit)] == [2]
    [give_up] = of(story.do(Refused(1, 2, "no such partition", fatal=True)), GiveUp)
    assert (give_up.reason, give_up.detail) == (None, "no such partition")


def test_a_hopeless_submission_fails_after_half_a_minute() -> None:
    story = Story()
    story.list()
    story.jobs[1, 1] = replace(story.jobs[1, 1], hopeless=True, words="PartitionTimeLimit")
    assert not of(story.wait(29), GiveUp)
    effects = story.wait(3)
    assert of(effects, GiveUp)[0].detail == "PartitionTimeLimit" and of(effects, Cancel)


def test_a_kill_does_not_wait_for_what_could_never_be_started() -> None:
    """An image that nobody has: no kubelet confirms the end of a container that it has not begun."""
    story = Story()
    story.list()
    waiting = replace(story.jobs[1, 1], phase=EnginePhase.STARTING, host="a", hopeless=True, words="ImagePullBackOff")
    story.jobs[1, 1] = waiting
    story.wait(32)
    assert story.phase() is Phase.FAILED
    story.do(KillAsked(5.0))
    story.jobs[1, 1] = replace(waiting, phase=EnginePhase.ENDING, hopeless=False)
    assert not of(story.wait(3), AllGone), "it is there"
    gone = replace(waiting, phase=EnginePhase.ENDED, ended=Ended.UNCONFIRMED, hopeless=False)
    story.jobs[1, 1] = gone
    assert of(story.wait(3), AllGone) == [AllGone()]


def test_what_could_not_be_started_and_is_gone_does_not_make_its_host_avoided_and_is_killed_at_once() -> None:
    story = Story()
    story.list()
    waiting = replace(story.jobs[1, 1], phase=EnginePhase.STARTING, host="a", hopeless=True, words="ImagePullBackOff")
    story.jobs[1, 1] = waiting
    effects = story.wait(32)
    story.jobs[1, 1] = replace(waiting, phase=EnginePhase.ENDED, ended=Ended.UNCONFIRMED, hopeless=False)
    effects += story.wait(3)
    assert not [note for note in of(effects, Note) if "gets no container" in note.text]
    assert of(story.do(KillAsked(5.0)), AllGone) == [AllGone()], "and those that had failed before"


def test_one_that_could_not_be_started_and_was_deleted_is_made_again() -> None:
    story = Story()
    story.list()
    waiting = replace(story.jobs[1, 1], phase=EnginePhase.STARTING, host="a", hopeless=True, words="ImagePullBackOff")
    story.jobs[1, 1] = replace(waiting, phase=EnginePhase.ENDED, ended=Ended.UNCONFIRMED)
    assert [one.request.submission for one in of(story.wait(2), Submit)] == [2]


def test_a_kill_waits_for_what_was_hopeless_and_then_ran() -> None:
    story = Story()
    story.list()
    queued = story.jobs[1, 1]
    for phase in (EnginePhase.STARTING, EnginePhase.RUNNING):
        story.jobs[1, 1] = replace(queued, phase=phase, host="a", hopeless=phase is EnginePhase.STARTING)
        story.wait(3)
    story.do(KillAsked(5.0))
    story.jobs[1, 1] = replace(queued, phase=EnginePhase.ENDED, host="a", ended=Ended.UNCONFIRMED)
    assert not of(story.wait(20), AllGone)


def test_one_that_never_says_hello_is_replaced_elsewhere() -> None:
    story = Story()
    story.list()
    story.jobs[1, 1] = replace(story.jobs[1, 1], phase=EnginePhase.RUNNING, host="a")
    assert not of(story.wait(110), Submit)
    effects = story.wait(15)
    assert of(effects, Cancel)[0].submission == 1 and of(effects, Submit)[0].request.avoid == ("a",)


def test_a_successor_of_the_scheduler_adopts_and_restarts_nothing() -> None:
    story = Story().run()
    heir = Story(ledger=story.machine.ledger)
    heir.jobs = dict(story.jobs)
    assert not of([*heir.effects, *heir.list()], Submit)
    assert heir.phase() is Phase.STARTING
    assert of(heir.do(Heard(1, 1, 1)), Grant) and heir.phase() is Phase.RUNNING
    assert not of(heir.wait(60, Heard(1, 1, 1)), Submit)


@pytest.mark.parametrize("alone", [True, False])
def test_a_successor_waits_for_what_its_predecessor_may_have_granted(alone: bool) -> None:
    heir = Story(ledger={1: Entry(3, 2, 5)}, alone=alone)
    began = heir.now
    heir.jobs[1, 3] = Seen("j", 1, 3, EnginePhase.RUNNING, "b")
    heir.list()
    waits_s = TIMES.lost_s + (0 if alone else TIMES.permit_s)
    assert not of(heir.wait(waits_s - 3, Heard(1, 3)), Activate)
    assert of(heir.wait(4, Heard(1, 3)), Activate)[0] == Activate(1, 3, 6)
    assert heir.now - began >= waits_s


def test_a_confirmed_end_needs_no_wait_even_after_a_swap() -> None:
    heir = Story(ledger={1: Entry(2, 2, 5)}, alone=False)
    heir.jobs[1, 2] = Seen("j", 1, 2, EnginePhase.ENDED, "b", Ended.CONFIRMED, ExitReason.CRASHED)
    effects = heir.list() + heir.wait(2)
    assert [one.request.submission for one in of(effects, Submit)] == [3]
    assert of(heir.start(1, 3), Activate) == [Activate(1, 3, 6)]


def test_containers_are_found_again_without_the_ledger() -> None:
    heir = Story(ledger={})
    heir.jobs[1, 4] = Seen("j", 1, 4, EnginePhase.RUNNING, "b")
    assert not of(heir.list(), Submit)
    assert of(heir.do(Heard(1, 4, 7)), Grant) and heir.machine.ledger == {1: Entry(4, 4, 7)}


def test_what_is_no_longer_planned_is_cancelled_and_its_numbers_are_kept() -> None:
    story = Story().run()
    effects = story.do(PlanChanged(()))
    assert [one.submission for one in of(effects, Cancel)] == [1]
    story.end(reason=ExitReason.PREEMPTED)
    assert story.machine.views() == []
    effects = story.do(PlanChanged((ONE,)))
    assert [one.request.submission for one in of(effects, Submit)] == [2]


def test_what_is_planned_again_has_no_past() -> None:
    """A container that an update removes is gone with its ends; one that is added under its number is another."""
    story = Story().run()
    story.end(reason=ExitReason.CRASHED, words="it was lost")
    [view] = story.machine.views()
    assert view.restarts == 1 and view.exit_reason is ExitReason.CRASHED
    story.do(PlanChanged(()))
    story.do(PlanChanged((ONE,)))
    [view] = story.machine.views()
    assert (view.restarts, view.exit_reason, view.words) == (0, None, "")
    [kept] = story.machine.ledger.values()
    assert kept.past == Past(judged=1) and kept.cause is None, "nor for the next scheduler"
    assert not of(story.list(), Note), "the end that was counted is not told again"
    heir = Story(ledger=story.machine.ledger)
    assert [view.restarts for view in heir.machine.views()] == [0]


def test_strays_of_the_engine_are_cancelled() -> None:
    story = Story()
    story.jobs[9, 3] = Seen("stray", 9, 3, EnginePhase.RUNNING, "x")
    assert [(one.container, one.engine_id) for one in of(story.list(), Cancel)] == [(9, "stray")]


def test_a_cancel_is_said_again_until_the_end_is_known() -> None:
    story = Story().run()
    story.do(PlanChanged(()))
    assert len(of(story.wait(25), Cancel)) == 2


def test_kill_ends_all_and_says_when() -> None:
    story = Story().run()
    effects = story.do(KillAsked(5.0))
    assert of(effects, Cancel)[0].grace_s == 5.0 and not of(effects, AllGone)
    assert of(story.end(reason=ExitReason.PREEMPTED), AllGone) == [AllGone()]
    assert story.do(Tick(), after=1.0) == []


def test_a_kill_goes_on_until_every_end_is_confirmed() -> None:
    story = Story().run()
    story.do(KillAsked(5.0))
    assert story.machine.left() == ("container 1, submission 1 (j1.1 on a)",)
    assert not of(story.wait(600), AllGone), "the engine lists it"
    story.do(EngineAway("squeue hangs"))
    assert not of(story.wait(600, lists=False), AllGone) and story.machine.left()
    assert of(story.end(reason=ExitReason.PREEMPTED), AllGone) == [AllGone()]
    assert story.machine.left() == ()


def test_a_container_on_a_silent_host_is_left_until_the_engine_knows_it_no_more() -> None:
    story = Story().run()
    story.end(ended=Ended.UNCONFIRMED, reason=None)
    story.do(KillAsked(5.0))
    story.end(submission=2, reason=ExitReason.PREEMPTED)  # the successor that it got
    assert not of(story.wait(300), AllGone)
    assert story.machine.left() == ("container 1, submission 1 (j1.1 on a)",)
    del story.jobs[1, 1]
    assert of(story.wait(70), AllGone) == [AllGone()]


def test_a_successor_goes_on_with_a_kill() -> None:
    story = Story().run()
    [written] = of(story.do(KillAsked(5.0)), Persist)
    assert written.killing
    assert not of(story.do(KillAsked(5.0)), Persist), "once is enough"
    heir = Story(ledger=written.ledger)
    heir.jobs = dict(story.jobs)
    heir.do(KillAsked(5.0))
    assert not of(heir.wait(30), Submit)
    assert of(heir.end(reason=ExitReason.PREEMPTED), AllGone) == [AllGone()]


def test_a_successor_remembers_restarts_and_budgets() -> None:
    """The budget is 2: the third crash is final, whoever counts it."""
    story = Story().run()
    for submission in (1, 2):
        ended = story.end(submission=submission)
        assert of(ended, Persist), "written when it changes"
        story.wait(5)
        story.start(1, submission + 1)
    heir = Story(ledger=story.machine.ledger)
    heir.jobs = dict(story.jobs)
    heir.list()
    heir.do(Heard(1, 3, 3))
    [view] = heir.machine.views()
    assert (view.restarts, view.exit_reason) == (2, ExitReason.CRASHED)
    effects = heir.end(submission=3)
    assert of(effects, GiveUp) and heir.phase() is Phase.FAILED
    last = Story(ledger=heir.machine.ledger)
    last.jobs = dict(heir.jobs)
    assert not of(last.wait(60), Submit), "the engine goes on listing that end, and it is not counted again"
    assert last.phase() is Phase.FAILED
    effects = last.do(RestartAsked())
    assert of(effects, Persist) and of(effects, Submit)


def test_work_that_is_done_is_not_done_again_by_a_successor() -> None:
    story = Story().run()
    story.end(reason=ExitReason.FINISHED)
    heir = Story(ledger=story.machine.ledger)
    heir.jobs = dict(story.jobs)
    assert not of(heir.wait(60), Submit)


def test_while_the_engine_is_away_nothing_is_asked_of_it() -> None:
    story = Story().run()
    story.do(EngineAway("timed out"))
    story.do(RestartAsked((1,)))
    assert not [one for one in story.wait(30, Heard(1, 1, 1), lists=False) if isinstance(one, Submit | Cancel)]
    assert story.machine.away_since is not None
    effects = story.list()
    assert of(effects, Submit) and of(effects, Cancel) and story.machine.away_since is None
