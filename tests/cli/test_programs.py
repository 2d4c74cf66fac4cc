"""Every form of program that `heron submit` takes, by dry runs: what is built, and what is said when nothing is."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from heronpy.cli import exits
from heronpy.cli.submit import package_files
from heronpy.cli.submit.program import understand
from heronpy.common import version
from tests.cli.conftest import Heron
from tests.cli.test_submit import MAIN, TOPOLOGY

CLASSES = """
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.topology import Topology

class Words(Spout):
    outputs = ["word"]

class Count(Bolt):
    pass

class First(Topology):
    word = Words.spec(par=1)
    count = Count.spec(par=2, inputs=[word])

class Second(Topology):
    word = Words.spec(par=3)
    count = Count.spec(par=1, inputs=[word])
"""


def dry(heron: Heron, *words: str) -> dict[str, object]:
    result = heron("submit", "local", *words, "--dry-run", "--dry-run-format", "json")
    assert result.code == 0, result.err
    shown: dict[str, object] = json.loads(result.out)["logical_plan"]
    return shown


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_runs_with_its_arguments(heron: Heron, tmp_path: Path) -> None:
    argv_name = TOPOLOGY + 'import sys\nif __name__ == "__main__":\n    build("_".join(sys.argv[1:]))\n'
    file = write(tmp_path / "topo.py", argv_name)
    assert dry(heron, file, "-", "mine", "--x", "3")["name"] == "mine_--x_3"
    assert dry(heron, file, "mine")["name"] == "mine"


def test_a_name_renames_the_only_topology(heron: Heron, tmp_path: Path) -> None:
    file = write(tmp_path / "topo.py", MAIN)
    shown = dry(heron, file, "other")
    assert shown["name"] == "other" and str(shown["id"]).startswith("other")
    assert dry(heron, file)["name"] == "wordy"


def test_argparse_programs_need_not_know_the_name(heron: Heron, tmp_path: Path) -> None:
    body = TOPOLOGY + (
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--size', type=int)\n"
        "if __name__ == '__main__':\n"
        "    build(f'size{parser.parse_args().size}')\n"
    )
    file = write(tmp_path / "topo.py", body)
    assert dry(heron, file, "-", "--size", "3")["name"] == "size3"
    assert dry(heron, file, "mine", "--size", "3")["name"] == "mine"


def test_topology_classes_of_a_file(heron: Heron, tmp_path: Path) -> None:
    file = write(tmp_path / "topo.py", CLASSES)
    assert dry(heron, file, "Second")["name"] == "Second"
    result = heron("submit", "local", file, "--dry-run")
    assert result.code == 2 and "First, Second" in result.err
    single = write(tmp_path / "single.py", CLASSES.split("class Second")[0])
    assert dry(heron, single)["name"] == "First"
    assert dry(heron, single, "renamed")["name"] == "renamed"
    assert dry(heron, single, "single:First")["name"] == "First"


def test_a_bolts_class_may_have_the_topologys_name(heron: Heron, tmp_path: Path) -> None:
    assert dry(heron, write(tmp_path / "topo.py", MAIN), "Count")["name"] == "Count"


def test_folder_package_and_module(heron: Heron, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "app"
    write(folder / "__main__.py", "from lib.parts import build\nbuild('from_main')\n")
    write(folder / "lib" / "parts.py", TOPOLOGY)
    write(folder / "lib" / "classes.py", CLASSES)
    assert dry(heron, str(folder))["name"] == "from_main"
    assert dry(heron, str(folder), "lib.classes:Second")["name"] == "Second"
    assert dry(heron, str(folder), "lib.classes.Second", "named")["name"] == "named"
    package = tmp_path / "pack"
    write(package / "__init__.py", "")
    write(package / "__main__.py", "from .parts import build\nbuild('relative')\n")
    write(package / "parts.py", TOPOLOGY)
    write(package / "classes.py", CLASSES)
    assert dry(heron, str(package))["name"] == "relative"
    assert dry(heron, str(package), "classes:First")["name"] == "First"
    monkeypatch.chdir(tmp_path)
    assert dry(heron, "pack.classes:First")["name"] == "First"
    (folder / "__main__.py").unlink()
    assert "has no __main__.py" in heron("submit", "local", str(folder)).err


def test_archives_and_pex(heron: Heron, tmp_path: Path) -> None:
    for name in ("topo.zip", "topo.tar.gz", "topo.pex"):
        write(tmp_path / "__main__.py", "import sys\nfrom parts import build\nbuild((sys.argv + ['none'])[1])\n")
        write(tmp_path / "parts.py", TOPOLOGY)
        write(tmp_path / "classes.py", CLASSES)
        path = tmp_path / name
        members = ("__main__.py", "parts.py", "classes.py")
        if name.endswith(".gz"):
            with tarfile.open(path, "w:gz") as tar:
                for member in members:
                    tar.add(tmp_path / member, member)
        else:
            with zipfile.ZipFile(path, "w") as bundle:
                for member in members:
                    bundle.write(tmp_path / member, member)
                if name.endswith(".pex"):
                    bundle.writestr("app.py", "import sys\nfrom dep import build\nbuild('pex_' + sys.argv[1])\n")
                    bundle.writestr(".deps/dep-1.whl/dep.py", TOPOLOGY)
                    bundle.writestr("PEX-INFO", json.dumps({"entry_point": "app"}))
        expected = "pex_mine" if name.endswith(".pex") else "mine"
        assert dry(heron, str(path), "-", "mine")["name"] == expected
        assert dry(heron, str(path), "classes.Second", "named")["name"] == "named"


def test_the_traceback_of_the_user_is_whole_and_only_theirs(heron: Heron, home: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "topo.py", "def f():\n    return 1 / 0\n\n\nprint('hello')\nf()\n")
    result = heron("submit", "local", file)
    assert result.code == 1
    assert "hello" in result.out
    assert f'File "{file}", line 6' in result.err and "ZeroDivisionError: division by zero" in result.err
    assert "load_topology" not in result.err and not home.exists()
    broken = heron("submit", "local", write(tmp_path / "broken.py", "def f(:\n"))
    assert broken.code == 1 and "SyntaxError" in broken.err and "load_topology" not in broken.err


def test_a_program_runs_only_once_the_command_knows_that_it_may_and_reads_no_input(
    heron: Heron, tmp_path: Path
) -> None:
    """Its process starts before the cluster is looked for."""
    ran = tmp_path / "ran"
    text = f"import pathlib, sys\npathlib.Path({str(ran)!r}).write_text(repr(sys.stdin.read()))\nsys.exit(3)\n"
    file = write(tmp_path / "topo.py", text)
    assert heron("submit", "nowhere", file).code == exits.USAGE and not ran.exists()
    assert heron("submit", "local", file).code == exits.FAILED and ran.read_text() == "''"


def test_a_spout_that_would_start_over_after_a_failure_is_named(heron: Heron, tmp_path: Path) -> None:
    """Effectively once is exact from spouts that go back to a checkpoint, and from no others."""
    text = (
        CLASSES
        + """
from heronpy.api.state.stateful_component import StatefulComponent

class Kept(Words, StatefulComponent):
    pass

class Third(Topology):
    config = {"topology.reliability.mode": "MODE"}
    word = Words.spec(par=1)
    kept = Kept.spec(par=1)
    count = Count.spec(par=1, inputs=[word, kept])
"""
    )
    words = ("--dry-run", "--dry-run-format", "json")
    warned = heron(
        "submit", "local", write(tmp_path / "a.py", text.replace("MODE", "EFFECTIVELY_ONCE")), "Third", *words
    )
    assert warned.code == 0 and "spout 'word' is not a StatefulComponent" in warned.err and "'kept'" not in warned.err
    silent = heron("submit", "local", write(tmp_path / "b.py", text.replace("MODE", "ATLEAST_ONCE")), "Third", *words)
    assert silent.code == 0 and "StatefulComponent" not in silent.err


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (
            "def proces(self, tup): pass",
            "bolt 'count': class Typed has no method 'process'; rename its method 'proces'",
        ),
        ("def processed(self, tup): self.process = self.processed", ""),
        ("def process_batch(self, batch): pass\n\n    def proces(self): pass", ""),
        ("def initialize(self, config, context): pass", ""),
    ],
)
def test_a_mistyped_method_is_named(heron: Heron, tmp_path: Path, body: str, refused: str) -> None:
    """The task restarted at each tuple, and only its log said why."""
    text = f"""{CLASSES}
class Typed(Bolt):
    {body}

class Third(Topology):
    word = Words.spec(par=1)
    count = Typed.spec(par=1, inputs=[word])
"""
    words = ("--dry-run", "--dry-run-format", "json")
    result = heron("submit", "local", write(tmp_path / "a.py", text), "Third", *words)
    assert result.code == (exits.USAGE if refused else 0) and refused in result.err


def test_a_job_gets_no_maximum_for_a_component_whose_state_belongs_to_single_tasks(
    heron: Heron, tmp_path: Path
) -> None:
    text = (
        CLASSES
        + """
from heronpy.api.state.stateful_component import StatefulComponent

class Kept(Words, StatefulComponent):
    def init_state(self, stateful_state):
        self.state = stateful_state

class Free(Words, StatefulComponent):
    def init_state(self, stateful_state):
        pass

class Third(Topology):
    config = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}
    free = Free.spec(par=1)
    kept = Kept.spec(par=2)
    count = Count.spec(par=1, inputs=[free, kept])
"""
    )
    program = write(tmp_path / "a.py", text)
    refused = heron(
        "job", "create", "local", program, "Third", "--max", "free=3", "--max", "count=8", "--max", "kept=3"
    )
    assert refused.code == exits.USAGE
    said = "error: job 'Third' cannot have scale.max.kept=3: the State of kept belongs to individual tasks"
    assert said in refused.err and "'free'" not in refused.err
    assert "there are no jobs" in heron("job", "list", "local").out


def test_programs_that_yield_nothing_usable(heron: Heron, tmp_path: Path) -> None:
    empty = heron("submit", "local", write(tmp_path / "empty.py", "x = 1\n"))
    assert empty.code == 2 and "builds no topology" in empty.err
    leaving = heron("submit", "local", write(tmp_path / "leaving.py", "import sys\nsys.exit('no input')\n"))
    assert leaving.code == 1 and "no input" in leaving.err
    slow = heron("submit", "local", write(tmp_path / "slow.py", "import time\ntime.sleep(60)\n"), "--timeout", "0.5")
    assert slow.code == 5
    missing = heron("submit", "local", str(tmp_path / "empt.py"))
    assert missing.code == 2 and "did you mean 'empty.py'?" in missing.err
    assert heron("submit", "local", write(tmp_path / "data.txt", "")).code == 2
    assert heron("submit", "local", str(tmp_path / "empty.py"), "a/b").code == 2


def test_options_of_the_program_come_after_it(tmp_path: Path, heron: Heron) -> None:
    result = heron("submit", "local", "--deploy-deactivatd", write(tmp_path / "topo.py", MAIN))
    assert result.code == 2 and "did you mean '--deploy-deactivated'?" in result.err


def test_only_needed_files_are_shipped(tmp_path: Path) -> None:
    root = tmp_path / "src"
    write(root / "topo.py", "import near\ndef f():\n    import lazy\n")
    for name in ("near.py", "lazy.py", "unused.py", "pack/inner.py", "pack/data.txt"):
        write(root / name, "import pack\n" if name == "lazy.py" else "")
    write(root / "pack" / "__init__.py", "")
    package_files.copy_needed(root, [root / "topo.py"], tmp_path / "out")
    shipped = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*"))
    assert shipped == ["lazy.py", "near.py", "pack/__init__.py", "pack/data.txt", "pack/inner.py", "topo.py"]


def test_heronpy_below_the_programs_folder_is_not_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source tree of heronpy, installed in place, may be in a folder next to the program."""
    write(tmp_path / "topo.py", "import heronpy\n")
    ours = tmp_path / "checkout" / "heronpy" / "__init__.py"
    write(ours, "")
    write(tmp_path / "checkout" / "instance" / "task.py", "")
    monkeypatch.setattr(version, "FILE", str(ours.parent / "common" / "version.py"))
    loaded = [tmp_path / "topo.py", ours, tmp_path / "checkout" / "instance" / "task.py"]
    package_files.copy_needed(tmp_path, loaded, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["topo.py"]


def test_words_that_fit_nothing(tmp_path: Path) -> None:
    with pytest.raises(exits.Failure, match="neither in the current folder nor on PYTHONPATH"):
        understand("no_such_module_anywhere:Class", (), tmp_path)
