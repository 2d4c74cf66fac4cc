"""What is asked of Spark, and how what its drivers tell becomes what an engine says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.errors import ConfigError
from heronpy.engines.contract import Ended, EnginePhase, Request
from heronpy.engines.open import master_of, profile_of
from heronpy.engines.spark.application import SparkOptions, placed, properties_of, size_of
from heronpy.engines.spark.jobs import Job, Told, after_driver, seen_of, told_of, waits_for, who_of
from heronpy.procs.exit_reason import ExitReason
from heronpy.spark.host import _python_error
from heronpy.spark.host_task import run_process

MASTER = "spark://master:7077"
GB = 10**9


def request(container: int, submission: int = 1, cpu: float = 1.0, ram: int = GB) -> Request:
    return Request("wc-1", container, submission, cpu, ram, token="secret")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"master": ""}, "heron.spark_engine.master is empty"),
        ({"master": "local[2]"}, "provides no executors on other hosts"),
        ({"memory_bytes": 1000}, "needs at least"),
        ({"driver_memory": "much"}, "must be a size such as 512m"),
        ({"conf": {"spark.speculation": True}}, "spark.speculation, which is not allowed there; remove it"),
        ({"conf": {"spark.executor.cores": 2}}, "use heron.spark_engine.cores"),
    ],
)
def test_options_that_cannot_work_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SparkOptions(**{"master": MASTER, **given})


def test_masters_that_listen_at_a_port_are_known() -> None:
    assert SparkOptions("spark://a:1,b").masters == ["a:1", "b:7077"]
    assert SparkOptions("yarn").masters == [] and not SparkOptions("yarn").is_standalone


def test_an_executor_has_what_the_largest_container_asks_for() -> None:
    size = size_of([request(0, cpu=0.3, ram=10**6), request(1, cpu=2.1), request(2)], SparkOptions(MASTER))
    assert (size.slots, size.cores, size.memory_bytes) == (3, 3, GB)
    assert size_of([request(1, ram=1)], SparkOptions(MASTER)).memory_bytes == 512 << 20
    given = size_of([request(1)], SparkOptions(MASTER, cores=4, memory_bytes=2 * GB))
    assert (given.cores, given.memory_bytes) == (4, 2 * GB)


def test_a_task_fills_its_executor_and_runs_once() -> None:
    options = SparkOptions(MASTER, conf={"spark.authenticate": True}, python="/py", lost_s=12)
    found = properties_of("wc-1", options, size_of([request(0), request(1, cpu=2)], options), "10.0.0.1", range(20, 30))
    assert found["spark.task.cpus"] == found["spark.executor.cores"] == "2"
    assert found["spark.cores.max"] == "4" and found["spark.executor.memory"] == "954m"
    once = ("spark.task.maxFailures", "spark.speculation", "spark.dynamicAllocation.enabled")
    assert [found[name] for name in once] == ["1", "false", "false"]
    assert found["spark.network.timeout"] == "30s" and found["spark.executor.heartbeatInterval"] == "5000ms"
    assert found["spark.network.timeoutInterval"] == "5000ms", "Spark refuses one that is longer than the timeout"
    assert found["spark.authenticate"] == "true" and found["spark.pyspark.python"] == "/py"
    assert found["spark.driver.port"] == "20" and found["spark.port.maxRetries"] == "9"
    assert "secret" not in str(found)


def test_elsewhere_a_container_is_counted_beside_the_heap() -> None:
    options = SparkOptions("yarn")
    found = properties_of("wc-1", options, size_of([request(0), request(1)], options), "10.0.0.1", None)
    assert found["spark.executor.instances"] == "2" and "spark.cores.max" not in found
    assert found["spark.executor.memoryOverhead"] == "954m" and found["spark.executor.memory"] == "512m"


def test_a_container_stays_with_its_application() -> None:
    by_application, rest = placed([request(0, 2), request(5), request(6)], [{1, 2}, {0, 3}])
    assert [[one.container for one in found] for found in by_application] == [[], [0]]
    assert [one.container for one in rest] == [5, 6]


def test_a_driver_is_believed_only_in_its_own_words() -> None:
    line = {"ready": True, "application": "app-1", "executors": 2, "jobs": [{"id": "2.1", "phase": "running"}]}
    assert told_of(line) == Told(True, "app-1", 2, "", (Job(2, 1, "running"),))
    for wrong in (
        {"jobs": [{"id": "2", "phase": "running"}]},
        {"jobs": [{"id": "2.1", "phase": "x"}]},
        {"jobs": 1},
        [],
    ):
        with pytest.raises(ValueError, match="Spark driver"):
            told_of(wrong)  # type: ignore[arg-type]
    assert who_of("2.1") == (2, 1) and who_of("2.1.x") is None and who_of("") is None


def test_only_a_task_that_has_returned_confirms_an_end() -> None:
    ended = seen_of(Job(1, 2, "returned", 9))
    assert (ended.ended, ended.reason, ended.exit_code) == (Ended.CONFIRMED, ExitReason.KILLED, None)
    assert seen_of(Job(1, 2, "returned", 7 << 8)).exit_code == 7
    lost = seen_of(Job(1, 2, "lost"))
    assert (lost.ended, lost.reason, lost.phase) == (Ended.UNCONFIRMED, None, EnginePhase.ENDED)
    assert seen_of(Job(1, 2, "failed", words="no heronpy")).reason is ExitReason.SPAWN_FAILED
    assert seen_of(Job(1, 2), starting=True).phase is EnginePhase.STARTING
    assert seen_of(Job(1, 2)).phase is EnginePhase.QUEUED


def test_a_driver_that_ends_leaves_its_jobs_unconfirmed_once_it_had_an_application() -> None:
    assert after_driver(Job(1, 1, "running"), True, "gone").phase == "lost"
    assert after_driver(Job(1, 1), True, "gone").phase == "lost", "it may have begun a moment ago"
    assert after_driver(Job(1, 1), False, "no master").phase == "failed"
    returned = Job(1, 1, "returned", 9)
    assert after_driver(returned, True, "gone") is returned


def test_what_a_container_waits_for_is_told() -> None:
    assert waits_for(Told(), 2, "1 core", True) == "the Spark application is starting"
    few = "application app-1 has 1 of 3 executors, each with 2 cores and 1 GB: "
    told = Told(True, "app-1", 1)
    assert waits_for(told, 3, "2 cores and 1 GB", True) == f"{few}the other executors are starting"
    assert waits_for(told, 3, "2 cores and 1 GB", False) == f"{few}no worker in the cluster has these resources free"


def test_a_new_cluster_takes_the_master_of_this_host(tmp_path: Path) -> None:
    assert master_of("# spark.master spark://old:1\nspark.master   spark://m:7077\nspark.x y\n") == "spark://m:7077"
    assert master_of("spark.master=yarn") == "yarn" and master_of("spark.masters x") == ""
    (tmp_path / "spark-defaults.conf").write_text(f"spark.master {MASTER}\n")
    found = profile_of("spark", {"SPARK_CONF_DIR": str(tmp_path)}).values
    assert found == {"spark_engine": {"master": MASTER}, "tmaster": {"standbys": 1}}
    assert "no spark.master in" in profile_of("spark", {"SPARK_HOME": str(tmp_path)}).unknown
    assert "are not set" in profile_of("spark", {}).unknown


# ---- the task, without Spark ------------------------------------------------------------------
def given(program: str) -> dict[str, Any]:
    who = {"topology_id": "wc-1", "container": 3, "submission": 4}
    return {"command": [sys.executable, "-c", program], "join_token": "the token", **who}


def test_a_task_runs_the_first_process_and_tells_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SECRET", "x")
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "x")
    program = (
        "import json, os, sys; names = [n for n in os.environ if 'SECRET' in n];"
        "print(json.dumps([sys.stdin.read(), os.environ['HERON_CONTAINER'], os.environ['HERON_SUBMISSION'], names]));"
        "sys.exit(7)"
    )
    answer = run_process(given(program))
    assert answer["status"] == 7 << 8
    assert json.loads(answer["printed"]) == ["the token", "3", "4", []]


def test_a_task_tells_the_signal_and_a_program_that_is_not_there() -> None:
    assert run_process(given("import os; os.kill(os.getpid(), 9)"))["status"] == 9
    answer = run_process({**given(""), "command": ["/no/python"]})
    assert answer["status"] == 127 << 8 and "/no/python" in answer["printed"]


def test_the_task_needs_nothing_of_heronpy() -> None:
    """It travels by value to hosts that may lack heronpy, and says so there."""
    file = Path(__file__).parents[2] / "heronpy" / "spark" / "host_task.py"
    program = f"import sys; sys.path = [p for p in sys.path if 'heron' not in p]; exec(open({str(file)!r}).read())"
    program += "; assert not [m for m in sys.modules if m.startswith(('heronpy', 'pyspark'))]"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_an_error_of_python_is_one_line() -> None:
    text = "Job aborted\n  File x\norg.apache.spark.api.python.PythonException: Traceback\n" + "  File y\n"
    text += "ModuleNotFoundError: No module named 'x'\n\tat java.base"
    assert _python_error(text) == "ModuleNotFoundError: No module named 'x'"
    none = 'java.io.IOException: Cannot run program "/no/python": error=2, No such file or directory\n\tat java.base'
    assert _python_error(none) == none.splitlines()[0]
