"""Python code for Spark's workers on other hosts: the user's package as one file, and a first task that checks it."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from heronpy.spark.driver import SparkStartError

#: Number of tasks of the check; a cluster may run them on as many hosts.
LOOKS = 8
#: Maximum number of modules of a package that are checked.
MODULES_MAX = 50
_HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
#: Pattern of the line with the cause in Spark's output.
_TELLING = re.compile(r"\[[A-Z][A-Z_.]+\]|Cannot run program|ModuleNotFoundError|No module named")
_TEXT_MAX = 250


def pack(package_dir: str, target: Path) -> None:
    """Write the modules of a package, and the dependencies of a pex, to a zip file that Python can import from."""
    root = Path(package_dir)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for base in (root, *sorted(path for path in (root / ".deps").glob("*") if path.is_dir())):
            for folder, names, files in os.walk(base):
                names[:] = [name for name in names if name != "__pycache__" and not name.startswith(".")]
                for name in files:
                    path = Path(folder, name)
                    inside = path.relative_to(base).as_posix()
                    if not name.startswith(".") and inside not in archive.NameToInfo:
                        archive.write(path, inside)


def modules_in(package_dir: str) -> list[str]:
    """Return the top-level modules of a package, at most MODULES_MAX."""

    def names() -> Iterator[str]:
        for entry in sorted(os.scandir(package_dir), key=lambda entry: entry.name):
            if entry.name.endswith(".py") and entry.name[:-3].isidentifier() and entry.name != "__main__.py":
                yield entry.name[:-3]
            elif entry.is_dir() and os.path.isfile(os.path.join(entry.path, "__init__.py")):
                yield entry.name

    return list(names())[:MODULES_MAX]


def check(session: Any, master: str, modules: list[str], fix: str) -> None:
    """Run a task that checks the workers' Python. Raises SparkStartError if their Python is not suitable.

    `fix`: the instruction for setting another Python.
    """
    from pyspark.sql.functions import udf

    look = udf(_look(modules), "string", useArrow=False)
    try:
        answers = session.range(0, LOOKS, 1, LOOKS).select(look("id")).collect()
    except Exception as error:
        raise SparkStartError(
            f"the workers of {master} cannot run Python {_HERE} for this topology ({telling(error)}); install it on the"
            f" workers, and {fix}"
        ) from error
    for version, _, missing in sorted({row[0].partition(" ") for row in answers}):
        if version != _HERE:
            raise SparkStartError(
                f"the workers of {master} run Python {version} but this topology uses {_HERE}; install that Python"
                f" there, and {fix}"
            )
        if missing:
            raise SparkStartError(
                f"the workers of {master} cannot find {missing} of the topology's package; import these modules only"
                " from the package, or install them on the workers"
            )


def _look(modules: list[str]) -> Callable[[int], str]:
    """Return a function that runs on workers. The function is sent by value, because workers may lack heronpy."""

    def look(number: int) -> str:
        import importlib.util
        import sys

        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        return f"{sys.version_info.major}.{sys.version_info.minor} {', '.join(missing)}"

    return look


def telling(error: BaseException) -> str:
    """Return the most informative line of a Spark exception."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    found = (line[match.start() :] for line in lines if (match := _TELLING.search(line)))
    return next(found, lines[0])[:_TEXT_MAX]
