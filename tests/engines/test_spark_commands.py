"""`heron` on a real cluster of Spark's own: set up, checked, submitted to, looked at, changed, killed."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.support.cluster_client import ClusterClient
from tests.support.pages import DOCS, PageRun
from tests.support.standalone_spark import StandaloneSpark, answers, end_all, free_port, standalone_spark
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.spark,
    pytest.mark.timeout(400),
    pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark: heronpy[spark]"),
]
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def spark() -> Iterator[StandaloneSpark]:
    """Room for four containers in all, and for three of fish on either worker."""
    with standalone_spark(workers=2, cores=3, memory="2g") as found:
        yield found


class Sparky(ClusterClient):
    """`heron` with cluster "sparky" on the tests' Spark."""

    patience_s = PATIENCE_S

    def __init__(self, spark: StandaloneSpark, folder: Path) -> None:
        self.spark, self.node = spark, folder / "node"
        defaults = folder / "spark-conf"
        defaults.mkdir()
        (defaults / "spark-defaults.conf").write_text(f"spark.master {spark.url}\n")
        engine = f"home: {self.node}\npoll_s: 0.5\nrenew_s: 1\nfence_s: 8\nlost_s: 15\npermit_s: 30\n"
        super().__init__("sparky", "spark", folder, {"SPARK_CONF_DIR": str(defaults)}, {"engine": engine})

    def processes(self) -> list[psutil.Process]:
        """First processes of containers, schedulers, drivers and their JVMs."""
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                if str(self.folder) in one.environ().get("HERON_HOME", "") and "heronpy.cli" not in one.cmdline():
                    found.append(one)
                elif one.environ().get("HERON_TOPOLOGY_ID") and "heronpy.executor.bootstrap" in one.cmdline():
                    found.append(one)
        return found

    def nothing_left(self) -> None:
        wait_for(lambda: not self.spark.executors(), PATIENCE_S, "no executor")
        wait_for(lambda: not self.processes(), PATIENCE_S, f"no process: {self.processes()}")
        assert not list((self.node / "containers").glob("[!.]*"))


@pytest.fixture
def sparky(spark: StandaloneSpark, tmp_path: Path) -> Iterator[Sparky]:
    found = Sparky(spark, tmp_path)
    yield found
    if found.conf.exists():
        found.start("kill", "sparky", "fish", "--force").communicate(timeout=120)
    found.nothing_left()


def test_a_cluster_is_set_up_and_checked(sparky: Sparky) -> None:
    sparky.init()
    assert f'\nmaster: "{sparky.spark.url}"\n' in (sparky.conf / "spark_engine.yaml").read_text()
    told = json.loads(sparky.run("cluster", "check", "sparky", "--json"))
    assert told["ok"] and told["requirements"][-1]["what"] == "heronpy there", told
    sparky.nothing_left()
    for key, value, what in (
        ("heron.spark_engine.master", "spark://127.0.0.1:9", "Spark's master"),
        ("heron.spark_engine.master", "local[2]", "spark"),
        ("heron.engine.python", "/no/python", "container"),
    ):
        wrong = sparky.run("cluster", "check", "sparky", "--config-property", f"{key}={value}", code=1)
        assert f"FAIL  {what}" in wrong and "fix: " in wrong, wrong
    sparky.nothing_left()


def test_a_topology_is_submitted_shown_changed_and_killed(sparky: Sparky) -> None:
    sparky.init()
    assert "room:   spark must provide 3 containers: container 0 with " in sparky.run(
        "submit", "sparky", str(sparky.program)
    )
    before = sparky.all_run(containers=3)
    assert {one["engine_id"] for one in before.values()} == {"0.1", "1.1", "2.1"}
    assert all(one["host"] for one in before.values()) and len(sparky.spark.executors()) == 3
    shown = sparky.run("status", "sparky", "fish")
    assert "RUNNING" in shown and "engine id" in shown and "2.1" in shown and str(before[2]["host"]) in shown, shown
    wait_for(lambda: "executor-2" in sparky.run("logs", "sparky", "fish", "executor-2"), PATIENCE_S, "its logs")

    # Spark cannot keep a task away from a host.
    refused = sparky.run("drain", "sparky", "fish", "--host", str(before[2]["host"]), code=1)
    assert "Spark" in refused or "spark" in refused, refused

    # In order and in place: its processes are new, and the engine's container is the same.
    assert "container 2: 2 tasks back" in sparky.run("restart", "sparky", "fish", "2")
    after = sparky.all_run(containers=3)
    assert {number: (one["engine_id"], one["epoch"]) for number, one in after.items()} == {
        number: (f"{number}.1", 1) for number in range(3)
    }

    # A container that is added gets an application of its own, which is given back with it.
    sparky.run("update", "sparky", "fish", "--component-parallelism", "count:5", "--container-number", "3")
    grown = sparky.all_run(containers=4)
    assert [grown[number]["engine_id"] for number in range(3)] == ["0.1", "1.1", "2.1"]
    assert len(sparky.spark.executors()) == 4
    sparky.run("update", "sparky", "fish", "--component-parallelism", "count:3", "--container-number", "2")
    sparky.all_run(containers=3)
    wait_for(lambda: len(sparky.spark.executors()) == 3, PATIENCE_S, "the end of the other application")

    assert "Successfully killed topology 'fish'" in sparky.run("kill", "sparky", "fish")
    sparky.nothing_left()
    assert "No topology runs" in sparky.run("list", "sparky")
    assert list((sparky.folder / "home" / "topologies").rglob("executor-1.log")), "the ends of the logs are kept"


def test_what_waits_in_the_queue_is_shown_and_taken_down(sparky: Sparky) -> None:
    """No worker has room for three executors of two cores each in addition to the other one."""
    sparky.init()
    large = ("--config-property", "heron.spark_engine.cores=3")
    late = sparky.run(
        "submit", "sparky", str(sparky.program), "--queue-timeout", "15", "--timeout", "2", *large, code=5
    )
    # Why depends on how far Spark came in that time.
    assert "still in the queue after 15 s: container " in late, late
    sparky.nothing_left()
    submit = sparky.start("submit", "sparky", str(sparky.program), "--queue-timeout", "200", *large)
    try:
        wait_for(lambda: len(sparky.spark.executors()) == 2, PATIENCE_S, "two executors")
        wait_for(lambda: "has 2 of 3 executors" in sparky.run("status", "sparky", "fish"), PATIENCE_S, "why it waits")
        assert "QUEUED" in sparky.run("status", "sparky", "fish")
        submit.send_signal(signal.SIGINT)
        out, err = submit.communicate(timeout=90)
    finally:
        submit.kill()
    assert submit.returncode == 130, (out, err)
    sparky.nothing_left()
    assert "No topology runs" in sparky.run("list", "sparky")


def test_what_spark_cannot_run_is_refused_before_anything_is_submitted(sparky: Sparky) -> None:
    sparky.init()
    for key, value, words in (
        ("heron.spark_engine.master", "", "heron.spark_engine.master is empty"),
        ("heron.spark_engine.master", "local[2]", "provides no executors on other hosts"),
        ("heron.spark_engine.master", "spark://127.0.0.1:9", "cannot be reached from this host"),
        ("heron.security.transport", "ipc", "works on one machine only"),
        ("heron.spark_engine.memory_bytes", "1MB", "a Spark executor needs at least"),
    ):
        said = sparky.run("submit", "sparky", str(sparky.program), "--config-property", f"{key}={value}", code=2)
        assert words in said, said
    assert not (sparky.folder / "home" / "state" / "sparky" / "topologies" / "fish").exists()


def test_the_how_to_does_what_it_says(home: Path, tmp_path: Path) -> None:
    """Word for word, but for a port that may be taken and for the folder of the containers; its daemons, too."""
    page = DOCS / "howto" / "spark-engine.md"
    first = "$ heron cluster check sparky\n"
    text = page.read_text(encoding="utf-8").replace("127.0.0.1:7077", f"127.0.0.1:{(port := free_port('127.0.0.1'))}")
    text = text.replace("--port 7077", f"--port {port}")
    lines = [line[2:] for line in text.splitlines() if line.startswith(("$ export ", "$ spark-class "))]
    exports, daemons = lines[:-2], lines[-2:]
    assert len(exports) == 2 and all(line.startswith("spark-class ") for line in daemons) and first in text
    for line in daemons:
        text = text.replace(f"$ {line}\n", "")
    copy = tmp_path / page.name
    copy.write_text(text.replace(first, f"$ heron config set sparky heron.engine.home {tmp_path}/node\n...\n{first}"))
    run = PageRun(copy, home.parent / "work", home)
    with daemons_of(run, exports, daemons, port):
        try:
            run.run()
        except BaseException:
            print("\n".join(log.read_text(errors="replace")[-4000:] for log in home.rglob("scheduler.log")))
            raise
        finally:
            kill = ["heron", "kill", "sparky", "fish"]
            subprocess.run(kill, env=run.env, capture_output=True, timeout=90, check=False)


@contextmanager
def daemons_of(run: PageRun, exports: list[str], daemons: list[str], port: int) -> Iterator[None]:
    """The two daemons of the page, as its reader starts them in two terminals."""
    started: list[subprocess.Popen[bytes]] = []
    log = run.folder / "daemons.log"
    try:
        for line in daemons:
            with open(log, "ab") as out:
                script = "; ".join([*exports, f"exec {line}"])
                started.append(
                    subprocess.Popen(["bash", "-c", script], cwd=run.folder, env=run.env, stdout=out, stderr=out)
                )
            wait_for(lambda: answers("127.0.0.1", port), PATIENCE_S, "the master of the page")
        wait_for(lambda: b"Successfully registered with master" in log.read_bytes(), PATIENCE_S, "its worker")
        yield
        worker = psutil.Process(started[1].pid)
        wait_for(lambda: not worker.children(recursive=True), PATIENCE_S, "the end of the page's application")
    finally:
        for process in started:
            end_all(process)
