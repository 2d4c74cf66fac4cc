"""The Slurm engine on Slurm's own daemons: what is submitted, seen, ended, lost."""

from __future__ import annotations

import sys
from collections.abc import Callable

import psutil
import pytest

from heronpy.common.errors import ConfigError
from heronpy.engines.contract import Ended, EngineAwayError, EngineFatalError, EnginePhase, Request, Seen
from heronpy.engines.slurm.batch import SlurmOptions
from heronpy.engines.slurm.engine import SlurmEngine
from heronpy.procs.exit_reason import ExitReason
from tests.support.slurm import SlurmCluster
from tests.support.waiting import wait_for

heavy = pytest.mark.heavy
TOPOLOGY = "wc-1f"
#: A container: it shows what it got, says why it ends, and does what its join token says.
CONTAINER = """
import os, signal, sys, time
token = sys.stdin.read().strip()
def end(signum, frame):
    print("signal", signal.Signals(signum).name, flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGUSR1, lambda signum, frame: print("leave soon", flush=True))
print(os.environ["HERON_TOPOLOGY_ID"], os.environ["HERON_CONTAINER"], os.environ["HERON_SUBMISSION"], flush=True)
print("secret" if "HERON_TEST_SECRET" in os.environ else "clean", sys.argv[1:], flush=True)
verb, _, rest = token.partition(" ")
if verb == "exit":
    sys.exit(int(rest))
if verb == "die":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


def engine_of(cluster: SlurmCluster, topology: str = TOPOLOGY, **options: object) -> SlurmEngine:
    program = cluster.folder / "container.py"
    program.write_text(CONTAINER)
    given = SlurmOptions(output_dir=str(cluster.folder), **options)  # type: ignore[arg-type]
    variables = {**cluster.env, "SQUEUE_FORMAT": "%i", "SBATCH_PARTITION": "nowhere", "HERON_TEST_SECRET": "yes"}
    return SlurmEngine(topology, given, [sys.executable, str(program)], variables, poll_s=0.1)


def ask(container: int, submission: int = 1, token: str = "run", topology: str = TOPOLOGY, **size: object) -> Request:
    given = {"cpu": 1.0, "ram_bytes": 100 << 20, **size}
    return Request(topology, container, submission, token=token, **given)  # type: ignore[arg-type]


def when(
    engine: SlurmEngine, holds: Callable[[dict[tuple[int, int], Seen]], bool], what: str, within_s: float = 40.0
) -> None:
    wait_for(lambda: holds({(seen.container, seen.submission): seen for seen in engine.list()}), within_s, what)


def seen_by(engine: SlurmEngine) -> dict[tuple[int, int], Seen]:
    return {(seen.container, seen.submission): seen for seen in engine.list()}


def test_containers_of_one_size_run_on_different_nodes_and_end(cluster: SlurmCluster) -> None:
    engine = engine_of(cluster)
    ids = engine.submit([ask(0, cpu=0.5), ask(1), ask(3)])
    when(engine, lambda seen: all(one.phase is EnginePhase.RUNNING for one in seen.values()), "three running")
    seen = seen_by(engine)
    assert set(seen) == {(0, 1), (1, 1), (3, 1)}
    assert {one.host for one in seen.values()} == {*cluster.nodes}, "each node has one, as long as there are enough"
    assert all(one.pinned and one.ended is Ended.NO for one in seen.values())
    assert engine.topologies() == {TOPOLOGY: 3}
    assert engine_of(cluster, "another").list() == []
    wait_for(lambda: "clean []" in engine.termination_report(ids[3, 1]), 10, "the container's first words")
    assert f"{TOPOLOGY} 3 1" in engine.termination_report(ids[3, 1])
    engine.cancel(list(ids.values()), 1.0)
    engine.cancel([*ids.values(), "999999"], 1.0)
    when(engine, lambda seen: all(one.ended is Ended.CONFIRMED for one in seen.values()), "all ended")
    assert all(one.cancelled and one.reason is ExitReason.KILLED for one in seen_by(engine).values())
    assert "signal SIGTERM" in engine.termination_report(ids[3, 1]), "the signal reaches the container itself"
    assert engine.topologies() == {}


def test_ends_have_their_reasons(cluster: SlurmCluster) -> None:
    engine = engine_of(cluster, "ends")
    engine.submit([ask(number, token=what, topology="ends") for number, what in enumerate(("exit 0", "exit 4", "die"))])
    when(
        engine, lambda seen: len(seen) == 3 and all(one.ended is Ended.CONFIRMED for one in seen.values()), "all ended"
    )
    seen = seen_by(engine)
    assert [seen[number, 1].reason for number in range(3)] == [
        ExitReason.PREEMPTED, ExitReason.USER_EXCEPTION, ExitReason.KILLED,
    ]  # fmt: skip
    assert [seen[number, 1].exit_code for number in range(3)] == [0, 4, None]
    assert not any(one.cancelled for one in seen.values())


@heavy
def test_preemption_is_no_fault_of_the_container(cluster: SlurmCluster) -> None:
    engine, urgent = engine_of(cluster, "low"), engine_of(cluster, "high", partition="urgent", extra=("--exclusive",))
    engine.submit([ask(1, topology="low")])
    when(engine, lambda seen: seen[1, 1].phase is EnginePhase.RUNNING, "the container running")
    ids = urgent.submit([ask(number, topology="high") for number in range(3)])
    when(engine, lambda seen: seen[1, 1].ended is Ended.CONFIRMED, "the preempted container ended")
    seen = seen_by(engine)[1, 1]
    assert seen.reason is ExitReason.PREEMPTED and not seen.cancelled
    urgent.cancel(list(ids.values()), 1.0)
    when(urgent, lambda seen: all(one.ended is not Ended.NO for one in seen.values()), "all ended")


def test_what_waits_says_why_and_what_cannot_be_is_refused(cluster: SlurmCluster) -> None:
    engine = engine_of(cluster, "waits", extra=("--begin=now+1hour",))
    ids = engine.submit([ask(1, topology="waits", avoid=(cluster.nodes[0],))])
    when(engine, lambda seen: "BeginTime" in seen[1, 1].words, "the reason")
    seen = seen_by(engine)[1, 1]
    assert seen.phase is EnginePhase.QUEUED and not seen.hopeless and seen.avoid == (cluster.nodes[0],)
    explained = engine.explain(ids[1, 1])
    assert explained.words == "BeginTime" and explained.starts_at is not None
    engine.cancel(list(ids.values()), 1.0)
    assert "no longer lists the job" in engine.explain("999999_1").words
    for options, words in (({"partition": "nowhere"}, "partition"), ({"extra": ("--constraint=none",)}, "feature")):
        with pytest.raises(EngineFatalError, match=words):
            engine_of(cluster, "wrong", **options).submit([ask(1, topology="wrong")])
    with pytest.raises(EngineFatalError, match="configuration is not available"):
        engine_of(cluster, "big").submit([ask(1, topology="big", ram_bytes=100 << 30)])
    assert engine_of(cluster, "big").list() == [], "a refused submission is no container"
    # All nodes are to be avoided, or one is unknown: it may run there all the same.
    anywhere = engine_of(cluster, "any")
    ids = anywhere.submit([ask(1, topology="any", avoid=tuple(cluster.nodes)), ask(2, topology="any", avoid=("gone",))])
    when(anywhere, lambda seen: all(one.phase is EnginePhase.RUNNING for one in seen.values()), "both running")
    anywhere.cancel(list(ids.values()), 1.0)
    hopeless = engine_of(cluster, "never", partition="tiny", time_limit_s=36000)
    ids = hopeless.submit([ask(1, topology="never")])
    when(hopeless, lambda seen: seen[1, 1].hopeless, "the engine giving it no chance")
    hopeless.cancel(list(ids.values()), 1.0)


def test_a_host_that_is_barred_gets_no_container_even_if_there_is_no_other(cluster: SlurmCluster) -> None:
    engine = engine_of(cluster, "barred")
    for barred in (tuple(cluster.nodes), (*cluster.nodes, "gone")):
        with pytest.raises(EngineFatalError, match="configuration is not available"):
            engine.submit([ask(1, topology="barred", avoid=barred, barred=barred)])
    # What is only to be avoided is not missed, and a host that Slurm does not know needs no bar.
    given = {"avoid": (*cluster.nodes, "gone"), "barred": (cluster.nodes[0], "gone")}
    ids = engine.submit([ask(1, topology="barred", **given)])
    when(engine, lambda seen: seen[1, 1].phase is EnginePhase.RUNNING, "it running")
    assert seen_by(engine)[1, 1].host in cluster.nodes[1:]
    engine.cancel(list(ids.values()), 1.0)
    # A host with another container is better than a drained or lost one.
    beside = engine_of(cluster, "beside")
    ids = beside.submit([ask(1, topology="beside", avoid=tuple(cluster.nodes), beside=(cluster.nodes[1],))])
    when(beside, lambda seen: seen[1, 1].phase is EnginePhase.RUNNING, "it running")
    assert seen_by(beside)[1, 1].host == cluster.nodes[1]
    beside.cancel(list(ids.values()), 1.0)


@pytest.mark.parametrize("short", ["--requeu", "--part=batch", "--comm=x", "--job=other", "--no-r"])
def test_options_that_slurm_completes_are_refused_as_the_whole_ones(cluster: SlurmCluster, short: str) -> None:
    cluster.run("sbatch", "--test-only", short, "--wrap=true")
    with pytest.raises(ConfigError, match="short for"):
        SlurmOptions(extra=(short,))


def test_check_and_reach(cluster: SlurmCluster) -> None:
    found = engine_of(cluster, partition="batch").check()
    assert all(one.ok for one in found), found
    assert any("2 cores" in one.detail for one in found), found
    [bad] = [one for one in engine_of(cluster, partition="nowhere").check() if not one.ok]
    assert "nowhere" in bad.detail and bad.fix
    # Slurm without accounts takes any name, so nobody can say whether this one is right.
    named = engine_of(cluster, partition="batch", account="no-such").check()
    assert all(one.ok for one in named), named
    [untold] = [one for one in named if one.untried]
    assert "account 'no-such' cannot be checked: this Slurm keeps no accounts" in untold.detail and untold.fix
    assert engine_of(cluster).reach() == ("127.0.0.1",)
    lacking = SlurmEngine("t", SlurmOptions(), ["true"], {"PATH": "/nowhere"})
    assert not lacking.check()[0].ok and "sbatch" in lacking.check()[0].detail
    with pytest.raises(EngineFatalError, match="not installed"):
        lacking.list()


@heavy
def test_the_end_of_its_time_is_told_before_and_is_no_fault(cluster: SlurmCluster) -> None:
    engine = engine_of(cluster, "timed", time_limit_s=60, leave_s=45)
    ids = engine.submit([ask(1, topology="timed")])
    wait_for(lambda: "leave soon" in engine.termination_report(ids[1, 1]), 40, "the container being told")
    assert seen_by(engine)[1, 1].phase is EnginePhase.RUNNING
    when(engine, lambda seen: seen[1, 1].ended is Ended.CONFIRMED, "its time being over", 150)
    seen = seen_by(engine)[1, 1]
    assert seen.reason is ExitReason.PREEMPTED and seen.words.startswith("TIMEOUT") and not seen.cancelled


def test_what_finds_no_room_says_so_and_which_hosts_are_ready(cluster: SlurmCluster) -> None:
    engine, [first, *others] = engine_of(cluster, "full"), cluster.nodes
    size = {"topology": "full", "ram_bytes": 900 << 20}
    ids = engine.submit([ask(1, avoid=(first,), **size), ask(2, avoid=(first,), **size)])
    when(engine, lambda seen: {one.host for one in seen.values()} == {*others}, "a container on each other node")
    ids |= engine.submit([ask(3, avoid=(first,), **size)])
    when(engine, lambda seen: seen[3, 1].waits, "a third one waiting")
    assert engine.ready([first, "nowhere"]) == {first}
    ids |= engine.submit([ask(3, 2, anywhere=True, **size)])
    when(engine, lambda seen: seen[3, 2].host == first, "it has the host that was avoided")
    assert not seen_by(engine)[3, 2].pinned
    engine.cancel(list(ids.values()), 1.0)
    when(engine, lambda seen: all(one.ended is Ended.CONFIRMED for one in seen.values()), "all ended")


@heavy
def test_a_lost_node_confirms_nothing_until_it_is_booted(
    cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slurmd is gone, its containers run on; one of them was cancelled after that."""
    monkeypatch.setattr("heronpy.engines.slurm.texts.CLOCKS_S", 1.0)
    engine = engine_of(cluster, "lost")
    node = cluster.nodes[2]
    ids = engine.submit([ask(number, topology="lost", avoid=tuple(cluster.nodes[:2])) for number in (1, 2)])
    when(engine, lambda seen: all(one.phase is EnginePhase.RUNNING for one in seen.values()), "both running")
    assert {one.host for one in seen_by(engine).values()} == {node}
    wait_for(lambda: len(running(cluster)) == 2, 10, "both running")
    cluster.lose_node(node)
    engine.cancel([ids[2, 1]], 1.0)
    when(engine, lambda seen: all(one.ended is not Ended.NO for one in seen.values()), "Slurm giving up the node")
    seen = seen_by(engine)
    assert all(one.ended is Ended.UNCONFIRMED and one.reason is None and not one.cancelled for one in seen.values())
    assert {one.words.partition(":")[0] for one in seen.values()} == {"NODE_FAIL", "CANCELLED"}
    assert len(running(cluster)) == 2, "which is why"
    cluster.reboot_node(node)
    when(engine, lambda seen: all(one.ended is Ended.CONFIRMED for one in seen.values()), "the boot confirming it")
    assert not running(cluster)
    assert all(f"{node} was rebooted" in one.words for one in seen_by(engine).values())
    cluster.lose_node(node)


def running(cluster: SlurmCluster) -> list[psutil.Process]:
    """Containers whose processes exist, whatever Slurm says."""
    program = str(cluster.folder / "container.py")
    return [one for one in psutil.process_iter(["cmdline"]) if program in (one.info["cmdline"] or ())]


@heavy
def test_a_controller_that_hangs_is_away_within_the_deadline(cluster: SlurmCluster) -> None:
    engine = engine_of(cluster, "hangs")
    cluster.stop_controller()
    try:
        with pytest.raises(EngineAwayError):
            engine.list()
        with pytest.raises(EngineAwayError):
            engine.submit([ask(1, topology="hangs")])
    finally:
        cluster.continue_controller()
    wait_for(lambda: cluster.states(), 30, "the controller answering")
    engine.list()
