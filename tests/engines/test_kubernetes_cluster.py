"""The Kubernetes engine on an API server, whose kubelets run pods as processes: seen, ended, lost.

`world` is a store of the tests' own, and by `make engines` the real control plane as well; `fake` is the former alone, `real`
the latter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from heronpy.clusters.engines import end_all
from heronpy.engines.contract import Ended, EngineAwayError, EngineFatalError, EnginePhase, Request, Seen
from heronpy.engines.kubernetes import client as client_module
from heronpy.engines.kubernetes import engine as engine_module
from heronpy.engines.kubernetes.client import Api
from heronpy.engines.kubernetes.engine import KubernetesEngine
from heronpy.engines.kubernetes.pods import PodOptions
from heronpy.procs.exit_reason import ExitReason
from tests.engines.conftest import World
from tests.support.hosts import needs_hosts
from tests.support.kubernetes import NAMESPACE, TOKEN, Cluster, Fault
from tests.support.kubernetes_node import IMAGE, Kubelets
from tests.support.waiting import wait_for

pytestmark = needs_hosts
TOPOLOGY = "WordCount0d1f"
#: A container: it shows what it got, says why it ends, and does what its join token says.
CONTAINER = """
import os, signal, sys, time
with open(os.path.join(os.environ["HERON_JOIN_TOKEN_FOLDER"], "join_token")) as file:
    verb, _, rest = file.read().partition(" ")
def end(signum, frame):
    print("signal", signal.Signals(signum).name, flush=True)
    sys.exit(0)
if verb != "deaf":
    signal.signal(signal.SIGTERM, end)
print(os.environ["HERON_TOPOLOGY_ID"], os.environ["HERON_CONTAINER"], os.environ["HERON_SUBMISSION"], flush=True)
print("on", os.environ["HERON_HOST"], os.getpid(), flush=True)
if verb == "exit":
    sys.exit(int(rest))
if verb == "say":
    for number in range(100):
        print(rest, number, flush=True)
time.sleep(600)
"""


@pytest.fixture
def world(make_kubernetes: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Kubelets]]:
    with make_kubernetes() as (cluster, kubelets):
        monkeypatch.setenv("KUBECONFIG", cluster.env["KUBECONFIG"])
        yield cluster, kubelets


@pytest.fixture
def real(make_real: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Kubelets]]:
    with make_real() as (cluster, kubelets):
        monkeypatch.setenv("KUBECONFIG", cluster.env["KUBECONFIG"])
        yield cluster, kubelets


@pytest.fixture
def fake(make_fake: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Kubelets]]:
    with make_fake() as (cluster, kubelets):
        monkeypatch.setenv("KUBECONFIG", cluster.env["KUBECONFIG"])
        yield cluster, kubelets


def engine_of(topology: str = TOPOLOGY, context: str = "", namespace: str = "", **options: Any) -> KubernetesEngine:
    given = {"image": IMAGE, "grace_s": 2, **options}
    command = [sys.executable, "-c", CONTAINER]
    return KubernetesEngine(topology, PodOptions(**given), command, Api(context, namespace), poll_s=0.1)


def ask(container: int, submission: int = 1, token: str = "run", topology: str = TOPOLOGY, **size: Any) -> Request:
    given = {"cpu": 0.5, "ram_bytes": 100 << 20, **size}
    return Request(topology, container, submission, token=token, **given)


def seen_by(engine: KubernetesEngine) -> dict[tuple[int, int], Seen]:
    return {(seen.container, seen.submission): seen for seen in engine.list()}


def when(
    engine: KubernetesEngine, holds: Callable[[dict[tuple[int, int], Seen]], bool], what: str, within_s: float = 40.0
) -> dict[tuple[int, int], Seen]:
    found: dict[tuple[int, int], Seen] = {}

    def look() -> bool:
        nonlocal found
        found = seen_by(engine)
        return bool(found) and holds(found)

    wait_for(look, within_s, what)
    return found


def all_run(seen: dict[tuple[int, int], Seen]) -> bool:
    return all(one.phase is EnginePhase.RUNNING for one in seen.values())


def all_ended(seen: dict[tuple[int, int], Seen]) -> bool:
    return all(one.ended is not Ended.NO for one in seen.values())


@contextmanager
def watched(engine: KubernetesEngine) -> Iterator[list[None]]:
    """The watch goes on when the block begins."""
    told: list[None] = []
    engine.list()
    with engine.watch(lambda: told.append(None)):
        yield told


def test_containers_run_and_leave_nothing(world: tuple[Any, Kubelets]) -> None:
    cluster, kubelets = world
    engine = engine_of()
    ids = engine.submit([ask(0, cpu=0.1), ask(1), ask(3)])
    with watched(engine):
        seen = when(engine, all_run, "three running")
        assert set(seen) == {(0, 1), (1, 1), (3, 1)}
        assert {one.host for one in seen.values()} == {"n1", "n2"}
        assert engine.topologies() == {TOPOLOGY: 3} and engine_of("another").list() == []
        assert sorted(cluster.names("secrets")) == sorted(ids.values()) == sorted(cluster.names("pods"))
        [budget] = cluster.all("poddisruptionbudgets")
        assert budget["spec"]["minAvailable"] == 2
        words = wait_for(lambda: engine.termination_report(ids[3, 1]), 10, "the container's first words")
        wait_for(lambda: f"on {seen[3, 1].host} 1" in engine.termination_report(ids[3, 1]), 10, words)
        assert f"{TOPOLOGY} 3 1" in engine.termination_report(ids[3, 1])
        engine.cancel([*ids.values(), "heron-unknown-9-9"], 1.0)
        seen = when(engine, all_ended, "all ended")
        assert all(
            (one.ended, one.reason, one.cancelled) == (Ended.CONFIRMED, ExitReason.KILLED, True)
            for one in seen.values()
        )
    assert engine.topologies() == {}
    for kind in ("pods", "secrets", "poddisruptionbudgets"):
        wait_for(lambda kind=kind: not cluster.names(kind), 10, f"no {kind}")
    wait_for(lambda: not kubelets.pods, 10, "no process")


def test_the_disruption_budget_follows_the_topology(
    world: tuple[Any, Kubelets], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that is being replaced leaves no other one unprotected; one that was taken out blocks no drain."""
    cluster, kubelets = world
    engine = engine_of()

    def least() -> int:
        engine.list()
        [found] = cluster.all("poddisruptionbudgets")
        return int(found["spec"]["minAvailable"])

    ids = engine.submit([ask(0), ask(1), ask(2)])
    when(engine, all_run, "all running")
    kubelets.kill(ids[1, 1])
    when(engine, lambda seen: seen[1, 1].ended is Ended.CONFIRMED, "it ended")
    assert least() == 2
    engine.submit([ask(1, 2)])
    assert least() == 2
    engine.cancel([ids[2, 1]], 1.0)
    monkeypatch.setattr(engine_module, "FEWER_S", 0.2)
    wait_for(lambda: least() == 1, 20, "the budget of two containers")


def test_the_token_is_in_the_secret_alone(world: tuple[Any, Kubelets]) -> None:
    cluster, _ = world
    engine = engine_of()
    engine.submit([ask(1, token="a-secret-word")])
    when(engine, all_run, "it running")
    assert "a-secret-word" not in repr(cluster.all("pods")) + " ".join(cluster.requests) + repr(
        ask(1, token="a-secret-word")
    )
    [secret] = cluster.all("secrets")
    [pod] = cluster.all("pods")
    assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]


def test_ends_have_their_reasons(world: tuple[Any, Kubelets]) -> None:
    cluster, kubelets = world
    engine = engine_of()
    tokens = ("exit 0", "exit 4", "exit 3", "run", "run", "run", "run")
    ids = engine.submit([ask(number, token=what, cpu=0.1) for number, what in enumerate(tokens)])
    when(engine, lambda seen: all(seen[one, 1].phase is EnginePhase.RUNNING for one in (3, 4, 5, 6)), "they run")
    kubelets.kill(ids[3, 1])
    kubelets.oom(ids[4, 1])
    kubelets.press(ids[5, 1], own_fault=True)
    kubelets.press(ids[6, 1], own_fault=False)
    seen = when(engine, lambda seen: len(seen) == 7 and all_ended(seen), "all ended")
    assert all(one.ended is Ended.CONFIRMED and not one.cancelled for one in seen.values())
    assert [seen[number, 1].reason for number in range(7)] == [
        ExitReason.PREEMPTED, ExitReason.USER_EXCEPTION, seen[2, 1].reason, ExitReason.KILLED, ExitReason.OOM,
        ExitReason.KILLED, ExitReason.PREEMPTED if cluster.tells_disruption else ExitReason.KILLED,
    ]  # fmt: skip
    assert [seen[number, 1].exit_code for number in range(4)] == [0, 4, 3, None]
    assert "OOMKilled" in seen[4, 1].words and "ephemeral" in seen[5, 1].words
    assert "on n" in seen[1, 1].words, "what it printed last"


def test_ended_pods_are_removed_once_they_were_told_of(world: tuple[Any, Kubelets]) -> None:
    cluster, _ = world
    engine = engine_of()
    ids = engine.submit([ask(1, token="exit 4")])
    when(engine, all_ended, "it ended")
    wait_for(lambda: seen_by(engine) and not cluster.names("pods"), 10, "its pod removed")
    again = seen_by(engine)[1, 1]
    assert again.reason is ExitReason.USER_EXCEPTION and not again.cancelled
    assert "1 1" in engine.termination_report(ids[1, 1]), "what its status kept of it"
    wait_for(lambda: not cluster.names("secrets"), 30, "its secret collected, as what belongs to it")


def test_what_ended_before_it_was_asked_to_is_removed_as_well(world: tuple[Any, Kubelets]) -> None:
    cluster, _ = world
    engine = engine_of()
    engine.submit([ask(1, token="exit 0")])
    wait_for(lambda: [one["status"]["phase"] for one in cluster.all("pods")] == ["Succeeded"], 30, "its end")
    assert end_all(engine, 20.0).left == ()
    for kind in ("pods", "secrets", "poddisruptionbudgets"):
        wait_for(lambda kind=kind: not cluster.names(kind), 30, f"no {kind}")


def test_drain_is_no_fault_and_deletion_by_others_is_told_apart(real: tuple[Any, Kubelets]) -> None:
    cluster, _ = real
    engine = engine_of()
    ids = engine.submit([ask(1), ask(2)])
    with watched(engine) as told:
        when(engine, all_run, "both running")
        before = len(told)
        cluster.evict(ids[1, 1])
        cluster.delete("pods", ids[2, 1], None)
        # Both are gone before somebody lists: only the watch has heard how they ended.
        wait_for(lambda: not cluster.names("pods") and len(told) > before, 20, "both gone")
        seen = when(engine, all_ended, "their ends known")
    by_others = (Ended.CONFIRMED, ExitReason.KILLED, True)
    drained = (Ended.CONFIRMED, ExitReason.PREEMPTED, False) if cluster.tells_disruption else by_others
    assert [(one.ended, one.reason, one.cancelled) for one in seen.values()] == [drained, by_others]
    assert not cluster.tells_disruption or "evicting" in seen[1, 1].words


def test_the_log_of_a_container_is_read_to_its_end(world: tuple[Any, Kubelets]) -> None:
    """Kubelets cut off the end of what they are asked for, so more is asked for than is shown."""
    engine = engine_of()
    long = "x" * 300
    ids = engine.submit([ask(1, token=f"say {long}")])
    when(engine, all_run, "it running")
    wait_for(lambda: engine.termination_report(ids[1, 1]).endswith(f"{long} 99\n"), 20, "its last line")
    assert len(engine.termination_report(ids[1, 1])) == 4096


def test_a_container_that_hears_nothing_is_killed_after_the_grace(world: tuple[Any, Kubelets]) -> None:
    engine = engine_of()
    ids = engine.submit([ask(1, token="deaf")])
    with watched(engine):
        when(engine, all_run, "it running")
        engine.cancel([ids[1, 1]], 0.2)
        assert when(engine, all_ended, "it killed")[1, 1].ended is Ended.CONFIRMED


def test_what_waits_says_why(real: tuple[Any, Kubelets]) -> None:
    _, kubelets = real
    engine = engine_of()
    ids = engine.submit([ask(1, cpu=64)])
    seen = when(engine, lambda seen: bool(seen[1, 1].words), "the reason")
    assert seen[1, 1].phase is EnginePhase.QUEUED and not seen[1, 1].hopeless
    assert "Unschedulable: 0/2 nodes are available" in engine.explain(ids[1, 1]).words
    engine.cancel([ids[1, 1]], 1.0)
    gone = seen_by(engine)[1, 1]
    assert (gone.ended, gone.cancelled) == (Ended.CONFIRMED, True), "it never had a node"
    assert "no longer lists the pod" in engine.explain(ids[1, 1]).words
    typo = engine_of("typo", image="registry.test/heronpi:1")
    typo.submit([ask(1, topology="typo")])
    seen = when(typo, lambda seen: seen[1, 1].hopeless, "the image missing")
    assert "ImagePullBackOff" in seen[1, 1].words and seen[1, 1].phase is EnginePhase.STARTING
    kubelets.refuses = "container has runAsNonRoot and image will run as root"
    refused = engine_of("root")
    refused.submit([ask(1, topology="root")])
    seen = when(refused, lambda seen: seen[1, 1].hopeless, "the kubelet's refusal")
    assert "CreateContainerConfigError: container has runAsNonRoot" in seen[1, 1].words


def test_hosts_are_avoided_and_containers_kept_apart(real: tuple[Any, Kubelets]) -> None:
    engine = engine_of()
    engine.submit([ask(0), ask(1, avoid=("n1",)), ask(2, avoid=("n1", "n2")), ask(3, avoid=("gone",))])
    seen = when(engine, all_run, "all running, also where every node is to be avoided")
    assert seen[1, 1].host == "n2" and seen[1, 1].avoid == ("n1",)
    engine.submit([ask(4, apart_from=(0,))])
    assert when(engine, lambda seen: (4, 1) in seen and all_run(seen), "it runs")[4, 1].host != seen[0, 1].host


def test_a_lost_node_confirms_nothing(real: tuple[Any, Kubelets], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kubelet is silent: pods are deleted and stay, one is forced away, and all of them run on."""
    cluster, kubelets = real
    monkeypatch.setattr("heronpy.engines.kubernetes.seen.OVERDUE_S", 0.5)
    monkeypatch.setattr("heronpy.engines.kubernetes.pods.TOLERATED_S", 1)
    monkeypatch.setattr(engine_module, "GONE_S", 0.2)
    engine = engine_of()
    ids = engine.submit([ask(1, avoid=("n2",)), ask(2, avoid=("n2",))])
    with watched(engine):
        assert {one.host for one in when(engine, all_run, "both running").values()} == {"n1"}
        kubelets.lose("n1")
        wait_for(lambda: cluster.all("pods")[0]["metadata"].get("deletionTimestamp"), 60, "the pods being deleted")
        engine.cancel([ids[1, 1]], 1.0)
        seen = when(engine, all_ended, "the engine giving them up", 60)
        assert all((one.ended, one.reason, one.cancelled) == (Ended.UNCONFIRMED, None, False) for one in seen.values())
        cluster.delete("pods", ids[2, 1], 0)
        seen = when(engine, lambda seen: "gone" in seen[2, 1].words, "it is gone by force")
        assert seen[2, 1].ended is Ended.UNCONFIRMED
        assert len(kubelets.of_node("n1")) == 2, "which is why"


def test_a_pod_that_vanishes_without_a_watch_is_not_known_to_have_ended(
    world: tuple[Any, Kubelets], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, kubelets = world
    monkeypatch.setattr(engine_module, "GONE_S", 0.2)
    engine = engine_of()
    ids = engine.submit([ask(1)])
    when(engine, all_run, "it running")
    kubelets.lose(seen_by(engine)[1, 1].host)
    cluster.delete("pods", ids[1, 1], 0)
    assert seen_by(engine)[1, 1].phase is EnginePhase.ENDING
    assert when(engine, all_ended, "it given up")[1, 1].ended is Ended.UNCONFIRMED


def test_lists_have_pages(world: tuple[Any, Kubelets], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _ = world
    monkeypatch.setattr(engine_module, "PAGE", 2)
    engine = engine_of()
    engine.submit([ask(number, cpu=0.1) for number in range(5)])
    assert len(engine.list()) == 5
    assert any("continue=" in one for one in cluster.requests)


def test_a_list_that_is_too_old_begins_again(fake: tuple[Cluster, Kubelets], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _ = fake
    monkeypatch.setattr(engine_module, "PAGE", 2)
    engine = engine_of()
    engine.submit([ask(number, cpu=0.1) for number in range(5)])
    cluster.requests.clear()
    cluster.faults.append(Fault("GET", "/pods$", 410, "too old", "Expired"))
    assert len(engine.list()) == 5 and len([one for one in cluster.requests if "GET" in one]) == 4
    cluster.faults.append(Fault("GET", "/pods$", 410, "too old", "Expired", times=99))
    with pytest.raises(EngineAwayError, match="too old"):
        engine.list()


def test_a_watch_that_is_too_old_begins_with_a_list(fake: tuple[Cluster, Kubelets]) -> None:
    cluster, kubelets = fake
    engine = engine_of()
    ids = engine.submit([ask(1)])
    with watched(engine) as told:
        when(engine, all_run, "it running")
        cluster.forget_events()
        before = len(told)
        wait_for(lambda: len(told) > before, 10, "a call for a list")
        engine.list()
        before = len(told)
        kubelets.kill(ids[1, 1])
        wait_for(lambda: len(told) > before, 10, "the watch going on")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_api_server_that_refuses_for_now_is_away(fake: tuple[Cluster, Kubelets], status: int) -> None:
    cluster, _ = fake
    engine = engine_of()
    cluster.faults.append(Fault("GET", "/pods", status, "slow down"))
    with pytest.raises(EngineAwayError, match="slow down"):
        engine.list()
    cluster.faults.append(Fault("POST", "/pods", status))
    with pytest.raises(EngineAwayError):
        engine.submit([ask(1)])
    assert engine.list() == []


def test_an_answer_that_is_lost_leaves_a_whole_pod(fake: tuple[Cluster, Kubelets]) -> None:
    cluster, _ = fake
    engine = engine_of()
    cluster.faults.append(Fault("POST", "/pods", 0, after=True))
    with pytest.raises(EngineAwayError, match="does not answer"):
        engine.submit([ask(1)])
    cluster.faults.append(Fault("POST", "/secrets", 503, times=3))
    with pytest.raises(EngineAwayError):
        engine.submit([ask(2)])
    seen = when(engine, lambda seen: len(seen) == 2 and all_run(seen), "both complete, and running")
    # A command that is given again finds what it made.
    engine.submit([ask(1)])
    assert set(seen_by(engine)) == set(seen) and len(cluster.names("pods")) == 2


def test_half_a_pod_that_cannot_become_whole_is_removed(fake: tuple[Cluster, Kubelets]) -> None:
    cluster, _ = fake
    engine = engine_of()
    cluster.faults.append(Fault("POST", "/secrets", 503, times=3))
    with pytest.raises(EngineAwayError):
        engine.submit([ask(1)])
    cluster.forbidden = {"create secrets"}
    wait_for(lambda: [*engine.list()] and not cluster.names("pods"), 20, "the pod being removed")


def test_refusals_have_the_words_of_the_server(real: tuple[Any, Kubelets]) -> None:
    cluster, _ = real
    cluster.pods_max = 0
    with pytest.raises(EngineFatalError, match=r"create pods in namespace streams: .*exceeded quota: small"):
        engine_of().submit([ask(1)])
    cluster.pods_max = 2
    with pytest.raises(EngineFatalError, match="exceeded quota"):
        engine_of().submit([ask(1), ask(2), ask(3)])
    wait_for(lambda: not cluster.names("pods"), 20, "those that were made before the refusal being removed")
    cluster.pods_max, cluster.denied = None, "images must be signed"
    with pytest.raises(EngineFatalError, match="images must be signed"):
        engine_of().submit([ask(1)])
    cluster.denied = ""
    cluster.forbidden = {"create secrets"}
    with pytest.raises(EngineFatalError, match='cannot create resource "secrets"'):
        engine_of().submit([ask(1)])
    wait_for(lambda: not cluster.names("pods"), 20, "the half of a pod removed")
    cluster.forbidden = {"list pods"}
    with pytest.raises(EngineFatalError, match=r"read pods in namespace streams: .*cannot list"):
        engine_of().list()
    cluster.forbidden = set()
    with pytest.raises(EngineFatalError, match='cannot create resource "pods" in API group "" in the namespace "nowhe'):
        engine_of(namespace="nowhere").submit([ask(1)])
    with pytest.raises(EngineFatalError, match='namespaces "nowhere" not found; create the namespace'):
        engine_of(context="operator", namespace="nowhere").submit([ask(1)])
    with pytest.raises(EngineAwayError, match="Unauthorized; log in again"):
        engine_of(context="strange").list()


def test_check_names_what_is_missing(world: tuple[Any, Kubelets]) -> None:
    cluster, _ = world

    def wrong(engine: KubernetesEngine) -> list[str]:
        return [f"{one.what}: {one.detail}" for one in engine.check() if not one.ok]

    assert wrong(engine_of()) == []
    assert cluster.names("pods") == [], "the pod was only tried"
    assert [one.cpu for one in engine_of().node_sizes()] == [4.0]
    assert engine_of().reach() == ("127.0.0.1",)
    [bad] = wrong(engine_of(context="no-such"))
    assert "'no-such', but the kubeconfig has operator, strange, test" in bad
    cluster.forbidden = {"create secrets", "list nodes"}
    [bad] = wrong(engine_of())
    assert "you may not create secrets in namespace streams" in bad
    assert engine_of().node_sizes() == []
    cluster.forbidden = set()
    assert any("create the namespace" in one for one in wrong(engine_of(context="operator", namespace="nowhere")))
    [rights, pod] = wrong(engine_of(namespace="nowhere"))
    assert "you may not create pods, delete pods" in rights and 'in the namespace "nowhere"' in pod


def test_in_a_pod_the_service_account_is_used(
    world: tuple[Any, Kubelets], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, _ = world
    account = tmp_path / "account"
    account.mkdir()
    for name, text in (("token", TOKEN), ("namespace", NAMESPACE), ("ca.crt", (cluster.folder / "ca.pem").read_text())):
        (account / name).write_text(text)
    address = urlsplit(cluster.url)
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(address.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))
    monkeypatch.setattr(client_module, "ACCOUNT", account)
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(account / "token"))
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", str(account / "ca.crt"))
    found = engine_of().check()
    assert all(one.ok for one in found) and found[0].detail == f"namespace {NAMESPACE} of {cluster.url}", found


def test_a_kubeconfig_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text in (None, "", "nonsense: [", "a text", "contexts: []\nclusters: []\nusers: []\n"):
        file = tmp_path / "config"
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        monkeypatch.setenv("KUBECONFIG", str(file))
        what = (
            "the kubeconfig cannot be used"
            if text is not None
            else f"there is no kubeconfig {file}; set KUBECONFIG to a kubeconfig"
        )
        with pytest.raises(EngineFatalError, match=what), engine_of().watch(lambda: None):
            engine_of().list()
    monkeypatch.setenv("KUBECONFIG", "config")
    with pytest.raises(EngineFatalError, match="use an absolute path"):
        engine_of().list()
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(EngineFatalError, match=r"pip install 'heronpy\[kubernetes\]'"):
        engine_of().list()
