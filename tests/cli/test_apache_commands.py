"""Commands as scripts wrote them for Apache Heron's client: its flags, its order of words, its keys."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.cli.apache_flags import translate
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import plan_pb2, topology_pb2
from heronpy.statemgr import open_state, paths
from tests.cli.conftest import Heron
from tests.cli.test_submit import MAIN


@pytest.fixture
def topo(tmp_path: Path) -> Path:
    path = tmp_path / "topo.py"
    path.write_text(MAIN, encoding="utf-8")
    return path


JVM = ("--topology-main-jvm-property", "a=b", "--verbose_gc", "--extra-launch-classpath=/x", "--release-yaml-file", "r")


@pytest.mark.parametrize("before", [True, False])
def test_flags_of_jvms_and_of_the_api_server_are_named_and_left_out(heron: Heron, topo: Path, before: bool) -> None:
    flags = (*JVM, "--service-url", "http://x:9000")
    words = ("submit", *flags, "local", str(topo)) if before else ("submit", "local", str(topo), "named", *flags)
    done = heron(*words, "--dry-run", "--dry-run-format", "json")
    assert done.code == 0, done
    assert json.loads(done.out)["logical_plan"]["name"] == ("wordy" if before else "named")
    lines = [line for line in done.err.splitlines() if " has no effect: " in line]
    assert [line.removeprefix("warning: ").split()[0] for line in lines] == [
        flag.partition("=")[0] for flag in flags if flag.startswith("--")
    ]
    assert "no JVM" in lines[0] and "write -- before it" in lines[0]


def test_behind_two_dashes_all_flags_are_the_programs(heron: Heron, tmp_path: Path) -> None:
    program = tmp_path / "topo.py"
    program.write_text(MAIN.replace('build("wordy")', 'import sys; build("_".join(sys.argv[1:]).replace("--", "x"))'))
    done = heron("submit", "local", str(program), "--dry-run", "--", "--service-url", "u", "--dry-run", "true")
    assert done.code == 0 and "no effect" not in done.err
    assert "Topology 'xservice-url_u_xdry-run_true' would be launched" in done.out


@pytest.mark.parametrize("flag", ["--dry-run", "--dry-run true", "--dry-run=true", "--dry-run True"])
def test_flags_take_true(heron: Heron, home: Path, topo: Path, flag: str) -> None:
    done = heron("submit", "local", str(topo), *flag.split())
    assert done.code == 0 and "would be launched" in done.out and not home.exists()


def test_deploy_deactivated_takes_true_and_false(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    runtime("running")
    for word, state in (("true", topology_pb2.PAUSED), ("false", topology_pb2.RUNNING)):
        assert heron("submit", "--deploy-deactivated", word, "local", str(topo)).code == 0
        found = open_state("local", str(home / "state" / "local"))
        data = found.get(paths.topology("wordy"))
        found.close()
        assert data is not None and topology_pb2.Topology.FromString(data[0]).state == state
        assert heron("kill", "local", "wordy").code == 0


@given(st.lists(st.sampled_from(["--dry-run", "true", "false", "x", "--service-url=u", "--wait", "-", "--json"])))
def test_only_what_is_apaches_goes_away(words: list[str]) -> None:
    kept, warnings = translate(["top", *words])
    assert kept == ["top", *(word for word in words if word != "--service-url=u")]
    assert len(warnings) == words.count("--service-url=u")
    kept, warnings = translate(["submit", "local", "topo.py", "--", *words])
    assert (kept, warnings) == (["submit", "local", "topo.py", "--", *words], [])
    kept, warnings = translate(["submit", "local", *words])
    assert len(warnings) == words.count("--service-url=u")
    assert [word for word in kept[2:] if word in ("x", "--wait", "-", "--json")] == [
        word for word in words if word in ("x", "--wait", "-", "--json")
    ]


def test_the_cluster_may_come_first_in_config(heron: Heron) -> None:
    done = heron("config", "local", "set", "service_url", "http://x:9000")
    assert done.code == 0 and "service_url has no effect" in done.err
    assert heron("config", "local", "list").out == "service_url = http://x:9000\n"
    assert heron("config", "local").out == "service_url = http://x:9000\n"
    assert heron("config", "local", "unset", "service_url").code == 0
    assert "No client defaults" in heron("config", "list", "local").out
    assert heron("config", "local", "set", "heron.scheduler.kill_grace_s", "2s").code == 0
    done = heron("config", "local", "set", "heron.streammgr.cache.drain.frequency.ms", "10")
    assert done.code == 0 and "heron.instance.linger_max_us replaces it" in done.err
    assert done.err.startswith("warning: heron config set: ") and "--config-property" not in done.err
    wrong = heron("config", "local", "set", "heron.api.foo", "3")
    assert wrong.code == 2 and "heron config set: unknown key" in wrong.err and "--config-property" not in wrong.err
    listed = heron("config", "show", "local", "scheduler", "--origin").out
    assert "cli.yaml" in listed and "--config-property" not in listed
    lost = heron("config", "set", "lcal", "heron.scheduler.kill_grace_s", "2s")
    assert lost.code == 2 and lost.err == "error: there is no cluster 'lcal'; did you mean 'local'?\n"
    assert heron("config", "local", "nonsense").code == 2
    assert heron("config", "nonsense", "set").code == 2


def test_keys_of_apache_are_named_and_have_no_effect(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    runtime("running")
    text = topo.read_text().replace(
        "    builder.build_and_submit()",
        "    builder.set_config({'topology.container.ram': 512 * 1024**2, 'topology.kryo.factory': 'K',\n"
        "                        'topology.component.output.bps': 10, 'heron.instance.tuning.interval.ms': 5})\n"
        "    builder.build_and_submit()",
    )
    topo.write_text(text)
    conf = home.parent / "conf"
    (conf / "local").mkdir(parents=True)
    (conf / "local/heron_internals.yaml").write_text("heron.logging.maximum.files: 5\n")
    (conf / "local/packing.yaml").write_text(
        "heron.class.packing.algorithm: org.x.RoundRobinPacking\nalgorithm: round_robin\n"
    )
    flags = ("--config-path", conf, "--config-property", "heron.package.core.uri=file:///core.tar.gz")
    done = heron("submit", *map(str, flags), "local", str(topo))
    assert done.code == 0, done
    for said in (
        "heron_internals.yaml is a file of Apache Heron and has no effect here",
        "heron.class.packing.algorithm is a key of Apache Heron and has no effect here; heron.packing.algorithm replaces",
        "--config-property: heron.package.core.uri is a key of Apache Heron",
        "topology config: heron.instance.tuning.interval.ms is a key of Apache Heron",
        "sets 'topology.component.output.bps', which this release does not support",
        "topology.kryo.factory",
    ):
        assert said in done.err, said
    launch = LaunchSpec.load(next(home.glob("topologies/local/*/wordy/launch.json")))
    assert launch.settings["packing"]["algorithm"] == "round_robin"
    state = open_state("local", str(home / "state" / "local"))
    data = state.get(paths.packing_plan("wordy"))
    state.close()
    assert data is not None
    assert [c.required.ram_bytes for c in plan_pb2.PackingPlan.FromString(data[0]).containers] == [512 * 1024**2]
    assert heron("kill", "local", "wordy").code == 0


def test_kill_works_whatever_the_configuration_says(heron: Heron, home: Path, topo: Path, runtime: Any) -> None:
    started: list[subprocess.Popen[bytes]] = runtime("running")
    conf = home.parent / "conf"
    (conf / "local").mkdir(parents=True)
    assert heron("submit", "local", str(topo)).code == 0
    (conf / "local/stmgr.yaml").write_text("frame_max_byte: 5\n")
    (conf / "local/nonsense.yaml").write_text("a: [\n")
    (conf / "local/instance.yaml").write_text("a: [\n")
    flags = ("--config-path", str(conf), "--config-property", "heron.instanc.x=1")
    flags += ("--config-property", "heron.executor.metrics_port=99999")
    assert heron("deactivate", "local", "wordy", *flags).code == 2
    client = home.parent / "client/local/cli.yaml"
    client.parent.mkdir(parents=True)
    client.write_text("a: [")
    done = heron("kill", "local", "wordy", *flags, "--config-property", "rubbish")
    assert done.code == 0, done
    assert [
        line for line in done.err.splitlines() if not line.startswith(("warning: left out: ", "warning: ignored "))
    ] == []
    assert len(done.err.splitlines()) == 7 and f"left out: {client} is not valid YAML" in done.err
    assert "ignored --config-property 'rubbish', which is not key=value" in done.err
    started[0].wait(10)


@pytest.mark.parametrize("where", ["client", "command line"])
def test_kill_works_when_its_configuration_folder_is_gone(
    heron: Heron, home: Path, topo: Path, runtime: Any, where: str
) -> None:
    runtime("running")
    assert heron("submit", "local", str(topo)).code == 0
    gone, flags = home.parent / "gone", []
    client = home.parent / "client/local/cli.yaml"
    if where == "client":
        client.parent.mkdir(parents=True, exist_ok=True)
        client.write_text(f"config-path: {gone}\n")
    else:
        flags = ["--config-path", str(gone)]
    shown = f"config-path in {client}," if where == "client" else "--config-path"
    refused = heron("deactivate", "local", "wordy", *flags)
    assert refused.code == 2 and f"{shown} {gone} is not a folder" in refused.err
    done = heron("kill", "local", "wordy", *flags)
    assert done.code == 0 and f"warning: left out: {shown} {gone} is not a folder" in done.err


def test_apaches_flags_are_left_out_after_a_flag_in_front_of_the_verb() -> None:
    words = ["--service-url", "http://x", "submit", "--extra-launch-classpath", "/x", "local", "exc.py"]
    assert translate(words)[0] == ["submit", "local", "exc.py"]


def test_words_after_two_dashes_raise_no_question(heron: Heron, topo: Path) -> None:
    asked = heron("submit", "local", "--dry-run", str(topo), "wordy", "--wiat")
    assert "did you mean '--wait'?" in asked.err
    valued = heron("submit", "local", "--dry-run", str(topo), "wordy", "--what", "skew")
    assert "is passed to the program" not in valued.err, "--wait takes no value"
    certain = heron("submit", "local", "--dry-run", str(topo), "wordy", "--", "--wiat")
    assert certain.code == 0 and certain.err == "", certain
