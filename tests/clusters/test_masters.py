"""Questions from an event loop: to a topology master that comes and goes, and through the file service of an executor."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.clusters.errors import ClusterError
from heronpy.clusters.masters import Link, Master, NoMasterError
from heronpy.clusters.session import Session, Way
from heronpy.clusters.target import Target
from heronpy.common.errors import DeadlineError, InvalidRpcError
from heronpy.executor.file_service import FileService, socket_name
from heronpy.net.transport import endpoint_of
from heronpy.proto import control_pb2
from heronpy.statemgr import paths
from heronpy.views.load import LoadAnswer
from tests.cli.conftest import FakeTopology, home, wordy
from tests.support.launch import launch_spec
from tests.tracker.conftest import load_reply

__all__ = ["home", "wordy"]


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A private folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="files-", dir="/tmp") as folder:
        os.chmod(folder, 0o700)
        yield Path(folder)


def test_a_master_is_found_again_after_it_was_away(wordy: FakeTopology) -> None:
    wordy.answers["get_load"] = load_reply()
    location = wordy.state.get(paths.tmaster("wordy"))[0]

    async def run() -> None:
        session = Session(Target("local"))
        master = Master(session, session.find("wordy"))
        assert (await master.look(control_pb2.GetLoad(), LoadAnswer)).uptime_s == 65.0
        wordy.state.delete(paths.tmaster("wordy"))
        with pytest.raises(NoMasterError, match="is not running"):
            await master.ask(control_pb2.GetLoad())
        wordy.state.create(paths.tmaster("wordy"), location, ephemeral=True)
        assert (await master.look(control_pb2.GetLoad(), LoadAnswer)).uptime_s == 65.0
        master.close()

    asyncio.run(run())


def test_a_peer_that_is_not_there_costs_its_deadline(sockets: Path) -> None:
    async def run() -> None:
        link = Link()
        with pytest.raises(DeadlineError, match="nobody did not answer within"):
            await link.ask(Way(f"ipc://{sockets}/none", "nobody"), control_pb2.GetLoad(), 0.1)
        link.close()

    asyncio.run(run())


def test_files_are_read_through_the_service(wordy: FakeTopology, sockets: Path) -> None:
    working = Path(wordy.record.working_dir)
    launch = launch_spec(
        "wordy", "wordy-1", working, sockets_dir=str(sockets), state_root=wordy.launch.state_root, release="1",
        settings=wordy.launch.settings,
    )  # fmt: skip
    launch.save(working / "launch.json")
    (working / "log-files" / "stmgr-1.log").write_text("hello\n")

    async def run() -> None:
        session = Session(Target("local"))
        master = Master(session, session.find("wordy"))
        service = FileService(launch, 1)
        assert service.endpoint == endpoint_of(launch, socket_name(1)) == f"ipc://{sockets}/executor-1.files"
        listed = await master.ask_executor(1, control_pb2.ListFiles())
        assert [file.name for file in listed.files] == ["log-files/stmgr-1.log"]
        piece = await master.ask_executor(1, control_pb2.ReadFile(name="log-files/stmgr-1.log"))
        assert (piece.data, piece.size) == (b"hello\n", 6)
        with pytest.raises(InvalidRpcError, match=r"no file '\.\./launch\.json'"):
            await master.ask_executor(1, control_pb2.ReadFile(name="../launch.json"))
        log = listed.files[0]
        wanted = control_pb2.SearchFile(name=log.name, file=log.file, text="ell", until=log.bytes, hits=5)
        found = await master.ask_executor(1, wanted)
        assert ([hit.line for hit in found.hits], found.until, found.searched) == ([b"hello"], 0, 6)
        with pytest.raises(InvalidRpcError, match=r"no log '\.\./launch\.json'"):
            await master.ask_executor(1, control_pb2.SearchFile(name="../launch.json", text="ell"))
        with pytest.raises(ClusterError, match="executor of container 2 of 'wordy' is not running"):
            await master.ask_executor(2, control_pb2.ListFiles(), 60)  # without a socket nobody is waited for
        service.close()
        master.close()

    asyncio.run(run())


def test_the_service_answers_nothing_else(wordy: FakeTopology, sockets: Path) -> None:
    launch = launch_spec(
        "wordy", "wordy-1", Path(wordy.record.working_dir), sockets_dir=str(sockets),
        state_root=wordy.launch.state_root, release="1", settings=wordy.launch.settings,
    )  # fmt: skip

    async def run() -> None:
        service, link = FileService(launch, 0), Link()
        with pytest.raises(InvalidRpcError, match="does not support the request restart_processes"):
            await link.ask(Way(service.endpoint, "the file service"), control_pb2.RestartProcesses(names=["x"]), 5.0)
        service.close()
        link.close()

    asyncio.run(run())
