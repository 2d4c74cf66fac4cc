"""The supervisor, event by event and under random stories."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.executor.records import end_report
from heronpy.procs.exit_reason import ExitHints, ExitReason
from heronpy.procs.restart_policy import RestartLimits
from heronpy.procs.supervision import (
    AllStopped,
    DesiredChanged,
    Effect,
    Ended,
    Event,
    Exited,
    GiveUp,
    Overgrown,
    ProcessSpec,
    ProcessState,
    Removed,
    Reported,
    RestartAsked,
    Signal,
    Spawned,
    SpawnFailed,
    Start,
    StopAsked,
    Tick,
)
from heronpy.procs.supervisor import CALL_GRACE_S, Supervisor

LIMITS = RestartLimits(backoff_s=0.05, backoff_max_s=60, budget=2, window_s=300)
TASK = ProcessSpec("task", "instance", task_id=1, user_code=True, hang_timeout_s=10, stop_grace_s=2)
STMGR = ProcessSpec("stmgr", "stmgr", stop_rank=1, critical=True)
KILLED = signal.SIGKILL
USER_EXCEPTION = 4 << 8


class Story:
    """A supervisor and a clock."""

    def __init__(self, *specs: ProcessSpec, limits: RestartLimits = LIMITS) -> None:
        self.machine = Supervisor(limits)
        self.now = 100.0
        self.pids = iter(range(1000, 100_000))
        self.do(DesiredChanged(specs))

    def do(self, event: Event, after: float = 0.0) -> list[Effect]:
        self.now += after
        effects = self.machine.handle(event, self.now)
        self.machine.validate()
        return effects

    def spawn(self, name: str) -> int:
        number, _ = self.machine.current(name)
        pid = next(self.pids)
        self.do(Spawned(name, number, pid))
        return pid

    def exit(self, name: str, status: int, after: float = 0.0, announced: bool = True) -> list[Effect]:
        return self.do(Exited(name, self.machine.current(name)[0], status, ExitHints(announced=announced)), after)

    def state(self, name: str) -> ProcessState:
        view = self.machine.view(name)
        assert view is not None
        return view.state


def starts(effects: list[Effect]) -> list[tuple[str, int]]:
    return [(effect.spec.name, effect.number) for effect in effects if isinstance(effect, Start)]


def signals(effects: list[Effect]) -> list[tuple[str, int]]:
    return [(effect.name, effect.signum) for effect in effects if isinstance(effect, Signal)]


def test_processes_of_several_ranks_restart_in_order() -> None:
    """What the tasks say last is passed on by the stream manager, so that one ends after them."""
    story = Story(STMGR, TASK)
    story.spawn("stmgr")
    story.spawn("task")
    assert signals(story.do(RestartAsked(()))) == [("task", signal.SIGTERM)]
    assert signals(story.do(RestartAsked(()))) == [], "they are about to restart"
    assert signals(story.exit("task", signal.SIGTERM)) == [("stmgr", signal.SIGTERM)]
    assert starts(story.exit("stmgr", signal.SIGTERM)) == [("stmgr", 2), ("task", 2)]
    story.spawn("stmgr")
    story.spawn("task")
    assert starts(story.exit("task", signal.SIGKILL)) == []
    assert starts(story.do(Tick(), after=10)) == [("task", 3)]


def test_a_higher_rank_that_ends_by_itself_waits_for_those_that_restart_with_it() -> None:
    story = Story(STMGR, TASK)
    story.spawn("stmgr")
    story.spawn("task")
    story.do(RestartAsked(()))
    assert starts(story.exit("stmgr", signal.SIGKILL)) == []
    assert signals(story.do(Tick(), after=CALL_GRACE_S)) == [("task", signal.SIGKILL)]
    assert starts(story.exit("task", signal.SIGKILL)) == [("stmgr", 2), ("task", 2)]


def test_a_removal_or_a_stop_ends_a_common_restart() -> None:
    story = Story(STMGR, TASK)
    story.spawn("stmgr")
    story.spawn("task")
    story.do(RestartAsked(()))
    story.do(DesiredChanged((STMGR,)))
    effects = story.exit("task", signal.SIGTERM)
    assert Removed("task") in effects and signals(effects) == [("stmgr", signal.SIGTERM)]
    story.do(StopAsked())
    effects = story.exit("stmgr", signal.SIGTERM)
    assert starts(effects) == [] and AllStopped() in effects


def test_killed_process_starts_again_after_the_first_pause() -> None:
    story = Story(TASK)
    story.spawn("task")
    assert starts(story.exit("task", KILLED, after=20)) == []
    assert story.machine.next_deadline() == pytest.approx(story.now + 0.05)
    assert starts(story.do(Tick(), after=0.05)) == [("task", 2)]


def test_pause_doubles_and_begins_anew_after_a_healthy_run() -> None:
    story = Story(TASK, limits=RestartLimits(budget=100))
    pauses = []
    for ran_s in (1, 1, 1, 30, 1):
        story.spawn("task")
        story.exit("task", KILLED, after=ran_s)
        deadline = story.machine.next_deadline()
        assert deadline is not None
        pauses.append(round(deadline - story.now, 3))
        story.do(Tick(), after=pauses[-1] + 1e-6)
    assert pauses == [0.05, 0.1, 0.2, 0.05, 0.1]


def test_budgets_are_separate_per_reason() -> None:
    story = Story(TASK)
    for status in (KILLED, USER_EXCEPTION, KILLED, USER_EXCEPTION, signal.SIGSEGV):
        story.spawn("task")
        story.exit("task", status)
        story.do(Tick(), after=10)
    story.spawn("task")
    story.exit("task", USER_EXCEPTION)
    view = story.machine.view("task")
    assert view is not None
    assert view.state is ProcessState.FAILED
    assert view.exit_reason is ExitReason.USER_EXCEPTION
    assert "3 times" in view.exit_detail


def test_hundred_preemptions_are_not_counted() -> None:
    story = Story(TASK)
    for _ in range(100):
        story.spawn("task")
        story.exit("task", signal.SIGTERM)
        story.do(Tick(), after=2)
    assert story.state("task") is ProcessState.STARTING


@pytest.mark.parametrize("status", [3 << 8, 2 << 8])
def test_startup_failure_is_final(status: int) -> None:
    story = Story(TASK, STMGR)
    story.spawn("task")
    assert not any(isinstance(effect, GiveUp) for effect in story.exit("task", status))
    assert story.state("task") is ProcessState.FAILED


def test_finished_process_stays_stopped() -> None:
    story = Story(TASK)
    story.spawn("task")
    story.exit("task", 7 << 8)
    assert story.state("task") is ProcessState.STOPPED
    assert story.machine.next_deadline() is None


def test_critical_process_failing_for_good_gives_up_once() -> None:
    story = Story(STMGR)
    given_up: list[Effect] = []
    for _ in range(3):
        story.spawn("stmgr")
        given_up += [e for e in story.exit("stmgr", 1 << 8) if isinstance(e, GiveUp)]
        story.do(Tick(), after=10)
    assert [effect.reason for effect in given_up if isinstance(effect, GiveUp)] == [ExitReason.OWN_BUG]


def test_hung_process_dumps_its_stacks_then_is_killed() -> None:
    story = Story(TASK)
    story.spawn("task")
    assert signals(story.do(Reported("task", 1, 9.9), after=1)) == []
    assert signals(story.do(Reported("task", 1, 10.1), after=1)) == [("task", signal.SIGUSR1)]
    assert signals(story.do(Tick(), after=0.3)) == [("task", signal.SIGKILL)]
    story.exit("task", KILLED)
    view = story.machine.view("task")
    assert view is not None
    assert view.exit_reason is ExitReason.HUNG
    assert view.state is ProcessState.BACKOFF


def test_silent_process_is_hung_but_only_after_its_first_report() -> None:
    story = Story(TASK)
    story.spawn("task")
    for _ in range(30):
        assert signals(story.do(Tick(), after=1)) == []
    story.do(Reported("task", 1, 0.0))
    for _ in range(9):
        assert signals(story.do(Tick(), after=1)) == []
    assert signals(story.do(Tick(), after=1)) == [("task", signal.SIGUSR1)]


def test_own_stall_is_not_the_fault_of_the_tasks() -> None:
    story = Story(TASK)
    story.spawn("task")
    story.do(Reported("task", 1, 0.0))
    assert signals(story.do(Tick(), after=60)) == []


def test_report_of_an_earlier_incarnation_proves_nothing() -> None:
    story = Story(TASK)
    story.spawn("task")
    assert story.do(Reported("task", 0, 99.0)) == []


def test_stop_goes_by_rank_and_kills_the_stubborn() -> None:
    story = Story(STMGR, TASK)
    story.spawn("task")
    story.spawn("stmgr")
    assert signals(story.do(StopAsked())) == [("task", signal.SIGTERM)]
    assert signals(story.do(Tick(), after=1.9)) == []
    assert signals(story.do(Tick(), after=0.2)) == [("task", signal.SIGKILL)]
    assert signals(story.exit("task", KILLED)) == [("stmgr", signal.SIGTERM)]
    assert any(isinstance(effect, AllStopped) for effect in story.exit("stmgr", 0))
    assert story.do(StopAsked()) == []


def test_stop_while_a_process_starts_waits_for_it() -> None:
    story = Story(TASK)
    assert story.do(StopAsked()) == []
    effects = story.do(Spawned("task", 1, 55))
    assert signals(effects) == [("task", signal.SIGTERM)]
    assert any(isinstance(effect, AllStopped) for effect in story.exit("task", 0))


def test_stop_with_nothing_running() -> None:
    story = Story()
    assert any(isinstance(effect, AllStopped) for effect in story.do(StopAsked()))


def test_removed_process_is_stopped_and_forgotten() -> None:
    story = Story(TASK, STMGR)
    story.spawn("task")
    assert signals(story.do(DesiredChanged((STMGR,)))) == [("task", signal.SIGTERM)]
    effects = story.exit("task", 0)
    assert Removed("task") in effects
    assert story.machine.view("task") is None


def test_removed_and_wanted_again_gets_a_new_number() -> None:
    story = Story(TASK)
    story.spawn("task")
    story.do(DesiredChanged(()))
    story.do(DesiredChanged((TASK,)))
    assert starts(story.exit("task", 0)) == [("task", 2)]
    story.spawn("task")
    story.do(DesiredChanged(()))
    story.exit("task", 0)
    assert starts(story.do(DesiredChanged((TASK,)))) == [("task", 3)]


def test_restart_request_also_revives_the_failed() -> None:
    story = Story(TASK)
    story.spawn("task")
    story.exit("task", 3 << 8)
    assert starts(story.do(RestartAsked(("task",)))) == [("task", 2)]


def test_an_orderly_restart_says_that_it_was_asked_for() -> None:
    story = Story(TASK)
    story.spawn("task")
    story.do(RestartAsked(("task",), "on request, by heron restart"))
    story.exit("task", 0)
    view = story.machine.view("task")
    assert view is not None and view.exit_detail == "restarted on request, by heron restart"


def test_a_restart_on_request_waits_for_a_long_call_but_a_stop_does_not() -> None:
    story = Story(TASK)
    story.spawn("task")
    story.do(RestartAsked(("task",)))
    assert signals(story.do(Tick(), after=CALL_GRACE_S - 1)) == []
    assert signals(story.do(Tick(), after=1)) == [("task", signal.SIGKILL)]
    story.exit("task", signal.SIGKILL)
    view = story.machine.view("task")
    assert view is not None and view.exit_detail.endswith("killed, because a call lasted longer than 30 s")
    story.do(Tick(), after=10)
    story.spawn("task")
    story.do(RestartAsked(("task",)))
    story.do(StopAsked())
    assert signals(story.do(Tick(), after=TASK.stop_grace_s)) == [("task", signal.SIGKILL)]


def test_late_spawn_of_a_forgotten_process_is_killed() -> None:
    story = Story(TASK)
    assert signals(story.do(Spawned("other", 1, 77))) == [("other", signal.SIGKILL)]


def test_failed_spawn_is_tried_again() -> None:
    story = Story(TASK)
    story.do(SpawnFailed("task", 1, "cannot fork"))
    assert story.state("task") is ProcessState.BACKOFF
    assert starts(story.do(Tick(), after=1)) == [("task", 2)]


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[str, int, int, float]]:
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(["spawn", "fail", "exit", "report", "restart", "desire", "tick", "tick", "stop"]),
                st.integers(0, 3),
                st.sampled_from([0, 9, 11, 15, 1 << 8, 3 << 8, 4 << 8, 5 << 8, 7 << 8]),
                st.sampled_from([0.0, 0.1, 1.0, 3.0, 30.0]),
            ),
            max_size=60,
        )
    )


@given(stories())
def test_random_stories_keep_the_invariants(story: list[tuple[str, int, int, float]]) -> None:
    """One living incarnation per name, numbers only grow, nothing starts after a stop, a stop always ends."""
    names = ["a", "b", "c", "d"]
    specs = {
        name: ProcessSpec(name, "x", stop_rank=i % 2, critical=i == 3, hang_timeout_s=2.0 * (i == 0))
        for i, name in enumerate(names)
    }
    machine = Supervisor(LIMITS)
    living: dict[str, int] = {}
    numbers: dict[str, int] = {}
    now, stopping, ended = 0.0, False, False

    def apply(effects: list[Effect]) -> None:
        nonlocal ended
        for effect in effects:
            if isinstance(effect, Start):
                name = effect.spec.name
                assert not stopping
                assert name not in living
                assert effect.number > numbers.get(name, 0)
                living[name] = numbers[name] = effect.number
            elif isinstance(effect, AllStopped):
                assert stopping and not ended and not living
                ended = True
        machine.validate()

    def give(event: Event) -> None:
        if isinstance(event, Exited | SpawnFailed):
            living.pop(event.name, None)
        apply(machine.handle(event, now))

    for what, index, status, after in story:
        now += after
        name = names[index]
        view = machine.view(name)
        if what == "spawn" and view and view.state is ProcessState.STARTING:
            give(Spawned(name, view.number, 1000 + index))
        elif what == "fail" and view and view.state is ProcessState.STARTING:
            give(SpawnFailed(name, view.number, "no"))
        elif what == "exit" and view and view.pid:
            give(Exited(name, view.number, status))
        elif what == "report" and view:
            give(Reported(name, view.number, after))
        elif what == "restart":
            give(RestartAsked((name,)))
        elif what == "desire":
            give(DesiredChanged(tuple(specs[n] for n in names[: index + 1])))
        elif what == "stop":
            stopping = True
            give(StopAsked())
        else:
            give(Tick())
    stopping = True
    give(StopAsked())
    while not ended:
        name = sorted(living)[0]
        view = machine.view(name)
        assert view is not None
        if view.state is ProcessState.STARTING:
            give(Spawned(name, view.number, 5))
        else:
            now += 3
            give(Tick())
            give(Exited(name, view.number, 9))


STARTUP_FAILURE = 3 << 8


def test_user_code_that_has_run_once_may_fail_to_start_for_a_while() -> None:
    """What a sink writes to is away: the process raises, and its successors raise in `initialize`."""
    story = Story(TASK, limits=RestartLimits(backoff_s=1.0, backoff_max_s=60.0, budget=2, exception_budget_s=300.0))
    story.spawn("task")
    story.exit("task", USER_EXCEPTION, after=0.1)
    began, pauses = story.now, []
    while story.state("task") is ProcessState.BACKOFF:
        view = story.machine.view("task")
        assert view is not None and view.restart_at is not None
        assert view.outlook.charged == len(pauses) + 1 and view.outlook.failing_max_s == 300.0
        pauses.append(view.restart_at - story.now)
        assert starts(story.do(Tick(), after=pauses[-1])) == [("task", len(pauses) + 1)]
        story.spawn("task")
        story.exit("task", STARTUP_FAILURE, after=0.1)
    assert [round(pause) for pause in pauses[:8]] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert story.state("task") is ProcessState.FAILED and 300.0 <= story.now - began < 361.0


def test_user_code_that_was_ready_counts_as_having_run() -> None:
    story = Story(TASK, limits=RestartLimits(exception_budget_s=300.0))
    story.spawn("task")
    story.do(Reported("task", 1, 0.0, ready=True))
    story.exit("task", KILLED, after=0.1)
    story.do(Tick(), after=1.0)
    story.spawn("task")
    story.exit("task", STARTUP_FAILURE, after=0.1)
    assert story.state("task") is ProcessState.BACKOFF


def test_user_code_that_never_started_is_given_up_at_once() -> None:
    story = Story(TASK, limits=RestartLimits(exception_budget_s=300.0))
    story.spawn("task")
    story.do(Reported("task", 1, 0.0))
    story.exit("task", STARTUP_FAILURE, after=0.1)
    assert story.state("task") is ProcessState.FAILED


@pytest.mark.parametrize("code", [2, 3, 4, 5, 6, 7, 8, 9, 42, 143])
def test_a_code_that_user_code_chose_is_charged_as_a_crash(code: int) -> None:
    """Whatever the code means to the runtime: no end without a restart, and no restarts without an end."""
    story = Story(TASK)
    for _ in range(LIMITS.budget):
        story.spawn("task")
        effects = story.exit("task", code << 8, after=0.1, announced=False)
        [ended] = [effect for effect in effects if isinstance(effect, Ended)]
        assert (ended.reason, ended.raised, ended.left) == (ExitReason.CRASHED, False, True)
        report = end_report(ended, 1, 5.0, explained=False)
        assert report is not None and report.type == "Exited"
        assert story.state("task") is ProcessState.BACKOFF
        story.do(Tick(), after=60)
    story.spawn("task")
    story.exit("task", code << 8, after=0.1, announced=False)
    assert story.state("task") is ProcessState.FAILED


MB = 1 << 20


@pytest.mark.parametrize(
    ("status", "hints", "detail", "limit", "told", "type"),
    [
        # It says so itself, with limit and peak of its address space and with its line: nothing is added to that.
        (USER_EXCEPTION, ExitHints(memory_error=True, announced=True), "MemoryError: address space limit 512MB, peak 511MB", 0,
         "MemoryError: address space limit 512MB, peak 511MB", None),
        (6, ExitHints(memory_error=True), "signal SIGABRT: std::bad_alloc", 0,
         "signal SIGABRT: std::bad_alloc; its resident memory peaked at 300MB", "OutOfMemory"),
        (KILLED, ExitHints(oom_moved=True, memory_told=True), "signal SIGKILL; the control group's limit is 600MB, ...", 0,
         "signal SIGKILL; the control group's limit is 600MB, ...", "OutOfMemory"),
        (KILLED, ExitHints(), "signal SIGKILL", 300 * MB,
         "signal SIGKILL; its resident memory peaked at 300MB, its limit is 300MB", "OutOfMemory"),
    ],
)  # fmt: skip
def test_an_end_for_lack_of_memory_is_told_once(
    status: int, hints: ExitHints, detail: str, limit: int, told: str, type: str | None
) -> None:
    story = Story(ProcessSpec("task", "instance", task_id=1, user_code=True, memory_max_bytes=limit))
    story.spawn("task")
    number, _ = story.machine.current("task")
    effects = story.do(Exited("task", number, status, hints, detail, 300 * MB))
    [ended] = [effect for effect in effects if isinstance(effect, Ended)]
    assert (ended.reason, ended.detail) == (ExitReason.OOM, told)
    report = end_report(ended, 1, 5.0, explained=status == USER_EXCEPTION)
    assert (report.type if report is not None else None) == type
    assert report is None or report.message == f"task ran out of memory: {told}"


def test_above_its_soft_limit_a_process_is_told_with_its_peak_and_the_limit_once() -> None:
    story = Story(ProcessSpec("task", "instance", task_id=1, user_code=True, memory_max_bytes=200 * MB))
    story.spawn("task")
    number, _ = story.machine.current("task")
    story.do(Overgrown("task", number, 205 * MB, 200 * MB))
    [view] = story.machine.views()
    assert view.exit_detail == "its resident memory was 205MB, above the limit of 200MB"
    story.do(Exited("task", number, 0, ExitHints(), "exit code 0", 210 * MB))
    [view] = story.machine.views()
    assert (view.exit_reason, view.exit_detail) == (
        ExitReason.OOM, "its resident memory peaked at 210MB, above the limit of 200MB",
    )  # fmt: skip
