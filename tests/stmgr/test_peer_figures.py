"""What a stream manager reports of each link to another one: of a bounded number of them apart, and of all in sum."""

from __future__ import annotations

import pytest

from heronpy.wire.frames import CREDIT, Frame
from stmgr import reports
from stmgr.control import Control
from stmgr.neighbours import Peer
from tests.stmgr.switch_world import FAR, SPOUT, World, data


def by_peer(world: World) -> dict[str, dict[str, float]]:
    machine = Control(world.switch.settings, 1, 3, world.switch.backpressure, 5.0)
    found: dict[str, dict[str, float]] = {}
    for sample in reports.metrics(machine, world.switch, 1, {}, world.now).samples:
        found.setdefault(sample.name, {})[sample.label] = sample.value
    return found


def test_each_link_has_its_own_figures() -> None:
    world = World()
    spout = world.register(SPOUT)
    world.switch.open_peer("stmgr-2", 7)
    credit = Frame(kind=CREDIT, granted_bytes=1 << 20)
    world.reply(credit, 1, 7)
    for _ in range(3):
        world.receive(spout, data(FAR, 10))
    found = by_peer(world)
    [peer] = world.switch.peers
    assert found["__frames_to_stmgrs_by_peer"] == {peer: 3} and found["__tuples_to_stmgrs_by_peer"] == {peer: 30}
    assert found["__frames_to_stmgrs"] == {"": 3}


def test_links_beyond_the_limit_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "PEERS_MAX", 2)
    world = World()
    world.peer()
    [(first, peer)] = world.switch.peers.items()
    peers = {first: peer} | {f"stmgr-{number}": Peer(f"stmgr-{number}", 1, peer.link) for number in (12, 9, 10)}
    world.switch.peers.clear()
    world.switch.peers.update(peers)
    for counted in ("total_frames", "total_tuples"):
        setattr(peer.link, counted, 7)
    found = by_peer(world)["__frames_to_stmgrs_by_peer"]
    assert found == {first: 7, "stmgr-9": 7, "others": 14}, "a new container has the highest number"
