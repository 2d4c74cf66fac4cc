"""Finds the files that a plain program needs on other hosts: the program, and its imports from its own folder.

The files are found from the modules that the program loaded, and from the import statements in these modules, because
an import inside a function has not been executed yet. A package is copied as a whole, with its data files.
Nothing outside the program's folder is copied.
"""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from heronpy.common import version
from heronpy.common.folders import make_folders

_SKIPPED = shutil.ignore_patterns("__pycache__", "*.pyc", ".git", ".hg", ".venv", ".mypy_cache", ".pytest_cache")


def copy_needed(root: Path, loaded: Iterable[Path], destination: Path) -> None:
    """Copy the loaded files below root, and the files below root that they import, to the destination."""
    waiting = [path for path in loaded if path.is_relative_to(root) and not is_installed(root, path)]
    done: set[Path] = set()
    while waiting:
        top = root / waiting.pop().relative_to(root).parts[0]
        if top in done:
            continue
        done.add(top)
        if top.is_dir():
            shutil.copytree(top, destination / top.name, ignore=_SKIPPED, dirs_exist_ok=True)
            sources = [path for path in top.rglob("*.py") if "__pycache__" not in path.parts]
        else:
            make_folders(destination)
            shutil.copy2(top, destination / top.name)
            sources = [top] if top.suffix == ".py" else []
        for source in sources:
            waiting.extend(_imported(root, source))


def is_installed(root: Path, path: Path) -> bool:
    """Whether a file belongs to the interpreter, a virtual environment or heronpy, and so is not copied."""
    ours = Path(version.FILE).parents[2]
    return (
        bool({"site-packages", "dist-packages"} & set(path.parts))
        or (Path(sys.prefix) != root and path.is_relative_to(sys.prefix) and Path(sys.prefix).is_relative_to(root))
        # heronpy's source tree, installed in place below the program's folder.
        or (path.is_relative_to(ours) and path.relative_to(ours).parts[0] in ("heronpy", "stmgr", "instance"))
    )


def _imported(root: Path, source: Path) -> list[Path]:
    """Return the files of modules and packages next to the program that this source file imports."""
    try:
        tree = ast.parse(source.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return []
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    found = []
    for name in sorted(names):
        for candidate in (root / f"{name}.py", root / name / "__init__.py"):
            if candidate.is_file() and not is_installed(root, candidate):
                found.append(candidate)
    return found
