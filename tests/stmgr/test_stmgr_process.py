"""A stream manager as a process, with a topology master in the test: what a refusal of its registration means to it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heronpy.common import exit_codes
from heronpy.common.errors import HeronError, ReplacedError, RpcError, TopologyError
from heronpy.common.folders import make_folders
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from tests.support.topologies import deploy, packing_plan
from tests.support.waiting import eventually
from tests.support.wires import new_endpoint


@pytest.mark.parametrize("other", [TopologyError("stmgr-1 is not in the packing plan"), RpcError("it failed")])
def test_it_goes_on_registering_until_it_is_fenced(home: Path, other: HeronError) -> None:
    """An update may just be about to put its container into the plan."""
    deployed = deploy(home, packing_plan({1: [("word", 1)]}))
    make_folders(deployed.launch.sockets_dir)
    registrations: list[control_pb2.RegisterStmgr] = []
    beats: list[control_pb2.StmgrHeartbeat] = []
    fenced = False

    def answer(peer: bytes, envelope: control_pb2.Envelope) -> Any:
        field, body = body_of(envelope)
        if field == "stmgr_heartbeat":
            beats.append(body)
            return None
        registrations.append(body)
        if fenced:
            raise ReplacedError("stmgr-1", 1, 2)
        if len(registrations) < 3:
            raise other
        return control_pb2.RegisterStmgrReply()

    async def main() -> None:
        nonlocal fenced
        server = ControlServer([new_endpoint()], answer)
        location = plan_pb2.TmasterLocation(topology="word-count", endpoint=server.endpoints[0], epoch=1)
        deployed.state.set(paths.tmaster("word-count"), location.SerializeToString())
        words = ["--launch", deployed.launch_file, "--container", "1", "--epoch", "1"]
        process = subprocess.Popen([sys.executable, "-m", "stmgr", *words])
        try:
            await eventually(lambda: beats, what="a heartbeat of a registered stream manager")
            assert len(registrations) == 3 and process.poll() is None
            fenced = True
            location.epoch = 2
            deployed.state.set(paths.tmaster("word-count"), location.SerializeToString())
            await eventually(lambda: process.poll() is not None, what="its end")
            assert process.returncode == exit_codes.FENCED and len(registrations) == 4
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            server.close()
            deployed.clean_up()

    asyncio.run(main())
