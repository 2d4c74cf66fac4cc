"""Backpressure: marks, leases, culprits, and a simulation that shows it does not flap."""

from __future__ import annotations

import pytest

from heronpy.proto import control_pb2
from heronpy.wire.frames import CREDIT, DATA, Frame
from stmgr.backpressure import REST_S, Backpressure
from stmgr.links import Link, Source, Waiting

MB = 1 << 20


def pressure() -> Backpressure:
    return Backpressure(high=MB, low=MB // 2, lease_s=3.0, renew_s=1.0)


def top() -> tuple[int, int]:
    return 5, MB


def announcement(on: bool = True, epoch: int = 1) -> control_pb2.Backpressure:
    return control_pb2.Backpressure(stmgr_id="stmgr-2", epoch=epoch, on=on, lease_s=3.0)


def test_an_episode_begins_above_high_and_ends_at_low() -> None:
    p = pressure()
    assert not p.observe("task-5", MB, top, 0.0)
    assert p.observe("task-5", MB + 1, top, 0.0)
    assert not p.clamp_changed(0.0) and p.holding, "its senders get no credit"
    assert p.announcement_due(0.0, True) is True
    assert not p.observe("task-5", 2 * MB, top, 0.5)
    assert p.observe("task-5", 2 * MB + 1, top, 0.6)
    assert p.clamp_changed(0.6) and p.clamped
    assert not p.observe("task-5", 3 * MB // 2 + 1, top, 1.0)
    assert p.observe("task-5", 3 * MB // 2, top, 1.1)
    assert p.clamp_changed(1.1) and not p.clamped and p.holding
    assert not p.observe("task-5", MB // 2 + 1, top, 1.2)
    assert p.observe("task-5", MB // 2, top, 2.0)
    assert not p.clamp_changed(2.0) and not p.holding
    assert p.announcement_due(2.0, True) is False
    assert p.spent(2.0) == {5: 2.0}
    assert p.held_until(9.0) == 2.0


def test_an_announcement_is_renewed_each_second_and_expires_after_three() -> None:
    mine, other = pressure(), pressure()
    mine.observe("task-5", 2 * MB + 1, top, 0.0)
    assert mine.announcement_due(0.0, True)
    assert mine.announcement_due(0.5, False) is None and mine.next_deadline() == 1.0
    assert mine.announcement_due(1.0, False)
    for now in (0.0, 1.0, 2.0):
        other.heard(announcement(), now)
        assert other.clamp_changed(now) == (now == 0.0)
    other.expire(4.9)
    assert not other.clamp_changed(4.9) and other.clamped
    assert other.next_deadline() == 5.0
    other.expire(5.0)
    assert other.clamp_changed(5.0) and not other.clamped, "a dead announcer stops nobody for longer"


def test_an_old_incarnation_and_an_overlong_lease_are_not_believed() -> None:
    p = pressure()
    p.heard(announcement(epoch=2), 0.0)
    p.heard(announcement(on=False, epoch=1), 0.1)
    assert p.remote
    p.heard(control_pb2.Backpressure(stmgr_id="stmgr-2", epoch=2, on=True, lease_s=1e9), 1.0)
    p.expire(4.0)
    assert not p.remote
    p.heard(announcement(), 5.0)
    p.lost("stmgr-2")
    assert not p.remote


def test_two_links_and_a_link_that_goes() -> None:
    p = pressure()
    p.observe("task-5", 2 * MB + 1, top, 0.0)
    p.observe("task-6", 2 * MB + 1, lambda: (6, 1), 1.0)
    assert p.clamp_changed(1.0)
    assert p.forget("task-5", 2.0) and not p.forget("task-5", 2.0)
    assert not p.clamp_changed(2.0) and p.clamped
    assert p.observe("task-6", 0, top, 3.0)
    assert p.clamp_changed(3.0) and not p.clamped
    assert p.spent(3.0) == {5: 2.0, 6: 2.0}


class Simulation:
    """A spout at `load` times the capacity of its consumer, with real links, credits and marks."""

    def __init__(self, capacity: float, load: float, frame_bytes: int = 16_384) -> None:
        self.capacity, self.load, self.frame = capacity, load, frame_bytes
        self.now = 0.0
        self.pressure = pressure()
        self.granted = 0
        self.source = Source("task-1", 1, 1, MB, self.reply)
        self.source.grant()
        self.link = Link("task-5", 5, lambda header, data: True)
        self.link.start(1)
        self.consumed = self.consumed_bytes = 0
        self.grant()
        self.sent = self.wanted = self.due = 0.0
        self.toggles = 0
        self.most = 0

    def reply(self, data: bytes) -> None:
        self.granted = Frame.FromString(data).granted_bytes

    def grant(self) -> None:
        self.link.credit(Frame(kind=CREDIT, granted_bytes=self.consumed_bytes + MB // 2,
                               granted_tuples=1 << 40, consumed_frames=self.consumed))  # fmt: skip

    def observe(self) -> None:
        if self.pressure.observe("task-5", self.link.queued_bytes, self.link.top_task, self.now):
            self.toggles += self.pressure.clamp_changed(self.now)

    def run(self, seconds: float, step: float = 0.0005) -> None:
        payload = Frame(kind=DATA, dest_task=5, count=1, payload=b"x" * (self.frame - 20)).SerializeToString()
        while self.now < seconds:
            self.now += step
            self.wanted += self.load * self.capacity * step
            if self.pressure.clamped:
                self.wanted = min(self.wanted, self.frame)
            while self.wanted >= self.frame and not self.pressure.clamped and self.sent < self.granted:
                self.wanted -= self.frame
                self.sent += len(payload)
                self.link.put(Waiting(payload, 1, 5, False, self.source), MB)
                if self.link.queued_bytes > MB:
                    self.observe()
            self.due += self.capacity * step
            while self.due >= self.frame and self.link.retained:
                self.due -= self.frame
                self.consumed_bytes += len(self.link.retained[0].data)
                self.consumed += 1
                self.grant()
                self.link.pump()
                if "task-5" in self.pressure.local:
                    self.observe()
            self.due = min(self.due, self.frame)
            self.most = max(self.most, self.link.queued_bytes)


@pytest.mark.parametrize("capacity", [2 * MB, 20 * MB, 100 * MB])
@pytest.mark.parametrize("load", [0.99, 1.01, 1.1, 3.0])
def test_it_does_not_flap(capacity: float, load: float) -> None:
    """At 101 % of the capacity: at most one toggle a second; the queue bounded; the consumer never starved."""
    seconds = 12.0
    simulation = Simulation(capacity, load)
    simulation.run(seconds)
    assert simulation.toggles <= seconds * 2 / REST_S + 2
    assert simulation.most <= 2 * MB + MB
    assert simulation.consumed_bytes >= min(load, 1.0) * capacity * seconds * 0.97
