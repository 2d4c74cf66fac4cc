"""The totals in a status: over restarts of every process, the topology master included."""

from __future__ import annotations

from heronpy.proto import control_pb2
from heronpy.tmaster.events import Node
from heronpy.tmaster.machine import TopologyMaster
from heronpy.tmaster.totals import Totals
from tests.tmaster.tmaster_world import World


def test_a_status_shows_totals_over_restarts_of_tasks_and_stream_managers() -> None:
    world = World().running()
    spout, bolt = world.task(1), world.task(3)
    spout.status.acked, spout.status.emitted, spout.status.pending = 50, 60, 10
    bolt.status.executed, bolt.status.dead_letters = 60, 2
    world.sims[1].beat.discarded_tuples, world.sims[1].beat.lost_tuples = 9, 4
    world.round()
    world.sims[1].restart([])
    world.sims[1].beat = control_pb2.StmgrHeartbeat(discarded_tuples=3, lost_tuples=1)
    world.rounds(2)
    found = world.status()
    shown = {task.task_id: task for task in found.tasks}
    assert (shown[1].emitted, shown[1].acked, shown[3].executed) == (60, 50, 60)
    assert (found.totals.acked, found.totals.replayed) == (50, 10)
    assert (found.totals.dead_letters, found.totals.lost, found.discarded_tuples) == (2, 5, 12)
    assert found.totals.lost_estimated, "nobody knows what the stream manager had queued"
    assert found.totals.lost_unknown, "and nothing bounds it"


def test_what_is_dropped_on_purpose_is_summed_over_restarts_and_is_no_loss() -> None:
    world = World().running()
    world.sims[1].beat.dropped["count"] = 9
    world.round()
    world.sims[1].restart([])
    world.sims[1].beat = control_pb2.StmgrHeartbeat(dropped={"count": 3, "sort": 2})
    world.rounds(2)
    world.sims[1].beat = control_pb2.StmgrHeartbeat(dropped={"count": 1})
    world.rounds(2)
    found = world.status()
    assert (dict(found.dropped), found.discarded_tuples, found.totals.lost) == ({"count": 12, "sort": 2}, 0, 0)
    kept = world.machine.shared.registry.totals.ledger(world.topology.id)
    heir = Totals.of(control_pb2.TotalsLedger.FromString(kept.SerializeToString()), world.topology.id)
    assert heir.dropped == {"count": 12, "sort": 2}


def test_a_new_topology_master_shows_what_it_inherited_of_tasks_that_it_has_not_heard_of() -> None:
    """As lower bounds: they have gone on counting."""
    world = World().running()
    spout, bolt = world.task(1), world.task(3)
    spout.status.acked, spout.status.emitted, bolt.status.executed = 50, 60, 60
    world.rounds(2)
    before = world.status()
    machine = world.machine
    heir = TopologyMaster(
        world.settings,
        world.epoch + 1,
        topology=world.store[Node.TOPOLOGY],
        packing=world.store[Node.PACKING_PLAN],
        previous=world.store[Node.PHYSICAL_PLAN],
        totals=machine.shared.registry.totals.ledger(world.topology.id),
    )
    heir.begin(world.now)
    after = heir.status(world.now)
    assert [task.emitted for task in after.tasks] == [task.emitted for task in before.tasks]
    assert [task.executed for task in after.tasks] == [task.executed for task in before.tasks]
    assert after.totals.acked == before.totals.acked == 50
    assert after.totals.at_least and all(task.at_least for task in after.tasks)
    assert not before.totals.at_least
    assert "did not start" not in after.cause
