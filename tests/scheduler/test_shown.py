"""What others see of the containers that an engine runs."""

from __future__ import annotations

from heronpy.procs.exit_reason import ExitReason
from heronpy.scheduler.containers import record_of
from heronpy.scheduler.placement_events import ContainerView, Phase

SAID = "host folder /data/heron cannot be created: Permission denied"


def view(phase: Phase, engine_id: str) -> ContainerView:
    words = "FAILED: NonZeroExitCode, exit code 1 (failure)"
    return ContainerView(1, phase, 0, 0, engine_id, "", words, 1, ExitReason.OWN_BUG, ())


def test_between_two_tries_a_container_shows_why_the_last_one_ended() -> None:
    words = record_of(view(Phase.QUEUED, ""), {}, (), 0.0, SAID).words
    assert words == f"FAILED: NonZeroExitCode, exit code 1 (failure): {SAID}"
    assert SAID in record_of(view(Phase.FAILED, ""), {}, (), 0.0, SAID).exit_detail


def test_one_that_waits_in_the_queue_again_shows_what_for() -> None:
    assert SAID not in record_of(view(Phase.QUEUED, "812_1"), {}, (), 0.0, SAID).words
