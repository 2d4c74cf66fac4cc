"""Rules of the source that ruff and import-linter do not know."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from tests.docs.test_references import texts
from tests.support.command import REPO


def test_no_room_imports_the_root() -> None:
    """heronpy/__init__.py is the top of the rooms: it gives out functions of the command."""
    rooms = [text for name, text in texts().items() if name.startswith(("heronpy/", "stmgr/", "instance/"))]
    assert not [
        found for text in rooms for found in re.findall(r"^\s*(?:from heronpy import|import heronpy$).*", text, re.M)
    ]


def test_private_names_in_strings_have_a_reason() -> None:
    """As those that ruff sees (SLF001)."""
    ignored = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["per-file-ignores"]
    reasoned = [pattern for pattern, codes in ignored.items() if "SLF001" in codes]
    poke = re.compile(r"""(?:[gs]et|del)attr\([^()]*?,\s*"(?:[\w.]*\.)?_(?!_)""")
    found = {name for name, text in texts().items() if name.startswith("tests/") and poke.search(text)}
    assert "tests/sim/test_sim_mutations.py" in found
    assert [name for name in sorted(found) if not any(fnmatch(name, pattern) for pattern in reasoned)] == []


def test_a_pure_module_that_reads_a_clock_is_found_and_so_is_a_marker_that_nobody_writes(tmp_path: Path) -> None:
    checker = REPO / "scripts" / "check_pure.py"
    (tmp_path / "heronpy").mkdir()
    (tmp_path / "heronpy" / "rule.py").write_text(
        '"""Decides.\nPure.\n\nMore."""\n\n\ndef f():\n    from time import time\n'
    )
    (tmp_path / "heronpy" / "shell.py").write_text('"""Acts.\n\nNot Pure."""\nimport os\n')
    done = subprocess.run([sys.executable, checker, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[:2] == [
        "heronpy/rule.py:8: pure, but imports time",
        "1 pure modules, 1 forbidden imports",
    ]
    assert "fewer than" in done.stdout
    done = subprocess.run([sys.executable, checker], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
