"""A thousand containers register at once."""

from __future__ import annotations

from heronpy.common.setting_types import TmasterSettings
from heronpy.proto import control_pb2, plan_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Persist, Send
from heronpy.tmaster.machine import TopologyMaster
from tests.tmaster.tmaster_world import make_packing, make_topology


def test_registration_storm_of_1000_containers() -> None:
    topology = make_topology({"word": 5000}, {"count": 5000})
    packing = make_packing(topology, 1000)
    machine = TopologyMaster(TmasterSettings(), 1, topology=topology, packing=packing)
    machine.begin(0.0)
    sent = persisted = 0
    for container in packing.containers:
        record = plan_pb2.StmgrRecord(id=f"stmgr-{container.id}", container=container.id, epoch=1)
        message = control_pb2.RegisterStmgr(stmgr=record)
        for instance in container.instances:
            message.tasks.add(task_id=instance.task_id, epoch=1)
        for effect in machine.handle(events.StmgrRegistered(b"%d" % container.id, container.id, message), 0.1):
            persisted += isinstance(effect, Persist)
            sent += len(effect.peers) if isinstance(effect, Send) else 0
    assert (persisted, sent) == (1, 1000)
    for container in packing.containers:
        beat = control_pb2.StmgrHeartbeat(stmgr_id=f"stmgr-{container.id}", epoch=1, plan_version=1)
        for instance in container.instances:
            beat.tasks.add(task_id=instance.task_id, epoch=1, plan_version=1, state=control_pb2.TASK_RUNNING)
        machine.handle(events.StmgrBeat(b"%d" % container.id, beat), 0.2)
    assert machine.lifecycle == control_pb2.LIFE_RUNNING
    machine.validate()
