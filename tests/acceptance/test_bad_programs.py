"""Topologies and programs that cannot run are refused before anything starts: one sentence that names the thing and the fix."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.support.command import FAILED, NOT_FOUND, TIMED_OUT, USAGE, WORD_COUNT, Heron, refused_before_start
from tests.support.user_programs import chain, write_program


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
            ("topo.py, line 5", "duplicate component name: numbers; give each component its own name"),
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
        ("heron.instance.batch_tuple", "heron.instance.batch_tuples"),
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
        refused_before_start(heron, USAGE, path, evil, "leads out of the package")
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
