#!/usr/bin/env python3
"""Checks that pure modules import no clock, socket, randomness, thread or log.

python scripts/check_pure.py [ROOT]    exit code 1 if a pure module imports one of FORBIDDEN

A module is pure if the first paragraph of its docstring ends in "Pure.".
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FORBIDDEN = {"asyncio", "logging", "multiprocessing", "os", "random", "secrets", "select", "selectors", "socket"}
FORBIDDEN |= {"subprocess", "threading", "time", "zmq"}
#: Functions of `os` that parse a wait status; they depend only on their argument.
ALLOWED = {"heronpy/procs/exit_reason.py": {"os"}, "heronpy/procs/supervisor.py": {"os"}}
#: Minimum number of pure modules; a lower number means that the marker was not found.
FEWEST = 200


def is_pure(module: ast.Module) -> bool:
    """Whether a module's docstring marks it as pure."""
    return (ast.get_docstring(module) or "").partition("\n\n")[0].endswith("Pure.")


def imported(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the first name of each import, including imports inside functions."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]


def main(root: Path) -> int:
    pure = 0
    problems = []
    for room in ("heronpy", "instance", "stmgr"):
        for path in sorted((root / room).rglob("*.py")):
            module = ast.parse(path.read_text(encoding="utf-8"))
            if not is_pure(module):
                continue
            pure += 1
            name = path.relative_to(root).as_posix()
            forbidden = FORBIDDEN - ALLOWED.get(name, set())
            problems += [
                f"{name}:{line}: pure, but imports {what}" for line, what in imported(module) if what in forbidden
            ]
    print(*problems, f"{pure} pure modules, {len(problems)} forbidden imports", sep="\n")
    if pure < FEWEST:
        print(f"fewer than {FEWEST} pure modules; check that their docstrings still contain the marker")
    return 1 if problems or pure < FEWEST else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]))
