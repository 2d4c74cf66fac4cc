"""What the Kubernetes engine asks for, and what it makes of answers: tables, and anything that a server may say."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import ConfigError
from heronpy.engines.contract import Ended, EngineAwayError, EngineFatalError, EnginePhase, NodeSize, Request
from heronpy.engines.kubernetes import nodes, submit_host
from heronpy.engines.kubernetes.api_server import NEEDED, ExistsError, ExpiredError, GoneError, refusal, rules
from heronpy.engines.kubernetes.known import KnownPods
from heronpy.engines.kubernetes.names import dns_of, label_of, pod_name
from heronpy.engines.kubernetes.pods import PodOptions, budget, pod, secret
from heronpy.engines.kubernetes.seen import OVERDUE_S, count_topologies, seen_of
from heronpy.engines.open import scraped_port, template_of
from heronpy.procs.exit_reason import ExitReason
from tests.support.launch import launch_spec

IMAGE = "registry.test/heronpy:1"
NOW = 1_000_000_000.0  # 2001-09-09T01:46:40Z


def request(container: int = 2, **more: Any) -> Request:
    return Request("WordCount1f", container, 3, **{"cpu": 0.25, "ram_bytes": 1000, "token": "a-secret", **more})


def made(
    template: dict[str, Any] | None = None, must_avoid: bool = True, home: str = "", **more: Any
) -> dict[str, Any]:
    return pod(request(**more), PodOptions(IMAGE, 45, home, template or {}), ["python3", "-V"], must_avoid)


def ours(found: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in found["spec"]["containers"] if one["name"] == "heron")


# ---- names -----------------------------------------------------------------------------------


@given(st.text(min_size=1, max_size=120), st.integers(0, 9999), st.integers(1, 9999))
def test_every_topology_has_names_that_the_cluster_takes(topology: str, container: int, submission: int) -> None:
    name = pod_name(topology, container, submission)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) and len(name) <= 63
    assert (
        re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", label_of(topology)) and len(label_of(topology)) <= 63
    )


@given(st.lists(st.text(alphabet="aA-._1é", min_size=1, max_size=60), min_size=2, max_size=2, unique=True))
def test_two_topologies_never_share_a_name_or_label(both: list[str]) -> None:
    assert dns_of(both[0]) != dns_of(both[1]) and label_of(both[0]) != label_of(both[1])


# ---- pods ------------------------------------------------------------------------------------


def test_a_pod_is_bare_private_and_restarts_nothing() -> None:
    found = made(disk_bytes=5000)
    spec, container = found["spec"], ours(found)
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Never", 45)
    assert spec["automountServiceAccountToken"] is False and spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"] == {
        "requests": {"cpu": "250m", "memory": "1000", "ephemeral-storage": "5000"},
        "limits": {"memory": "1000", "ephemeral-storage": "5000"},
    }
    assert [(one["key"], one["tolerationSeconds"]) for one in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", 30),
        ("node.kubernetes.io/unreachable", 30),
    ]
    assert {"mountPath": "/tmp", "name": "heron-tmp"} in container["volumeMounts"]
    assert "a-secret" not in json.dumps(found)


def test_the_secret_belongs_to_the_pod() -> None:
    found = secret(request(), "uid-1")
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": made()["metadata"]["name"], "uid": "uid-1"}
    ]
    assert made()["spec"]["volumes"][0]["secret"] == {"secretName": found["metadata"]["name"], "defaultMode": 0o440}


def test_one_eviction_at_a_time() -> None:
    assert [budget("t", count, [])["spec"]["minAvailable"] for count in (1, 2, 5)] == [0, 1, 4]


def test_prometheus_finds_pages_whose_port_is_known() -> None:
    def annotations(port: int) -> dict[str, str]:
        options = PodOptions(IMAGE, metrics_port=port)
        found: dict[str, str] = pod(request(container=2), options, ["python3"], False)["metadata"]["annotations"]
        return {name: value for name, value in found.items() if name.startswith("prometheus.io/")}

    assert annotations(9470) == {
        "prometheus.io/scrape": "true", "prometheus.io/port": "9472", "prometheus.io/path": "/metrics"
    }  # fmt: skip
    assert annotations(0) == {}


@pytest.mark.parametrize(("host", "port", "scraped"), [("host", 9470, 9470), ("host", 0, 0), ("127.0.0.1", 9470, 0)])
def test_pages_on_loopback_are_not_annotated(host: str, port: int, scraped: int) -> None:
    launch = launch_spec(
        "t", "t-1", Path("/nowhere"), settings={"executor": {"metrics_host": host, "metrics_port": port}}
    )
    assert scraped_port(launch) == scraped


def test_hosts_are_excluded_for_sure_only_if_there_are_others() -> None:
    sure = made(avoid=("n1", "n2"))["spec"]["affinity"]["nodeAffinity"]
    [term] = sure["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [one["values"] for one in term["matchFields"]] == [["n1"], ["n2"]]
    soft = made(avoid=("n1",), must_avoid=False)["spec"]["affinity"]["nodeAffinity"]
    assert list(soft) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    both = made(avoid=("n1", "n2"), barred=("n2",), must_avoid=False)["spec"]["affinity"]["nodeAffinity"]
    [term] = both["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [one["values"] for one in term["matchFields"]] == [["n2"]]
    [wish] = both["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [one["values"] for one in wish["preference"]["matchFields"]] == [["n1"]]
    apart = made(apart_from=(0,))["spec"]["affinity"]["podAntiAffinity"]
    assert "preferredDuringSchedulingIgnoredDuringExecution" in apart


@pytest.mark.parametrize(("home", "volumes"), [("/tmp/x", 2), ("/heron/home", 3)])
def test_a_home_has_a_volume_above_it(home: str, volumes: int) -> None:
    found = made(home=home)
    assert len(found["spec"]["volumes"]) == volumes
    variables = {one["name"]: one.get("value") for one in ours(found)["env"]}
    assert home.rpartition("/")[0] in str(variables["HERON_POD_FOLDERS"]).split(":")


TEMPLATE = {
    "metadata": {"labels": {"team": "data"}, "annotations": {"note": "x"}},
    "spec": {
        "nodeSelector": {"pool": "streams"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "securityContext": {"runAsUser": 5, "fsGroup": 6},
        "volumes": [{"name": "nfs", "persistentVolumeClaim": {"claimName": "shared"}}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}]
                }
            }
        },
        "containers": [
            {
                "name": "heron",
                "imagePullPolicy": "Always",
                "env": [{"name": "TZ", "value": "UTC"}],
                "volumeMounts": [{"name": "nfs", "mountPath": "/data"}],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            },
            {"name": "proxy", "image": "proxy:1"},
        ],
    },
}


def test_a_template_adds_to_our_pod() -> None:
    before = copy.deepcopy(TEMPLATE)
    found = made(TEMPLATE, avoid=("n1",))
    spec, container = found["spec"], ours(found)
    assert before == TEMPLATE, "the template stays as it is"
    assert found["metadata"]["labels"]["team"] == "data" and "heronpy.dev/container" in found["metadata"]["labels"]
    assert spec["securityContext"] == {
        "runAsUser": 5, "runAsGroup": 1000, "fsGroup": 6, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    assert [one["name"] for one in spec["volumes"]] == ["heron-join-token", "heron-tmp", "nfs"]
    assert len(spec["tolerations"]) == 3 and spec["nodeSelector"] == {"pool": "streams"}
    assert container["imagePullPolicy"] == "Always" and container["image"] == IMAGE
    assert {"name": "TZ", "value": "UTC"} in container["env"] and len(container["volumeMounts"]) == 3
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 1, "memory": "1000"}
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [len(term["matchFields"]) for term in terms] == [1, 1] and "matchExpressions" in terms[0]


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({"spec": {"restartPolicy": "Always"}}, "sets spec.restartPolicy, which heronpy sets itself; remove it"),
        ({"spec": {"containers": [{"name": "heron", "image": "x"}]}}, "use heron.kubernetes.image"),
        ({"metadata": {"name": "x"}}, "sets metadata.name"),
        ({"metadata": {"labels": {"heronpy.dev/container": "7"}}}, "sets metadata.labels.heronpy.dev/container"),
        ({"spec": {"terminationGracePeriodSeconds": 5}}, "use heron.engine.leave_s"),
        ({"spec": {"containers": [{"name": "heron", "env": [{"name": "HERON_HOST", "value": "x"}]}]}}, "HERON_HOST"),
        ({"spec": {"containers": [{"name": "heron", "volumeMounts": [{"mountPath": "/tmp", "name": "x"}]}]}}, "/tmp"),
        ({"spec": {"containers": [{"name": "heron", "resources": {"limits": {"memory": "1Gi"}}}]}}, "memory"),
        ({"spec": {"securityContext": {"runAsNonRoot": False}}}, "runAsNonRoot"),
        ({"spec": {"securityContext": {"runAsUser": 0}}}, "must not run as root"),
        ({"spec": {"containers": "heron"}}, "sets spec.containers"),
        ({"spec": []}, "its spec is not a map"),
        ({"template": {}}, "'template'"),
        ([], "not a map"),
    ],
)
def test_a_template_that_sets_our_fields_is_refused(template: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        PodOptions(IMAGE, template=template, template_file="pod.yaml")
    assert str(caught.value).startswith("heron.kubernetes.pod_template pod.yaml cannot be used: ")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["spec", "metadata", "containers", "name", "env", "volumes", "affinity", "heron", "labels"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_template_is_merged_or_refused_and_never_wins(template: Any) -> None:
    try:
        options = PodOptions(IMAGE, template=template)
    except ConfigError:
        return
    plain, found = made(), pod(request(), options, ["python3", "-V"], True)
    assert found["spec"]["restartPolicy"] == "Never" and ours(found)["command"] == ["python3", "-V"]
    assert plain["metadata"]["labels"].items() <= found["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"image": ""}, "heron.kubernetes.image is empty"), ({"image": "x", "home": "/heron"}, "/heron/home")],
)
def test_options_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PodOptions(**options)


def test_what_we_send_has_no_field_that_kubernetes_does_not_know() -> None:
    """The package's models leave out what they do not know."""
    client = pytest.importorskip("kubernetes.client")
    api = client.ApiClient()
    kinds = {"Pod": "V1Pod", "Secret": "V1Secret", "PodDisruptionBudget": "V1PodDisruptionBudget", "Role": "V1Role"}
    kinds |= {kind: f"V1{kind}" for kind in ("ServiceAccount", "RoleBinding", "ClusterRole", "ClusterRoleBinding")}
    kinds |= {kind: f"V1{kind}" for kind in ("ConfigMap", "PersistentVolumeClaim", "Service", "Deployment")}
    full = made(avoid=("n1",), apart_from=(0,), disk_bytes=7, home="/heron/home")
    host = submit_host.SubmitHost(
        "k8s", "ns", IMAGE, "/usr/bin/python3", 10, {"engine": "kind: x\n"}, "spec: {}\n", True
    )
    for one in (full, secret(request(), "u"), budget("t", 2, [("p", "u")]), *submit_host.manifest(host)):
        model = getattr(client, kinds[one["kind"]])
        again = api.sanitize_for_serialization(model.from_dict(one))
        assert again == one, one["kind"]


def test_the_manifest_gives_no_more_rights_than_are_needed() -> None:
    given = {(verb, group, kind) for rule in rules() for verb in rule["verbs"] for group in rule["apiGroups"] for kind in rule["resources"]}  # fmt: skip
    assert given == set(NEEDED)
    assert not any("*" in part for rule in rules() for parts in rule.values() for part in parts)
    assert ("get", "", "secrets") not in given
    host = submit_host.SubmitHost("k8s", "ns", IMAGE, "/usr/bin/python3", 10)
    kinds = [one["kind"] for one in submit_host.manifest(host)]
    assert "ClusterRole" not in kinds and kinds.count("Role") == 1
    assert host.endpoint_host == "heron-k8s.ns.svc"


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "No such file"), ("a: [", "is not YAML"), ("- 1", "is not a map"), ("x" * (1 << 21), "is longer than")],
)
def test_a_template_that_cannot_be_read(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "pod.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        template_of(str(file))
    with pytest.raises(ConfigError, match="must be an absolute path"):
        template_of("pod.yaml")


# ---- what is seen ----------------------------------------------------------------------------


def listed(status: dict[str, Any], node: str = "n1", deleted: str = "") -> dict[str, Any]:
    found = made()
    found["spec"]["nodeName"] = node
    found["status"] = status
    if deleted:
        found["metadata"]["deletionTimestamp"] = deleted
    return found


def state(**of: Any) -> list[dict[str, Any]]:
    return [{"name": "proxy", "state": {"running": {}}}, {"name": "heron", "state": of}]


DISRUPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "by x"}]
WAITS = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]


@pytest.mark.parametrize(
    ("found", "phase", "hopeless", "words"),
    [
        (listed({"phase": "Pending", "conditions": WAITS}, ""), EnginePhase.QUEUED, False, "Unschedulable: 0/3 nodes"),
        (listed({"phase": "Pending"}), EnginePhase.STARTING, False, "its node is preparing the pod"),
        (
            listed({"phase": "Pending", "containerStatuses": state(waiting={"reason": "ErrImagePull", "message": "no such"})}),
            EnginePhase.STARTING, True, "ErrImagePull: no such",
        ),
        (listed({"phase": "Running", "containerStatuses": state(running={})}), EnginePhase.RUNNING, False, ""),
        (
            listed({"phase": "Running", "containerStatuses": state(running={})}, deleted="2001-09-09T01:46:40Z"),
            EnginePhase.ENDING, False, "",
        ),
        (listed({}, ""), EnginePhase.QUEUED, False, ""),
    ],
)  # fmt: skip
def test_phases(found: dict[str, Any], phase: EnginePhase, hopeless: bool, words: str) -> None:
    seen = seen_of(found, NOW)
    assert seen is not None
    assert (seen.phase, seen.hopeless, seen.words, seen.ended) == (phase, hopeless, words, Ended.NO)
    assert (seen.container, seen.submission, seen.engine_id) == (2, 3, pod_name("WordCount1f", 2, 3))


def over(code: int, why: str = "Error", **more: Any) -> dict[str, Any]:
    return {"phase": "Failed", "containerStatuses": state(terminated={"exitCode": code, "reason": why, **more})}


@pytest.mark.parametrize(
    ("found", "ended", "reason", "code", "cancelled"),
    [
        (listed(over(0, "Completed")), Ended.CONFIRMED, ExitReason.PREEMPTED, 0, False),
        (listed(over(137, "OOMKilled")), Ended.CONFIRMED, ExitReason.OOM, None, False),
        (listed(over(137)), Ended.CONFIRMED, ExitReason.KILLED, None, False),
        (listed(over(139)), Ended.CONFIRMED, ExitReason.CRASHED, None, False),
        (listed(over(0, signal=9)), Ended.CONFIRMED, ExitReason.KILLED, 0, False),
        (listed(over(128, "StartError")), Ended.CONFIRMED, ExitReason.SPAWN_FAILED, 128, False),
        (listed(over(143), deleted="2001-09-09T01:46:40Z"), Ended.CONFIRMED, ExitReason.KILLED, None, True),
        (
            listed({**over(143), "conditions": DISRUPTED}, deleted="2001-09-09T01:46:40Z"),
            Ended.CONFIRMED, ExitReason.PREEMPTED, None, False,
        ),
        (listed({"phase": "Failed", "reason": "Evicted"}), Ended.CONFIRMED, ExitReason.KILLED, None, False),
        (
            listed({"phase": "Failed", "reason": "Evicted", "conditions": DISRUPTED}),
            Ended.CONFIRMED, ExitReason.PREEMPTED, None, False,
        ),
        (listed({**over(137), "reason": "Evicted"}), Ended.CONFIRMED, ExitReason.KILLED, None, False),
        (listed({**over(137), "reason": "DeadlineExceeded"}), Ended.CONFIRMED, ExitReason.PREEMPTED, None, False),
        (listed({"phase": "Failed", "reason": "OutOfcpu"}), Ended.CONFIRMED, ExitReason.SPAWN_FAILED, None, False),
        (listed({"phase": "Failed"}, ""), Ended.CONFIRMED, ExitReason.PREEMPTED, None, False),
        # Nobody who could know has said so.
        (listed({"phase": "Failed"}), Ended.UNCONFIRMED, None, None, False),
        (listed(over(137, "ContainerStatusUnknown")), Ended.UNCONFIRMED, None, None, False),
        (listed({"phase": "Unknown", "containerStatuses": state(running={})}), Ended.UNCONFIRMED, None, None, False),
        (listed({"phase": "Running", "reason": "NodeLost"}), Ended.UNCONFIRMED, None, None, False),
        (listed({"phase": "Running"}, deleted="2001-09-09T01:46:05Z"), Ended.UNCONFIRMED, None, None, False),
        (listed({"phase": "Running"}, deleted="2001-09-09T01:46:30Z"), Ended.NO, None, None, False),
    ],
)  # fmt: skip
def test_ends(
    found: dict[str, Any], ended: Ended, reason: ExitReason | None, code: int | None, cancelled: bool
) -> None:
    assert OVERDUE_S == 30.0
    seen = seen_of(found, NOW)
    assert seen is not None
    assert (seen.ended, seen.reason, seen.exit_code, seen.cancelled) == (ended, reason, code, cancelled)
    assert (seen.phase is EnginePhase.ENDED) == (ended is not Ended.NO)
    assert ended is Ended.NO or seen.words


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "phase",
                    "reason",
                    "message",
                    "conditions",
                    "containerStatuses",
                    "state",
                    "terminated",
                    "waiting",
                    "running",
                ]
                + ["exitCode", "signal", "name", "type", "status"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(JSON, JSON, st.sampled_from(["", "n1"]), st.text(max_size=25))
def test_whatever_a_server_says_is_understood_or_not_ours(status: Any, of: Any, node: str, deleted: str) -> None:
    found = listed(status, node, deleted)
    if isinstance(status, dict) and isinstance(of, dict):
        status["containerStatuses"] = state(**of)
    seen = seen_of(found, NOW)
    assert seen is not None and (seen.reason is None) == (seen.ended is not Ended.CONFIRMED)
    # Nothing but the kubelet's word, or a pod without a node, confirms an end.
    if seen.ended is Ended.CONFIRMED:
        told = isinstance(of, dict) and isinstance(of.get("terminated"), dict)
        assert told or (isinstance(status, dict) and status.get("phase") == "Failed")
    assert seen_of({"metadata": of, "status": status}, NOW) is None or of
    assert count_topologies([found], NOW) in ({}, {"WordCount1f": 1})


# ---- nodes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [("4", 4.0), ("3800m", 3.8), ("16Gi", 16 * 2.0**30), ("1e3", 1000.0), ("2E", 2e18), ("500k", 5e5), ("x", None)]
    + [("-1", None), ("", None), ("Gi", None), ("nan", None), ("1.5Mi", 1.5 * 2**20)],
)
def test_quantities(text: str, number: float | None) -> None:
    found = nodes.quantity(text)
    assert found == pytest.approx(number) if number is not None else found is None


def node(name: str, cpu: str = "4", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": more.pop("spec", {}),
        "status": {"allocatable": {"cpu": cpu, "memory": "1Gi"}, **more},
    }


def test_nodes_that_a_template_may_use() -> None:
    all_nodes = [
        node("plain"),
        node("off", spec={"unschedulable": True}),
        node("gone", conditions=[{"type": "Ready", "status": "Unknown"}]),
        node("tainted", spec={"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}),
        node("pool", labels={"pool": "streams"}),
    ]
    names = [nodes.name_of(one) for one in nodes.usable(all_nodes, {})]
    assert names == ["plain", "pool"]
    for toleration in ({"operator": "Exists"}, {"key": "gpu", "value": "yes"}, {"key": "gpu", "operator": "Exists"}):
        assert "tainted" in map(nodes.name_of, nodes.usable(all_nodes, {"spec": {"tolerations": [toleration]}}))
    wrong = {"key": "gpu", "value": "no", "effect": "NoSchedule"}
    assert "tainted" not in map(nodes.name_of, nodes.usable(all_nodes, {"spec": {"tolerations": [wrong]}}))
    assert list(map(nodes.name_of, nodes.usable(all_nodes, {"spec": {"nodeSelector": {"pool": "streams"}}}))) == [
        "pool"
    ]
    assert nodes.sizes(all_nodes) == [NodeSize(4.0, 1 << 30)]


def test_hosts_can_be_avoided_if_another_one_is_large_enough() -> None:
    both = [node("n1"), node("n2", "1")]
    assert nodes.may_avoid(request(cpu=1.0, avoid=("n1",)), both)
    assert not nodes.may_avoid(request(cpu=2.0, avoid=("n1",)), both)
    assert not nodes.may_avoid(request(cpu=1.0, avoid=("n1", "n2")), both)
    assert not nodes.may_avoid(request(avoid=("n1",)), [])


# ---- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (403, {"message": "pods is forbidden"}, EngineFatalError),
        (422, {"message": "invalid"}, EngineFatalError),
        (404, {"message": "no", "details": {"kind": "namespaces"}}, EngineFatalError),
        (404, {"message": "no", "details": {"kind": "pods"}}, GoneError),
        (409, {"reason": "AlreadyExists"}, ExistsError),
        (409, {"reason": "Conflict"}, EngineAwayError),
        (410, {}, ExpiredError),
        (401, {}, EngineAwayError),
        (429, {}, EngineAwayError),
        (500, {}, EngineAwayError),
        (503, b"<html>", EngineAwayError),
        (400, b"\xff", EngineFatalError),
    ],
)
def test_refusals(status: int, body: Any, kind: type[Exception]) -> None:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    found = refusal("create", "pods in namespace x", status, text)
    assert type(found) is kind and str(found).startswith("the API server refuses to create pods in namespace x: ")
    assert not isinstance(body, dict) or str(body.get("message", "")) in str(found)


# ---- what is known of pods -------------------------------------------------------------------

NAMES = ("p0", "p1")


class World:
    """Two pods as they really are; what is told of them may be late, lost or repeated."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.proved: set[str] = set()
        self.old: list[tuple[str, dict[str, Any]]] = []

    def act(self, what: str, name: str) -> None:
        pod = self.pods.get(name)
        if what == "make" and pod is None and name not in self.proved:
            pod = listed({"phase": "Pending"}, "")
            pod["metadata"] |= {"name": name, "uid": f"uid-{name}"}
            self.pods[name] = pod
        elif pod is None:
            return
        elif what == "place":
            pod["spec"]["nodeName"] = "n1"
        elif what == "end" and pod["spec"].get("nodeName"):
            pod["status"] = over(4)
            self.proved.add(name)
        elif what == "delete" and pod["spec"].get("nodeName"):
            pod["metadata"]["deletionTimestamp"] = "2001-09-09T01:46:40Z"
        elif what == "vanish":
            if not pod["spec"].get("nodeName"):
                self.proved.add(name)
            self.old.append(("DELETED", copy.deepcopy(self.pods.pop(name))))
            return
        self.old.append(("MODIFIED", copy.deepcopy(pod)))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["make", "place", "end", "delete", "vanish", "list", "event", "wait"]),
            st.sampled_from(NAMES),
            st.integers(0, 30),
        ),
        max_size=40,
    )
)
def test_an_end_is_confirmed_only_if_it_was_proved_and_never_taken_back(steps: list[tuple[str, str, int]]) -> None:
    world, known, now, first = World(), KnownPods(gone_s=3.0), 0.0, {}
    for what, name, number in steps:
        now += 0.1
        if what == "wait":
            now += 4.0
        elif what == "event" and world.old:
            kind, pod = world.old[number % len(world.old)]
            known.on_event(kind, pod, NOW, now)
        elif what == "list":
            found = known.on_list([copy.deepcopy(one) for one in world.pods.values()], NOW, now)
            told = {one.engine_id: one for one in found.seen}
            assert len(told) == len(found.seen) and set(world.pods) <= set(told)
            for one in told.values():
                if one.ended is Ended.CONFIRMED:
                    assert one.engine_id in world.proved
                    assert first.setdefault(one.engine_id, one) == one, "what was heard first stays"
                else:
                    assert one.engine_id not in first
            for one in found.over:
                assert one in first and one in found.stay
        else:
            world.act(what, name)
    known.on_list([], NOW, now + 1.0)
    given_up = known.on_list([], NOW, now + 5.0)
    assert all(one.ended is not Ended.NO for one in given_up.seen) and not known.alive()
    known.on_list([], NOW, now + 1000.0)
    assert known.on_list([], NOW, now + 1000.0).seen == [], "nothing is kept for ever"
