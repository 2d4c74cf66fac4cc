"""What a status says of a container that was just moved."""

from __future__ import annotations

from heronpy.cli.render import containers
from heronpy.proto import control_pb2


def test_it_starts_until_its_stream_manager_has_registered() -> None:
    """Its executor has; the tasks that the topology master knows are still the old ones."""
    stmgr = control_pb2.ProcessRecord(name="stmgr-1", kind=control_pb2.PROCESS_STMGR)
    known = control_pb2.RegisterExecutor(container=1, epoch=3, host="n1", processes=[stmgr])
    status = control_pb2.StatusReply(lifecycle=control_pb2.LIFE_RUNNING, executors=[known])
    here = control_pb2.ProcessRecord(name="executor-1", phase="RUNNING", host="n1", epoch=3)
    containers.tell_starting(status, [here])
    assert (status.lifecycle, status.cause) == (control_pb2.LIFE_DEGRADED, "container 1 is starting on host n1")
    status.lifecycle = control_pb2.LIFE_RUNNING
    status.executors[0].processes[0].state = control_pb2.PROC_RUNNING
    containers.tell_starting(status, [here])
    assert status.lifecycle == control_pb2.LIFE_RUNNING
