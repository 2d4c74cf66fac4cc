"""A pickle that acts when it is loaded, at every port and in every file: nothing loads it."""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

from heronpy.ckpt.snapshot import TaskState
from heronpy.common.errors import HeronError
from heronpy.common.setting_types import CheckpointSettings, StmgrSettings
from heronpy.connectors.durable_files import read_json
from heronpy.connectors.spark.handover import Manifest
from heronpy.connectors.spark.link import decode as decode_hint
from heronpy.executor.metrics_inbox import MetricsInbox
from heronpy.net import curve
from heronpy.net.rpc import parse
from heronpy.net.rpc_loop import ControlServer
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import checkpoint_pb2, control_pb2
from heronpy.statemgr import znode
from heronpy.statemgr.localfs import LocalStateManager
from heronpy.storage.checkpoints import CheckpointStore
from heronpy.storage.dead_letters import letter_of
from heronpy.storage.locations import check_trusted, open_location
from heronpy.storage.stores import Stores
from heronpy.tmaster.store import Store
from heronpy.wire import codec
from heronpy.wire.frames import DATA, LINK_HEADER, LINK_OPEN, Frame
from instance.poison import InHand, Journal
from stmgr.switch import Switch
from tests.security.messages import Bomb


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "it went off"


@pytest.fixture(params=[0, 2, 5], ids=["protocol 0", "protocol 2", "protocol 5"])
def bomb(mark: Path, request: pytest.FixtureRequest) -> bytes:
    data = pickle.dumps(Bomb(mark), request.param)
    pickle.loads(data)
    assert mark.is_dir(), "the bomb itself"
    mark.rmdir()
    return data


async def test_at_every_port(bomb: bytes, mark: Path, home: Path) -> None:
    queued: list[int] = []
    context: zmq.Context[Any] = zmq.Context()
    asked: list[str] = []
    server = ControlServer(
        [f"ipc://{home}/c"], lambda _, envelope: asked.append(envelope.WhichOneof("body") or ""), context
    )
    inbox = MetricsInbox(f"ipc://{home}/m", 1, lambda _: True, lambda _: None, lambda: None)
    switch = Switch(StmgrSettings(), lambda *_: True, lambda: 0.0)
    switch.take_places({1: "spout", 2: "bolt"}, {"spout"}, {})
    switch.add_peer("stmgr-2", 1, lambda header, data: True)
    opening = Frame(kind=LINK_OPEN).SerializeToString()
    switch.receive([b"s:stmgr-2:1", LINK_HEADER.pack(1, 1, opening), opening])
    carried = Frame(kind=DATA, source_task=1, dest_task=2, count=1, payload=bomb).SerializeToString()
    for data in (carried, bomb):
        server.receive([b"peer", data])
        inbox.receive([data])
        switch.receive([b"s:stmgr-2:1", LINK_HEADER.pack(1, 2, data), data])
        switch.receive([b"s:stmgr-2:1", data, data])
        decode_hint(data)
        parse(data)
    for text in ("exception_report", "metrics_report"):
        envelope = control_pb2.Envelope()
        getattr(envelope, text).process = bomb.decode("latin-1")
        inbox.receive([envelope.SerializeToString()])
    queued.append(switch.tasks[2].link.queued_tuples)
    inbox.close()
    server.close()
    context.destroy(linger=0)
    # What a stream manager passes on it does not look into.
    assert queued == [1]
    assert not mark.exists()


def test_in_a_payload_of_a_topology_that_forbids_pickle(bomb: bytes, mark: Path) -> None:
    payload = codec.encode(["word", codec.Ext(codec.PICKLE_EXTENSION, bomb)])
    with pytest.raises(HeronError, match="forbids pickle"):
        codec.decoder(allow_pickle=False)(payload, codec.MSGPACK)
    assert not mark.exists()
    # Where it is allowed this is how a value of a class travels, from task to task of one topology.
    codec.decoder(allow_pickle=True)(payload, codec.MSGPACK)
    assert mark.is_dir()


def test_in_every_file(bomb: bytes, mark: Path, home: Path) -> None:
    file = home / "file"
    readers: list[Callable[[], Any]] = [
        lambda: LaunchSpec.load(file),
        lambda: read_json(file),
        lambda: Manifest.from_bytes(bomb),
        lambda: [letter_of(line) for line in file.read_bytes().splitlines()],
        lambda: Journal(file, 3).load(),
        lambda: InHand(file).read(),
        lambda: znode.parse("/x", bomb),
        lambda: open_location(str(home / "store" / "wc-1" / "chk-1")),
        lambda: curve.load(str(home), "wc-1"),
    ]
    folder = home / "store" / "wc-1" / "chk-1"
    folder.mkdir(parents=True)
    head = struct.Struct("<8sIQ32s")
    curve.generate(str(home))
    for data in (bomb, len(bomb).to_bytes(4, "little") + bomb, json.dumps(bomb.decode("latin-1")).encode() + b"\n"):
        file.write_bytes(data)
        (folder / "metadata").write_bytes(head.pack(b"HERONCKP", 1, len(data), hashlib.sha256(data).digest()) + data)
        (curve.folder_of(str(home)) / "client.key").write_bytes(data)
        for read in readers:
            try:
                read()
            except HeronError:
                pass
    assert not mark.exists()


def test_in_the_state_manager(bomb: bytes, mark: Path, home: Path) -> None:
    """Behind a right checksum, under each path that a topology master reads."""
    state = LocalStateManager(home / "state")
    for path in ("topologies/wc", "packingplans/wc", "pplans/wc", "executionstate/wc", "tmasters/wc", "checkpoints/wc"):
        state.set(path, bomb)
    with pytest.raises(HeronError):
        Store(state, "wc", 1).load()
    state.close()
    assert not mark.exists()


def test_in_the_state_of_a_topology_that_forbids_pickle(bomb: bytes, mark: Path, tmp_path: Path) -> None:
    """And in metadata of another user no topology trusts it."""
    store, settings = CheckpointStore(tmp_path / "wc-1", fsync=False), CheckpointSettings()
    state = codec.encode([0, codec.Ext(codec.PICKLE_EXTENSION, bomb)])
    task = checkpoint_pb2.TaskSnapshot(task_id=1, component="count", stateful=True, state_inline=state)
    metadata = checkpoint_pb2.Metadata(
        version=1, checkpoint=1, topology="wc", topology_id="wc-1", parallelism={"count": 1},
        key_groups=settings.key_groups, tasks=[task],
    )  # fmt: skip
    location = store.write_metadata(metadata)
    restored = TaskState("count", 0, 1, settings, Stores(store), task_id=1, allow_pickle=False)
    with pytest.raises(HeronError, match="forbids pickle"):
        restored.restore(location, 1)
    (Path(location) / "metadata").chmod(0o666)
    with pytest.raises(HeronError, match="changed by other users"):
        check_trusted(location)
    assert not mark.exists()
