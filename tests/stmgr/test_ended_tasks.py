"""What a stream manager reports of a task's process that has ended without a last report."""

from __future__ import annotations

from heronpy.proto import control_pb2
from stmgr.control import Control
from stmgr.reports import heartbeat
from tests.stmgr.switch_world import BOLT, FAR, SPOUT, World, data


def test_a_killed_process_has_emitted_what_came_from_it() -> None:
    """Its last report is older than its last tuples: what has come here counts, once, whatever links they came over."""
    world = World()
    machine = Control(world.switch.settings, 1, 3, world.switch.backpressure, 5.0)

    def process(epoch: int, link_epoch: int) -> bytes:
        registration = control_pb2.RegisterInstance(task_id=SPOUT, epoch=epoch, component="spout")
        machine.sessions.register(f"t:{SPOUT}:{epoch}".encode(), registration, world.now)
        return world.register(SPOUT, epoch, link_epoch)

    def told() -> dict[int, int]:
        return {status.epoch: status.emitted for status in heartbeat(machine, world.switch, world.now).tasks}

    first = process(1, 100)
    machine.sessions.heard(first, control_pb2.TaskStatus(task_id=SPOUT, epoch=1, emitted=5), 0.0)
    world.receive(first, data(BOLT, 20))
    assert told() == {1: 5}, "it will report them itself"
    assert process(1, 101) == first, "the same process, over a new link"
    world.receive(first, data(FAR, 3), epoch=101, seq=2)
    machine.sessions.heard(first, control_pb2.TaskStatus(task_id=SPOUT, epoch=1, emitted=6), 0.0)
    second = process(2, 200)
    assert told() == {1: 23, 2: 0} and told() == {2: 0}
    world.receive(second, data(BOLT, 4))
    machine.sessions.heard(second, control_pb2.TaskStatus(task_id=SPOUT, epoch=2, emitted=9), 0.0)
    process(3, 300)
    assert told() == {2: 9, 3: 0}, "it has told of more than has come"
    world.receive(f"t:{SPOUT}:3".encode(), data(BOLT, 7))
    assert told() == {3: 0}
    machine.sessions.expire(0.0)
    assert machine.sessions.expire(5.0) == [] and machine.sessions.expire(9.9) == []
    world.now = 10.1
    assert machine.sessions.expire(world.now) == [SPOUT] and told() == {3: 7}, "silent, and perhaps dead"
    late = control_pb2.RegisterInstance(task_id=SPOUT, epoch=4, component="spout")
    machine.sessions.register(f"t:{SPOUT}:4".encode(), late, world.now)
    assert told() == {3: 7, 4: 0}, "its successor has no link for its tuples yet"
