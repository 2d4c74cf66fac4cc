"""Text of others in logs and on the terminal, names as paths, and what the source may not hold."""

from __future__ import annotations

import ast
import functools
import json
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.ids import name_problem
from tests.security.evil import EVIL, TERMINAL, program
from tests.support.command import REPO, Heron

# ---- names -----------------------------------------------------------------------------------------


@given(st.text(alphabet=string.printable + "\0\u2028\u202e\u2215\uff0e/\\.%", max_size=40))
def test_a_name_that_is_taken_is_one_plain_path_segment(name: str) -> None:
    if name_problem(name) is None:
        assert "/" not in name and "\\" not in name and "\0" not in name and ".." not in name and name not in ("", ".")
        assert Path("/base", name).resolve().parent == Path("/base")
        assert not TERMINAL.search(name) and "\n" not in name


@pytest.mark.parametrize("verb", ["logs", "kill", "status", "dead-letters", "checkpoints list"])
def test_a_name_leads_nowhere(heron: Heron, verb: str) -> None:
    """Each verb refuses it, or knows no such topology; nothing outside is read, made or removed."""
    outside = heron.home.parent / "x"
    (outside / "log-files").mkdir(parents=True)
    (outside / "log-files" / "tmaster.log").write_text("private\n")
    words = verb.split()
    for name in [
        "../../../../x",
        "../../../x",
        "/" + "x",
        "..%2fx",
        f"../{'../' * 8}{str(outside)[1:]}",
        "\x1b[31mx\u2028",
    ]:
        result = heron(*words, "local", name)
        assert result.code in (2, 3), result
        assert "private" not in result.out and not TERMINAL.search(result.out + result.err), result
    assert (outside / "log-files" / "tmaster.log").read_text() == "private\n"
    assert sorted(path.name for path in outside.iterdir()) == ["log-files"]


@pytest.mark.parametrize("where", ["topology", "component"])
@pytest.mark.parametrize("name", ["../x", "a/b", "x\u2028y", "x\x1b[2Jy", "..", "x\ny"])
def test_a_program_cannot_choose_such_a_name(heron: Heron, where: str, name: str) -> None:
    path = program(heron.home.parent, **{where: name})
    result = heron("submit", "local", path)
    assert result.code == 2, result
    assert not TERMINAL.search(result.out + result.err), result
    assert not (heron.home / "topologies").exists()
    heron.check_clean()


# ---- text ------------------------------------------------------------------------------------------


def test_text_of_users_acts_on_no_terminal_and_forges_no_record(heron: Heron) -> None:
    """In prints, log calls, exceptions, dead letters and metrics: on disk and in every verb that shows them."""
    heron.submit(program(heron.home.parent), "--config-property", "heron.instance.poison_tries=1")
    heron.when_state("wordy", "FINISHED")
    heron.when_logged("wordy", "the last word")
    for path in heron.log_dir("wordy").iterdir():
        data = path.read_bytes().decode()
        assert not TERMINAL.search(data), path
        forged = [line for line in data.split("\n") if line.startswith("2026-01-01")]
        assert not forged, forged
    text = heron.log_text("wordy")
    assert "forged" in text and "\\r" in text and "\\x1b[31m" in text and "\\u2028" in text
    for verb in ("logs", "exceptions", "dead-letters", "status", "metrics", "get-metrics"):
        for more in ((), ("--json",)):
            result = heron(verb, "local", "wordy", *more)
            assert not TERMINAL.search(result.out + result.err), result
            if more and result.code == 0:
                for line in [result.out] if result.out[:1] in "[{" and verb != "logs" else result.out.splitlines():
                    json.loads(line)
    assert "forged" in heron("dead-letters", "local", "wordy").out
    heron.kill("wordy")


def test_an_exception_while_the_program_is_read_acts_on_no_terminal(heron: Heron) -> None:
    path = heron.home.parent / "raises.py"
    path.write_text(f"raise ValueError({EVIL!r})\n")
    result = heron("submit", "local", path)
    assert result.code != 0 and "forged" in result.err
    assert not TERMINAL.search(result.out + result.err), result


# ---- the source -------------------------------------------------------------------------------

#: Where a pickle is read, and why that is the submitter's own: values and state of the topology's own tasks,
#: its code and configuration, what the simulator wrote itself, a benchmark's own pipe.
UNPICKLES = {
    "heronpy/api/cloudpickle.py",
    "heronpy/api/config_values.py",
    "heronpy/api/serializer.py",
    "heronpy/connectors/spark/options.py",
    "heronpy/plan/component_config.py",
    "heronpy/simulator/tasks.py",
    "heronpy/wire/codec.py",
    "heronpy/task/user_code.py",
    "scripts/peers/pipe_count.py",
    "scripts/peers/pipe_rate.py",
}
LOADS = re.compile(r"(?:pickle|dill|marshal|shelve|joblib)\.(?:loads?|Unpickler|open)$|^Unpickler$")
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "commands.getoutput"}


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


@functools.cache
def texts() -> dict[str, str]:
    folders = ("heronpy", "stmgr", "instance", "scripts", "topologies")
    files = [path for folder in folders for path in sorted((REPO / folder).rglob("*.py"))]
    return {str(path.relative_to(REPO)): path.read_text(encoding="utf-8") for path in files}


def sources(words: str) -> dict[str, ast.AST]:
    """The files in whose text there is one of the words: to parse all of them takes twenty seconds."""
    return {file: ast.parse(text) for file, text in texts().items() if re.search(words, text)}


def test_nothing_goes_through_a_shell() -> None:
    found = [
        f"{file}:{call.lineno} {name}"
        for file, tree in sources(r"\b(system|popen|getoutput|getstatusoutput|shell)\b").items()
        for name, call in calls(tree)
        if name in SHELLS or any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in call.keywords)
    ]
    assert not found, found


def test_pickles_are_read_where_they_are_the_submitters_own_only() -> None:
    """And nobody imports `loads` bare, which would hide it."""
    read = sources("pickle|dill|marshal|shelve|joblib|Unpickler")
    found = {file for file, tree in read.items() for name, _ in calls(tree) if LOADS.search(name)}
    for file, tree in read.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in ("pickle", "cloudpickle", "dill", "marshal"):
                if any(alias.name in ("load", "loads", "Unpickler", "*") for alias in node.names):
                    found.add(file)
    assert found <= UNPICKLES, sorted(found - UNPICKLES)
    assert {"heronpy/wire/codec.py", "heronpy/plan/component_config.py"} <= found


def test_yaml_is_read_safely() -> None:
    found = [
        f"{file}:{call.lineno}"
        for file, tree in sources(r"\byaml\b").items()
        for name, call in calls(tree)
        if name in ("yaml.load", "yaml.unsafe_load", "yaml.full_load")
        and not any("Safe" in ast.unparse(k.value) for k in call.keywords)
    ]
    assert not found, found
