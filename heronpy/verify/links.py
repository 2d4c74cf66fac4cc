"""Bad links between stream managers, and to the topology master, in a running topology (F12-F16).

Every act sets rules of the fault proxy for a while and clears them; half-open connections stay frozen, because
the heartbeats of the stream managers have to detect them.
"""

from __future__ import annotations

from heronpy.common.ids import stmgr_id
from heronpy.loadtest.errors import LabError
from heronpy.verify.acts import BETWEEN, Act, repeated
from heronpy.verify.proxy import FaultProxy, Rule
from heronpy.verify.world import World

#: Half-open connections are detected and replaced within this (F16).
FOUND_S = 10.0


def _proxy(world: World) -> FaultProxy:
    assert world.proxy is not None
    return world.proxy


def _two(world: World) -> tuple[str, str]:
    containers = world.containers()
    if len(containers) < 2:
        raise LabError("a fault of the links needs two containers; give --containers 2")
    one, other = world.random.sample(containers, 2)
    return stmgr_id(one), stmgr_id(other)


def _while(world: World, what: str, seconds: float, *rules: tuple[str, str, Rule]) -> None:
    proxy = _proxy(world)
    world.note(f"{what} for {seconds:g} s")
    for source, target, rule in rules:
        proxy.set(source, target, rule)
    try:
        world.wait(seconds)
    finally:
        proxy.clear()


def _parted(one: str, other: str) -> tuple[tuple[str, str, Rule], ...]:
    hole = Rule(blackhole=True)
    return (one, other, hole), (other, one, hole)


@repeated
def partition(world: World, number: int) -> None:
    one, other = _two(world)
    seconds = 2.0 if world.short else (10.0, 50.0, 90.0)[number % 3]
    _while(world, f"partition {one} | {other}", seconds, *_parted(one, other))


@repeated
def partition_one_way(world: World, number: int) -> None:
    one, other = _two(world)
    seconds = 2.0 if world.short else 10.0
    _while(world, f"partition {one} -> {other}", seconds, (one, other, Rule(blackhole=True)))


def partition_flapping(world: World, runs: int) -> None:
    """On and off for 3 s each."""
    each = 0.7 if world.short else 3.0
    for _ in range(max(2, runs)):
        one, other = _two(world)
        _while(world, f"partition {one} | {other}", each, *_parted(one, other))
        world.wait(each)
    world.until_arrived(BETWEEN)


@repeated
def partition_tmaster(world: World, number: int) -> None:
    name = stmgr_id(world.random.choice(world.containers()))
    seconds = 2.0 if world.short else 20.0
    _while(world, f"partition {name} | tmaster", seconds, *_parted(name, "tmaster"))


def bad_link(rule: Rule) -> Act:
    def act(world: World, runs: int) -> None:
        seconds = (3.0 if world.short else 20.0) * runs
        _while(world, f"links with {rule}", seconds, ("*", "*", rule))
        world.until_arrived(BETWEEN)

    return act


def corrupt(world: World, runs: int) -> None:
    """One byte in a million; in a short run, which has fewer bytes, three in a hundred thousand."""
    bad_link(Rule(corrupt_share=3e-5 if world.short else 1e-6))(world, runs)
    if not _proxy(world).counts["corruptions"]:
        raise LabError("no byte was corrupted; give a higher --rate or a longer --duration")


@repeated
def throttle(world: World, number: int) -> None:
    """125,000 bytes a second on one link."""
    one, other = _two(world)
    seconds = 3.0 if world.short else 20.0
    _while(world, f"1 Mbit/s {one} -> {other}", seconds, (one, other, Rule(bytes_per_s=125_000)))


@repeated
def half_open(world: World, number: int) -> None:
    """Connections that pass nothing and do not end; heartbeats must detect them within 10 s."""
    one, other = _two(world)
    world.note(f"half-open {one} | {other}")
    proxy = _proxy(world)
    proxy.freeze(one, other)
    before = proxy.counts["connections"]
    what = f"the end of a half-open connection between {one} and {other}"
    world.until(lambda: proxy.counts["connections"] > before, FOUND_S, what)
