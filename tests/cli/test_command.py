"""The command itself: help, completion, usage errors, exit codes, its cost; settings and client defaults."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from heronpy.cli import main
from heronpy.cli.look.logs import parse_since
from heronpy.launching.environment import child_environment
from heronpy.proto import control_pb2
from tests.cli.conftest import FakeTopology, Heron
from tests.support.checkpoints import new_id, write_checkpoint

HELP_CPU_MAX_S = 0.15


def run(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "heronpy.cli", *args],
        env=child_environment(environment),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def loaded_by(*args: str, **environment: str) -> set[str]:
    """The modules that a command imports."""
    code = f"import sys; from heronpy.cli.main import main; main({list(args)!r}); print(*sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(environment), capture_output=True, text=True, check=True
    )
    return set(shown.stdout.split())


def test_help_is_cheap_and_imports_nothing_heavy() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = run("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 0 and "submit" in result.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < HELP_CPU_MAX_S
    assert not {"zmq", "google.protobuf", "rich", "yaml", "asyncio"} & loaded_by("--help")


def test_a_list_of_no_topologies_imports_no_sockets(tmp_path: Path) -> None:
    loaded = loaded_by("list", "local", HERON_HOME=str(tmp_path))
    assert "heronpy.cli.look.topologies" in loaded
    assert not {"zmq", "asyncio", "heronpy.net.rpc"} & loaded


def test_a_submit_to_this_machine_imports_nothing_of_what_it_does_not_use(tmp_path: Path) -> None:
    """Half a second of CPU went into engines, ledgers and `heron top` before the first process was started."""
    program = str(Path(__file__).parents[2] / "topologies" / "word_count.py")
    loaded = loaded_by("submit", "local", program, "Lean", "--dry-run", HERON_HOME=str(tmp_path))
    assert "heronpy.launching.submission" in loaded
    unused = (
        "heronpy.launching.on_",
        "heronpy.ingest.ledger",
        "heronpy.cli.look",
        "heronpy.tracker.ended",
        "pyarrow",
    )
    assert not {name for name in loaded if name.startswith(unused)}


def test_every_verb_has_help(heron: Heron) -> None:
    for section in main.VERBS.values():
        for verb in section:
            result = heron(verb, "--help")
            assert result.code == 0 and result.out.startswith(f"Usage: heron {verb}"), verb
            assert heron("help", verb).out == result.out, verb
    assert "--origin" in heron("help", "config", "show").out
    assert heron("help", "submi").code == 2
    assert heron().out == heron("--help").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("submti",), "did you mean 'submit'?"),
        (("lcoal",), "a verb comes before the cluster, as in 'heron status local'"),
        (("kill", "local"), "missing argument"),
        (("kill", "a/b/c/d", "x"), "is not cluster[/role[/environ]]"),
        (("kill", "local", "../x"), "contains a slash"),
        (("top", "local", "x", "--iteration", "3"), "did you mean"),
        (("plan", "local", "x", "logikal"), "logikal"),
        (("submit", "local"), "missing argument"),
    ],
)
def test_wrong_usage_is_one_sentence(heron: Heron, words: tuple[str, ...], said: str) -> None:
    result = heron(*words)
    assert result.code == 2 and said.lower() in result.err.lower(), result.err
    assert result.err.startswith("error: ") and len(result.err.splitlines()) == 1


def test_our_own_faults_show_a_traceback_only_when_asked(heron: Heron, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heronpy.clusters.records.Records.topologies", lambda self: 1 / 0)
    quiet = heron("list", "local")
    assert quiet.code == 1 and "--verbose" in quiet.err and "Traceback" not in quiet.err
    assert "Traceback" in heron("list", "local", "--verbose").err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(heron: Heron, shell: str) -> None:
    result = heron("completion", shell)
    assert result.code == 0 and "_HERON_COMPLETE" in result.out


def test_completion_answers(wordy: FakeTopology) -> None:
    words = run(_HERON_COMPLETE="bash_complete", COMP_WORDS="heron ki", COMP_CWORD="1")
    assert words.stdout.strip() == "plain,kill"
    names = run(_HERON_COMPLETE="bash_complete", COMP_WORDS="heron kill local wo", COMP_CWORD="3")
    assert names.stdout.strip() == "plain,wordy"


def test_the_list_of_verbs_says_all_that_can_be_restarted(heron: Heron) -> None:
    [line] = [line for line in heron("--help").out.splitlines() if line.split()[:1] == ["restart"]]
    assert line.endswith("Restart a topology, one container, component or task.")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("status", ""), {"local", "wordy"}),
        (("status", "local", ""), {"wordy"}),
        (("kill", ""), {"local"}),
        (("metrics", "local", "wordy", ""), {"word", "count"}),
        (("metrics", "wordy", ""), {"word", "count"}),
        (("metrics", "targets", ""), {"local"}),
        (("exceptions", "wordy", "--task", ""), {"1", "2", "3"}),
        (("metrics", "wordy", "--name", "__execute-c"), {"__execute-count"}),
        (("metrics", "wordy", "--instance", "stm"), {"stmgr-1"}),
        (
            ("restart", "local", "wordy", ""),
            {"0", "1", "word", "count", "container_1_word_1", "container_1_count_2", "container_1_count_3"},
        ),
        (("restart", "local", "wordy", "cou"), {"count"}),
        (("logs", "wordy", ""), {"tmaster", "container_1_count_2", "count"}),
        (("profile", "wordy", "container_1_w"), {"container_1_word_1"}),
        (("update", "local", "wordy", "--component-parallelism", "c"), {"count:"}),
        (("checkpoints", "show", "wordy", ""), {"5", "6"}),
        (("checkpoints", "restore", "local", "wordy", "--checkpoint", ""), {"5", "6"}),
        (("submit", "local", "--restore", ""), {"latest"}),
        (("kill", "local", "wordy", "--config-property", "heron.scheduler.kill_g"), {"heron.scheduler.kill_grace_s="}),
        (("config", "set", "local", "heron.tmaster.exc"), {"heron.tmaster.exceptions_max"}),
        (("config", "show", "local", "stm"), {"stmgr"}),
        (("verify", "run", "--fault", "F01"), {"F01-"}),
        (("metrics", "nowhere/me", "wordy", ""), set()),
    ],
)
def test_completion_knows_more_than_topologies(
    wordy: FakeTopology, home: Path, words: tuple[str, ...], offered: set[str]
) -> None:
    from click.shell_completion import ShellComplete

    log_files = Path(wordy.record.working_dir) / "log-files"
    for name in ("tmaster", "container_1_count_2"):
        (log_files / f"{name}.log").touch()
    for number in (5, 6):
        write_checkpoint(home / "checkpoints" / "local" / new_id("wordy"), number)
    shell = ShellComplete(main.heron, {}, "heron", "_HERON_COMPLETE")
    found = {item.value for item in shell.get_completions(list(words[:-1]), words[-1])}
    if words[0] == "verify":
        assert found and all(name.startswith("F01-") for name in found)
    else:
        assert found == offered


# ---- the cluster may be left out ------------------------------------------------------------


def test_readers_take_the_only_cluster(heron: Heron, wordy: FakeTopology) -> None:
    wordy.answers["get_metrics"] = control_pb2.MetricsReply()
    wordy.answers["get_exceptions"] = control_pb2.ExceptionsReply()
    assert heron("status", "wordy").out == heron("status", "local", "wordy").out
    assert heron("list").out == heron("list", "local").out and "wordy" in heron("list").out
    for words in (("metrics", "wordy", "count"), ("exceptions", "wordy"), ("plan", "wordy", "packing"),
                  ("top", "-n", "1", "wordy"), ("logs", "wordy"), ("dead-letters", "wordy"),
                  ("config", "show", "stmgr"), ("config", "list"), ("status", "--json", "wordy")):  # fmt: skip
        assert heron(*words).code == 0, words
    # What changes something wants to know where.
    for words in (("kill", "wordy"), ("deactivate", "wordy"), ("update", "wordy")):
        assert heron(*words).code == 2, words
    # The only topology is meant where none is named.
    assert heron("status").out == heron("status", "local").out == heron("status", "local", "wordy").out


def test_a_cluster_is_named_where_there_are_several(
    heron: Heron, wordy: FakeTopology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf" / "prod").mkdir(parents=True)
    monkeypatch.setenv("HERON_CONF", str(tmp_path / "conf"))
    result = heron("list")
    assert (result.code, "name a cluster; the clusters are local, prod" in result.err.lower()) == (2, True)
    assert heron("status", "local", "wordy").code == 0
    unclear = heron("status", "wordy")
    assert unclear.code == 2 and "'wordy' is not one of the clusters local, prod" in unclear.err


@pytest.mark.parametrize("words", [("submit", "lcoal", "none.py"), ("status", "lcoal", "wordy"), ("list", "lcoal"),
                                   ("kill", "lcoal", "wordy"), ("metrics", "lcoal", "wordy")])  # fmt: skip
def test_a_misspelt_cluster_is_named(heron: Heron, wordy: FakeTopology, words: tuple[str, ...]) -> None:
    result = heron(*words)
    assert result.code in (2, 3) and "did you mean 'local'?" in result.err and "none.py" not in result.err


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("ps", "'heron list'"),
        ("describe", "'heron status' or 'heron plan'"),
        ("scale", "'heron update --component-parallelism'"),
        ("tail", "'heron logs -f'"),
        ("statsu", "did you mean 'status'?"),
        ("xyzzy", "run 'heron --help'"),
    ],
)
def test_words_of_other_tools_are_understood(heron: Heron, word: str, said: str) -> None:
    for result in (heron(word, "local", "wordy"), heron("help", word)):
        assert result.code == 2 and said in result.err


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "heronpy.cli", "--help"],
        env=child_environment({}),
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert process.stderr == b""


def test_version(heron: Heron) -> None:
    assert heron("--version").out.startswith("heron ")
    assert json.loads(heron("version", "--json").out)["heron"]


def test_config_show(heron: Heron, wordy: FakeTopology) -> None:
    result = heron("config", "show", "local", "stmgr", "--origin")
    assert result.code == 0 and "heron.stmgr.link_window_bytes" in result.out
    shown = json.loads(
        heron("config", "show", "local", "--json", "--config-property", "heron.scheduler.kill_grace_s=1s").out
    )
    assert shown["settings"]["scheduler"]["kill_grace_s"] == 1.0
    assert "config-property" in shown["origins"]["scheduler.kill_grace_s"]
    assert "heron.stmgr" in heron("config", "show", "local", "--topology", "wordy").out
    assert "did you mean 'stmgr'?" in heron("config", "show", "local", "stmg").err


def test_config_show_says_where_the_value_of_a_component_comes_from(heron: Heron, wordy: FakeTopology) -> None:
    origin = "profile thrift of component 'word': somebody waits"
    submitted = replace(
        wordy.launch.submitted,
        component_settings={"word": {"linger_max_us": 10_000.0}},
        origins={**wordy.launch.origins, "instance.linger_max_us@word": origin},
    )
    replace(wordy.launch, submitted=submitted).save(Path(wordy.record.launch_file))
    shown = heron("config", "show", "local", "instance", "--topology", "wordy", "--origin").out
    assert re.search(rf"heron\.instance\.linger_max_us of word +10000\.0 +{re.escape(origin)}", shown)


def test_client_defaults(heron: Heron, wordy: FakeTopology, home: Path) -> None:
    assert "No client defaults" in heron("config", "list", "local").out
    assert heron("config", "set", "local", "heron.scheduler.kill_grace_s", "2s").code == 0
    assert heron("config", "set", "local", "role", "somebody").code == 0
    assert heron("config", "list", "local").out == "heron.scheduler.kill_grace_s = 2s\nrole = somebody\n"
    shown = json.loads(heron("config", "show", "local", "scheduler", "--json").out)
    assert shown["settings"]["scheduler"]["kill_grace_s"] == 2.0
    assert heron("status", "local", "wordy").code == 3  # the default role has no such topology
    assert heron("status", "local/me", "wordy").code == 0
    assert heron("config", "unset", "local", "role").code == 0
    assert heron("status", "local", "wordy").code == 0
    for key, value in (("rol", "x"), ("heron.scheduler.kill_grace", "1"), ("role", "a/b")):
        assert heron("config", "set", "local", key, value).code == 2, key
    assert heron("config", "unset", "local", "role").code == 2


def test_broken_client_file_is_named(heron: Heron, home: Path) -> None:
    path = home.parent / "client" / "local" / "cli.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("a: [", encoding="utf-8")
    result = heron("list", "local")
    assert result.code == 2 and str(path) in result.err


def test_since() -> None:
    assert parse_since("1970-01-01T00:01:00+00:00") == 60.0
    assert parse_since("5m") < parse_since("1m")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("top", "local", "wc", "-n", "abc"), "--iterations must be a whole number of 1 or more, not 'abc'"),
        (("top", "local", "wc", "-n", "0"), "--iterations must be a whole number of 1 or more, not 0"),
        (("top", "local", "wc", "--interval", "0"), "--interval must be a number of 0.1 or more, not 0.0"),
        (("profile", "local", "wc", "x", "--rate", "1.5"), "--rate must be a whole number from 1 to 1000, not '1.5'"),
    ],
)
def test_a_number_that_does_not_fit_names_the_range(heron: Heron, words: tuple[str, ...], said: str) -> None:
    result = heron(*words)
    assert (result.code, result.err) == (2, f"error: {said} (see 'heron help {words[0]}')\n")
