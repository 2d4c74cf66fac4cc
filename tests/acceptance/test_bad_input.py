"""What users get wrong: one sentence that names the thing and the fix, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import textwrap
import zipfile
from pathlib import Path

import psutil
import pytest

from tests.support.command import EXAMPLES, Heron
from tests.support.user_programs import chain, write_program
from tests.support.waiting import wait_for

WORD_COUNT = str(EXAMPLES / "word_count.py")
FAILED, USAGE, NOT_FOUND, EXISTS, TIMED_OUT = 1, 2, 3, 4, 5


def refused_before_start(heron: Heron, code: int, program: object, *words: str, flags: tuple[object, ...] = ()) -> str:
    """Submit what must be refused before anything is started or written."""
    result = heron("submit", "local", program, *flags)
    sentence = result.refused(code, *words)
    assert "Launching" not in result.out
    assert heron.names() == []
    assert not (heron.home / "topologies").exists(), "something was written"
    heron.check_clean()
    return sentence


# ---- the topology is wrong ----------------------------------------------------------------------


def test_cycle_under_effectively_once(heron: Heron, tmp_path: Path) -> None:
    body = """
    def main():
        builder = TopologyBuilder("cycle")
        numbers = builder.add_spout("numbers", Numbers, par=1)
        builder.add_bolt("there", Pass, par=1, inputs={
            numbers: Grouping.SHUFFLE, GlobalStreamId("back", "default"): Grouping.SHUFFLE})
        builder.add_bolt("back", Pass, par=1, inputs={GlobalStreamId("there", "default"): Grouping.SHUFFLE})
        builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
        builder.build_and_submit()

    main()
    """
    program = write_program(tmp_path, body)
    refused_before_start(heron, USAGE, program, "cycle there -> back -> there", "break the cycle or use ATLEAST_ONCE")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            """builder.add_bolt("sink", Sink, par=1, inputs={numbers: Grouping.fields("m")})""",
            ("topo.py, line 5", "bolt sink groups numbers:default by field 'm'", "fields of that stream are n"),
        ),
        (
            """builder.add_bolt("sink", Sink, par=1, inputs={GlobalStreamId("numbrs", "default"): Grouping.SHUFFLE})""",
            ("topo.py, line 5", "'numbrs', which is not a component", "it has numbers, sink"),
        ),
        (
            """builder.add_bolt("sink", Sink, par=1, inputs={GlobalStreamId("numbers", "odd"): Grouping.SHUFFLE})""",
            ("topo.py, line 5", "stream 'odd' of numbers, which declares default", "add the stream to its outputs"),
        ),
        (
            """builder.add_bolt("sink", Sink, par=1, inputs={numbers["odd"]: Grouping.SHUFFLE})""",
            ("topo.py, line 5", "numbers has no output stream 'odd'; it declares default"),
        ),
        (
            """builder.add_bolt("numbers", Sink, par=1, inputs={numbers: Grouping.SHUFFLE})""",
            ("topo.py, line 5", "duplicate component name: numbers; give each component its own"),
        ),
        (
            """builder.add_bolt("sink", Sink, par=-2, inputs={numbers: Grouping.SHUFFLE})""",
            ("topo.py, line 5", "parallelism of sink must be at least 1, given: -2"),
        ),
        (
            """builder.add_bolt("sink", Sink, par="2", inputs={numbers: Grouping.SHUFFLE})""",
            ("topo.py, line 5", "arallelism", "'2'"),
        ),
        (
            """builder.add_bolt("sink", Sink, par=1, inputs={numbers: Grouping.DIRECT})""",
            ("topo.py, line 5", "Grouping.DIRECT", "direct=True"),
        ),
    ],
)
def test_wrong_topologies_are_refused_where_the_user_wrote_them(
    heron: Heron, tmp_path: Path, build: str, words: tuple[str, ...]
) -> None:
    text = f"""
from tests_prelude import *
builder = TopologyBuilder("wrong"); numbers = builder.add_spout("numbers", Numbers, par=1)
#
{build}; builder.build_and_submit()
"""
    write_program(tmp_path, "", "tests_prelude.py")
    program = tmp_path / "topo.py"
    program.write_text(text)
    refused_before_start(heron, USAGE, program, *words)


def test_a_restore_that_cannot_be_is_refused_before_anything_starts(heron: Heron, tmp_path: Path) -> None:
    """F33: nothing to restore, and a mode that has no checkpoints."""
    exactly = write_program(tmp_path, chain("exact", config='{"topology.reliability.mode": "EFFECTIVELY_ONCE"}'))
    missing = ("there is no checkpoint of 'exact'", "leave out --restore to start empty")
    refused_before_start(heron, NOT_FOUND, exactly, *missing, flags=("--restore", "latest"))
    once = write_program(tmp_path, chain("once"), "once.py")
    refused_before_start(heron, USAGE, once, "'once' is ATMOST_ONCE", flags=("--restore", "latest"))


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("topology.message.timeout.sec", "topology.message.timeout.secs"),
        ("topology.max.spout.pendin", "topology.max.spout.pending"),
        ("heron.instance.batch_tuple", "heron.instance.batch_tuples"),
        ("heron.instanc.batch_tuples", "heron.instance.batch_tuples"),
    ],
)
def test_misspelt_keys_name_the_nearest(heron: Heron, tmp_path: Path, key: str, near: str) -> None:
    program = write_program(tmp_path, chain("keys", config=f'{{"{key}": "5"}}'))
    refused_before_start(heron, USAGE, program, f"unknown key '{key}'" if "topology" in key else key, near)
    if key.startswith("heron"):
        flags = ("--config-property", f"{key}=5")
        refused_before_start(heron, USAGE, WORD_COUNT, "--config-property", near, flags=flags)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("heron.executor.metrics_port=99999", ("heron.executor.metrics_port", "'99999'", "from 0 to 65535")),
        ("heron.instance.in_queue_bytes_max=lots", ("heron.instance.in_queue_bytes_max", "'lots'")),
        ("heron.packing.algorithm=magic", ("heron.packing.algorithm", "round_robin")),
        ("nothing", ("'nothing'", "key=value")),
    ],
)
def test_wrong_settings(heron: Heron, setting: str, words: tuple[str, ...]) -> None:
    refused_before_start(heron, USAGE, WORD_COUNT, *words, flags=("--config-property", setting))


# ---- the program cannot be run ------------------------------------------------------------------


def test_programs_that_do_not_run(heron: Heron, tmp_path: Path) -> None:
    def program(text: str) -> Path:
        path = tmp_path / "topo.py"
        path.write_text(text)
        return path

    refused_before_start(heron, FAILED, program("def f(:\n"), "topo.py raised SyntaxError", "line 1")
    refused_before_start(heron, FAILED, program("import not_there\n"), "No module named 'not_there'")
    refused_before_start(heron, FAILED, program("import sys\nsys.exit(3)\n"), "topo.py ended with exit code 3")
    refused_before_start(heron, FAILED, program("import os\nos.kill(os.getpid(), 9)\n"), "killed by signal 9")
    refused_before_start(heron, USAGE, program("x = 1\n"), "builds no topology", "build_and_submit()")
    hangs = program("import time\ntime.sleep(600)\n")
    refused_before_start(heron, TIMED_OUT, hangs, "not built its topology", "--timeout", flags=("--timeout", "0.5"))


def test_the_traceback_of_a_program_has_the_users_frames_only(heron: Heron, tmp_path: Path) -> None:
    program = tmp_path / "topo.py"
    program.write_text("import helper\n\nhelper.load('x')\n")
    (tmp_path / "helper.py").write_text("def load(name):\n    return {}[name]\n")
    result = heron("submit", "local", program)
    result.refused(FAILED, "topo.py raised KeyError: 'x'; no topology was started")
    frames = [line.split('"')[1] for line in result.err.splitlines() if line.startswith("  File ")]
    assert [Path(frame).name for frame in frames] == ["topo.py", "helper.py"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("no_such_file.py",), ("no file or folder", "no_such_file.py")),
        (("no_such_module:Topology",), ("module no_such_module", "PYTHONPATH")),
        (("heronpy.api.topology:Nope",), ("no class 'Nope'",)),
        ((WORD_COUNT, "word_count:Nope"), ("no topology class 'Nope'",)),
        ((WORD_COUNT, "../up"), ("'../up'", "slash")),
        (("README.md",), ("README.md",)),
    ],
)
def test_what_is_not_there(heron: Heron, words: tuple[str, ...], expected: tuple[str, ...]) -> None:
    (heron.cwd / "README.md").write_text("# no program\n")
    result = heron("submit", "local", *words)
    result.refused(USAGE, *expected)
    heron.check_clean()


def test_archives_that_reach_out_of_their_folder(heron: Heron, tmp_path: Path) -> None:
    for number, evil in enumerate(("../../evil.txt", "/tmp/evil-of-heron-tests.txt", "a/../../evil.txt")):
        path = tmp_path / f"evil{number}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("__main__.py", "print(1)\n")
            archive.writestr(evil, "x")
        refused_before_start(heron, USAGE, path, evil, "leads out of it")
    link = tmp_path / "link.zip"
    with zipfile.ZipFile(link, "w") as archive:
        archive.writestr("__main__.py", "print(1)\n")
        entry = zipfile.ZipInfo("passwd")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    refused_before_start(heron, USAGE, link, "passwd")
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK\x03\x04 is how it begins")
    refused_before_start(heron, USAGE, broken, "broken.zip")
    assert not list(tmp_path.parent.rglob("evil.txt")) and not Path("/tmp/evil-of-heron-tests.txt").exists()


# ---- the tasks fail -----------------------------------------------------------------------------


def started_and_failed(heron: Heron, program: Path, *words: str) -> list[str]:
    """Submit a topology whose tasks cannot start; returns the frames of the traceback."""
    result = heron("submit", "local", program)
    result.refused(FAILED, *words)
    assert result.err.count("Traceback (most recent call last):") == 1, f"{result}"
    assert heron.names() == []
    heron.check_clean()
    return [line.strip() for line in result.err.splitlines() if line.startswith("    File ")]


@pytest.mark.parametrize("where", ["__init__(self, *args, **kwargs)", "initialize(self, config, context)"])
def test_constructor_or_initialize_that_raises(heron: Heron, tmp_path: Path, where: str) -> None:
    body = f"""
    class Broken(Pass):
        def {where}:
            raise ConnectionError("no database at db:5432")
    """
    program = write_program(tmp_path, textwrap.dedent(body) + chain("broken", bolt="Broken"))
    sentence = "topology 'broken' failed: container_1_pass_2 failed: ConnectionError: no database at db:5432"
    [frame] = started_and_failed(heron, program, sentence)
    assert "topo.py" in frame and where.partition("(")[0] in frame


def test_tasks_that_fail_alike_share_a_traceback(heron: Heron, tmp_path: Path) -> None:
    body = """
    class Broken(Numbers):
        def initialize(self, config, context):
            raise ValueError("out of luck")

    def main():
        builder = TopologyBuilder("alike")
        numbers = builder.add_spout("numbers", Broken, par=3)
        builder.add_bolt("sink", Sink, par=1, inputs={numbers: Grouping.SHUFFLE})
        builder.build_and_submit()

    if __name__ == "__main__":
        main()
    """
    started_and_failed(heron, write_program(tmp_path, body), "container_1_numbers_", "ValueError: out of luck")


def test_a_class_that_only_the_submitter_can_import(heron: Heron, tmp_path: Path) -> None:
    """It is there when the topology is built, and not in the package."""
    body = """
    import sys
    import types

    module = types.ModuleType("made_up")
    sys.modules["made_up"] = module
    Pass.__module__ = "made_up"
    """
    program = write_program(tmp_path, textwrap.dedent(body) + chain("missing"))
    result = heron("submit", "local", program)
    result.refused(FAILED, "container_1_pass_2 failed", "made_up")
    heron.check_clean()


def test_a_program_without_a_main_guard_works(heron: Heron, tmp_path: Path) -> None:
    program = write_program(tmp_path, chain("plain", guarded=False))
    heron.submit(program)
    status = heron.when_state("plain", "FINISHED")
    assert [row["executed"] for row in status["components"]] == [0, 5, 5]


def test_a_program_that_parses_arguments_without_a_guard(heron: Heron, tmp_path: Path) -> None:
    """Tasks run it again as a module, and see the arguments of the submit."""
    body = """
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--size", required=True)
    parser.parse_args()
    """
    program = write_program(tmp_path, textwrap.dedent(body) + chain("args"))
    heron("submit", "local", program).refused(FAILED, "topo.py ended with exit code 2; no topology was started")
    heron.check_clean()
    heron("submit", "local", program, "--size", "3").ok()
    heron.kill("args")
    heron.check_clean()


@pytest.mark.parametrize(
    ("component", "emit", "words"),
    [
        ("spout", "self.emit([1, 2])", "component numbers emitted 2 values on stream 'default', which declares 1: n"),
        ("bolt", "self.emit([1, 2])", "component pass emitted 2 values on stream 'default', which declares 1: n"),
        (
            "spout",
            'self.emit([1], stream="odd")',
            "component numbers emitted on stream 'odd', which it does not declare",
        ),
        ("bolt", 'self.emit([1], stream="odd")', "component pass emitted on stream 'odd', which it does not declare"),
    ],
)
def test_wrong_emits_fail_the_task_with_the_users_line(
    heron: Heron, tmp_path: Path, component: str, emit: str, words: str
) -> None:
    base, method = ("Numbers", "next_tuple(self)") if component == "spout" else ("Pass", "process(self, tup)")
    body = f"""
    class Wrong({base}):
        def {method}:
            {emit}
    """
    name = {"spout": "Numbers", "bolt": "Pass"} | {component: "Wrong"}
    program = write_program(tmp_path, textwrap.dedent(body) + chain("wrong", name["spout"], name["bolt"]))
    heron.submit("--detach", program, "--config-property", 'heron.executor.restart_budgets={"user_exception": 2}')
    status = heron.when_state("wrong", "FAILED")
    assert words in status["cause"] and status["cause"].startswith(
        f"container_1_{'numbers_1' if component == 'spout' else 'pass_2'}"
    )
    shown = heron("exceptions", "local", "wrong").ok().out
    assert words in shown and "topo.py" in shown and emit in shown
    heron("status", "local", "wrong").refused(FAILED, "topology 'wrong' has failed", words)


def test_process_that_raises_restarts_the_task_and_fails_the_tuple(heron: Heron, tmp_path: Path) -> None:
    body = """
    class Careful(Spout):
        outputs = ["n"]

        def initialize(self, config, context):
            self.todo, self.pending = [1, 2, 3, 4, 5], set()

        def next_tuple(self):
            if self.todo:
                n = self.todo.pop(0)
                self.pending.add(n)
                self.emit([n], tup_id=n)
            elif not self.pending:
                self.end_of_input()

        def ack(self, tup_id):
            self.pending.discard(tup_id)
            self.logger.info("acked %d", tup_id)

        def fail(self, tup_id):
            self.pending.discard(tup_id)
            self.logger.info("failed %d", tup_id)
            self.todo.append(30 if tup_id == 3 else tup_id)


    def look_up(n):
        if n == 3:
            raise KeyError("no such customer")


    class Fragile(Pass):
        def process(self, tup):
            look_up(tup.values[0])
            super().process(tup)
    """
    program = write_program(tmp_path, textwrap.dedent(body) + chain("fragile", "Careful", "Fragile", "ATLEAST_ONCE"))
    heron.submit(program)
    heron.when_state("fragile", "FINISHED")
    acked = set(heron.when_logged("fragile", r"acked (\d+)", "*numbers*", count=5))
    assert acked == {"1", "2", "30", "4", "5"}
    assert "failed 3" in heron.log_text("fragile", "*numbers*")
    [found] = heron("exceptions", "local", "fragile", "--json").json()["exceptions"]
    assert (found["instance_id"], found["type"], found["count"]) == ("container_1_pass_2", "KeyError", 1)
    frames = [line.strip() for line in found["traceback"].splitlines() if line.startswith("  File ")]
    assert ["process" in frames[0], "look_up" in frames[1], len(frames)] == [True, True, 2]
    text = heron("exceptions", "local", "fragile", "pass").ok().out
    assert (
        text.startswith(f"KeyError at {program}:")
        and "container_1_pass_2" in text
        and text.endswith("KeyError: 'no such customer'\n")
    )
    process = next(p for c in heron.status("fragile")["containers"] for p in c["processes"] if "pass" in p["name"])
    assert (process["restarts"], process["exit_reason"]) == (1, "user_exception")


def test_next_tuple_that_always_raises_backs_off_and_ends_failed(heron: Heron, tmp_path: Path) -> None:
    body = """
    class Gone(Numbers):
        def next_tuple(self):
            raise OSError("the feed is gone")
    """
    program = write_program(tmp_path, textwrap.dedent(body) + chain("loop", spout="Gone"))
    heron.submit("--detach", program, "--config-property", "heron.executor.restart_exception_budget_s=5")
    degraded = heron.when_state("loop", "DEGRADED")["cause"]
    assert degraded.startswith("the only task of numbers is down, restart ") and "given up after 5 s" in degraded
    assert degraded.count("the feed is gone") == 1 and "OSError" in degraded
    status = heron.when_state("loop", "FAILED")
    pattern = (
        r"container_1_numbers_1 failed: user exception: ended \d+ times in \d+ s without a healthy run in between: "
    )
    assert re.fullmatch(pattern + "OSError: the feed is gone", status["cause"]), status["cause"]
    pauses = heron.when_logged("loop", r"container_1_numbers_1 ended \(.*\); restart in ([\d.]+) s", "executor-1")
    assert pauses == ["0.05", "0.1", "0.2", "0.4", "0.8", "1.6", "3.2"][: len(pauses)] and len(pauses) >= 4
    shown = heron("status", "local", "loop")
    shown.refused(FAILED, "topology 'loop' has failed", "OSError: the feed is gone")
    assert "FAILED" in heron("list", "local").ok().out
    # The other tasks run on, and the topology can still be looked at, repaired or killed.
    heron.when(
        "loop", lambda now: [task["state"] for task in now["tasks"][1:]] == ["RUNNING"] * 2, "the others running"
    )
    assert f"in next_tuple: {len(pauses) + 1} times" in heron("exceptions", "local", "loop").ok().out


# ---- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", ["Launching topology", "container_1_count_4"])
def test_interrupted_submit_leaves_nothing(heron: Heron, tmp_path: Path, signum: int, after: str) -> None:
    program = tmp_path / "slow.py"
    program.write_text(Path(WORD_COUNT).read_text().replace("self.seen = 0", "import time; time.sleep(60)"))
    submit = heron.start("submit", "local", program, "slow")

    try:
        if after == "Launching topology":
            assert submit.stdout is not None and after in submit.stdout.readline()
        else:
            wait_for(lambda: list(heron.home.glob(f"topologies/local/*/slow/log-files/{after}.log")), 30.0)
        # Users press Ctrl-C more than once.
        for _ in range(3):
            submit.send_signal(signum)
        _, err = submit.communicate(timeout=60)
    finally:
        submit.kill()
        submit.wait()
    ends = ("error: interrupted", "topology 'slow' is removed; what it logged: heron logs local slow")
    assert submit.returncode == 130 and err.rstrip().endswith(ends), err
    assert after == "Launching topology" or "interrupted: topology 'slow' had not started; removing it" in err
    assert heron.names() == []
    heron.check_clean()


def test_two_submits_of_one_name(heron: Heron) -> None:
    heron.submit(WORD_COUNT, "twin")
    before = heron.status("twin")["topology_id"]
    sentence = heron("submit", "local", WORD_COUNT, "twin").refused(EXISTS, "'twin' is already running")
    assert "kill it first or choose another name" in sentence
    status = heron.status("twin")
    assert (status["topology_id"], status["lifecycle"]) == (before, "RUNNING")


def test_two_submits_of_one_name_at_the_same_time(heron: Heron) -> None:
    racers = [heron.start("submit", "local", WORD_COUNT, "twin") for _ in range(3)]
    results = [(racer.communicate(timeout=90), racer.returncode) for racer in racers]
    codes = sorted(code for _, code in results)
    assert codes == [0, EXISTS, EXISTS], results
    for (_, err), code in results:
        assert code == 0 or err.startswith("error: topology 'twin' is already running")
    assert heron.names() == ["twin"]
    assert heron.status("twin")["lifecycle"] == "RUNNING"
    heron.kill("twin")
    heron.check_clean()


def test_words_that_heron_does_not_know(heron: Heron) -> None:
    heron("submitt", "local", WORD_COUNT).refused(USAGE, "no verb 'submitt'", "did you mean 'submit'?")
    heron("status", "local", "nope").refused(NOT_FOUND, "no topology 'nope'", "heron list local")
    heron("kill", "local", "nope").refused(NOT_FOUND, "no topology 'nope'")
    heron("status", "mars", "nope").refused(USAGE, "'mars'", "local")
    heron("submit", "mars", WORD_COUNT).refused(USAGE, "'mars'", "local")
    heron("logs", "local", "nope").refused(NOT_FOUND, "nope")
    heron("status", "local").refused(NOT_FOUND, "no topology runs in local")
    heron("lcoal").refused(USAGE, "no verb 'lcoal'", "heron status local")
    heron("kill", "nope").refused(USAGE, "name the cluster first, as in 'heron kill local nope'")
    heron("submit", "wc.py").refused(USAGE, "name the cluster first, as in 'heron submit local wc.py'")
    heron("logs", "lcal").refused(NOT_FOUND, "no logs of a topology 'lcal'", "did you mean 'local'?")
    heron("submit", "local", "--wiat", WORD_COUNT).refused(USAGE, "--wiat", "--wait")
    heron("submit", "local", WORD_COUNT, "--wait", "--detach").refused(USAGE, "--detach and --wait")
    late = heron("submit", "local", WORD_COUNT, "wc", "--wiat")  # the program's own, as it seems, and it refuses it
    assert late.code != 0 and "warning: '--wiat' goes to the program; did you mean '--wait'?" in late.err
    heron("stop", "local", "wc", "--drain", "--savepoint").refused(USAGE, "--drain and --savepoint exclude each other")
    heron.check_clean()


def test_changes_that_cannot_be_made(heron: Heron) -> None:
    heron.submit(WORD_COUNT, "wc")
    before = heron("plan", "local", "wc", "packing", "--json").json()

    def refused(*words: str, expected: str, code: int = USAGE) -> None:
        heron(words[0], "local", "wc", *words[1:]).refused(code, expected)

    for wrong in ("count", "count:", "count:0", "count:-1", "count:two", ":3"):
        refused("update", "--component-parallelism", wrong, expected="for example 'count:4'")
    refused("update", "--component-parallelism", "cuont:3", expected="did you mean 'count'?")
    refused("update", "--component-parallelism", "count:100000000", expected="more than the 100000")
    refused("update", "--container-number", "0", expected="--container-number")
    refused("update", expected="nothing to change")
    refused("update", "--runtime-config", "limit", expected="[component:]key:value")
    refused("update", "--runtime-config", "topology.max.spout.pendin:5", expected="topology.max.spout.pending")
    refused("update", "--runtime-config", "topology.reliability.mode:ATLEAST_ONCE", expected="cannot change while")
    refused("update", "--runtime-config", "heron.instance.batch_tuples:5", expected="cannot change while")
    refused("update", "--runtime-config", "count:topology.component.parallelism:5", expected="--component-parallelism")
    refused("restart", "7", expected="no container 7; it has 0 to 1")
    refused("restart", "container_1_cuont_3", expected="did you mean 'container_1_count_3'?")
    refused("restart", "--task", "77", expected="no task 77")
    refused("metrics", "cuont", expected="did you mean 'count'?")
    refused("exceptions", "--component", "cuont", expected="did you mean 'count'?")
    refused("logs", "cuont", expected="did you mean 'count'?")
    refused("logs", "xyz", expected="container_1_count_3")
    refused("logs", "--since", "yesterday", expected="5m")
    refused("logs", "--level", "LOUD", expected="WARNING")
    refused("plan", "logicall", expected="logical")
    assert heron("plan", "local", "wc", "packing", "--json").json() == before
    assert heron.status("wc")["lifecycle"] == "RUNNING"


def test_a_dead_topology_can_be_read_and_removed(heron: Heron) -> None:
    heron.submit(WORD_COUNT, "wc")
    for process in heron.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    fix = "run 'heron kill local wc' to remove what is left"
    for words in (
        ("status",),
        ("metrics",),
        ("exceptions",),
        ("top",),
        ("activate",),
        ("deactivate",),
        ("restart",),
        ("update", "--component-parallelism", "count:3"),
    ):
        heron(words[0], "local", "wc", *words[1:]).refused(FAILED, "nothing of topology 'wc' runs any more", fix)
    assert "DEAD" in heron("list", "local").ok().out
    assert "split" in heron("plan", "local", "wc").ok().out
    assert "all 4 tasks of wc have started" in heron("logs", "local", "wc", "tmaster").ok().out
    heron("submit", "local", WORD_COUNT, "wc").refused(EXISTS, "is dead but not removed", "heron kill local wc")
    assert "Successfully killed topology 'wc'" in heron.kill("wc").out
    heron.check_clean()
    heron.submit(WORD_COUNT, "wc")


# ---- the host -----------------------------------------------------------------------------------


def test_metrics_port_that_is_taken(heron: Heron) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = ("--config-property", f"heron.executor.metrics_port={port - 1}")
        sentence = refused_before_start(
            heron, USAGE, WORD_COUNT, f"port {port} of 127.0.0.1", "container 1", flags=flags
        )
        assert "set heron.executor.metrics_port to free ports or to 0" in sentence
    heron.submit(WORD_COUNT, "wc", *flags)
    ports = {container["container"]: container["metrics_port"] for container in heron.status("wc")["containers"]}
    assert ports == {0: port - 1, 1: port}


def test_full_disk_stops_logging_and_nothing_else(heron: Heron, tmp_path: Path) -> None:
    body = """
    class Loud(Numbers):
        def next_tuple(self):
            self.n += 1
            self.emit([self.n])
            print(self.n, "x" * 2000)
    """
    program = write_program(tmp_path, textwrap.dedent(body) + chain("loud", spout="Loud"))
    from heronpy.cli.cluster.target import unix_user

    folder = heron.home / "topologies" / "local" / unix_user() / "loud" / "log-files"
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1M,mode=0700", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        heron.submit(program)
        heron.when("loud", lambda _: os.statvfs(folder).f_bavail == 0, "the disk being full")
        emitted = heron.status("loud")["components"][2]["executed"]
        heron.when("loud", lambda status: status["components"][2]["executed"] > emitted + 1000, "tuples still flowing")
        # A task that starts while the disk is full starts.
        heron("restart", "local", "loud", "container_1_sink_3").ok()
        status = heron.status("loud")
        assert status["lifecycle"] == "RUNNING"
        ended = {p["name"]: p["exit_reason"] for c in status["containers"] for p in c["processes"] if p["exit_reason"]}
        assert set(ended) <= {"container_1_sink_3"}, ended
        heron.kill("loud")
        heron.check_clean()
    finally:
        if heron.names():
            heron.kill("loud")
        subprocess.run(["umount", folder], check=True)


def test_home_that_cannot_be_written(heron: Heron) -> None:
    (heron.home / "topologies").write_text("a file where a folder should be")
    result = heron("submit", "local", WORD_COUNT, "wc")
    result.refused(FAILED, "topologies")
    heron.check_clean()
