"""The API is typed: mypy --strict accepts every program of the documents, and knows the elements of streamlets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.pages import DOCS, REPO, blocks_of

#: Shows a program as it was written for Apache heronpy, which has no types.
UNTYPED = "migrate_from_heron"

#: What a checker knows of the elements of streamlets.
STREAMLETS = """
import operator
from collections.abc import Iterator
from typing import assert_type

from heronpy.streamlet import Builder, KeyedWindow, Streamlet, Window, WindowConfig


def read() -> Iterator[str]:
    yield "one fish"


window = WindowConfig.create_tumbling_window(10)
lines = Builder().new_source(read)
assert_type(lines, Streamlet[str])
assert_type(Builder().new_source(lambda: 1), Streamlet[int])
assert_type(lines.flat_map(str.split).filter(str.isalpha).repartition(2).clone(2)[0], Streamlet[str])
pairs = lines.map(lambda line: (line, len(line)))
assert_type(pairs, Streamlet[tuple[str, int]])
assert_type(pairs.reduce_by_key_and_window(window, operator.add), Streamlet[tuple[KeyedWindow[str], int]])
assert_type(lines.reduce_by_window(window, operator.add), Streamlet[tuple[Window, str | None]])
lengths = lines.map(lambda line: (line, 0.5))
assert_type(lines.union(pairs), Streamlet[str | tuple[str, int]])
joined = pairs.outer_left_join(lengths, window, lambda left, right: (left, right))
assert_type(joined, Streamlet[tuple[KeyedWindow[str], tuple[int, float | None]]])
"""


def programs(page: Path) -> dict[Path, str]:
    """The files that a page has its reader write; the README has a single one."""
    found: dict[Path, str] = {}
    for block in blocks_of(page):
        name = block.name or ("hello.py" if block.text.startswith("# hello.py") else "")
        if block.language == "python" and name:
            found[Path(name)] = found.get(Path(name), "") + block.text
    return found


def as_package(files: dict[Path, str], package: str) -> dict[Path, str]:
    """The same as modules of one package, because several pages have an `orders.py`."""
    places = {part.removesuffix(".py"): i for file in files for i, part in enumerate(file.parts)}
    prefix = {
        name: ".".join((package, *next(f for f in files if name in f.with_suffix("").parts).parts[:i]))
        for name, i in places.items()
    }
    names = re.compile(rf"^(from|import) ({'|'.join(prefix)})\b", re.MULTILINE)
    return {
        Path(package, file): names.sub(lambda m: f"{m[1]} {prefix[m[2]]}.{m[2]}", text) for file, text in files.items()
    }


def test_the_programs_of_the_documents_are_typed(tmp_path: Path) -> None:
    count = 0
    for page in (REPO / "README.md", *sorted(DOCS.rglob("*.md"))):
        package = page.stem.lower().replace("-", "_")
        for file, text in as_package(programs(page), package).items():
            count += 1
            path = tmp_path / file
            path.parent.mkdir(parents=True, exist_ok=True)
            head = "# mypy: allow-untyped-defs\n" if package == UNTYPED else ""
            path.write_text(head + text, encoding="utf-8")
    assert count > 15
    (tmp_path / "streamlets.py").write_text(STREAMLETS, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--explicit-package-bases", "--cache-dir", ".mypy_cache", str(tmp_path)]
    done = subprocess.run(command, cwd=REPO, env={"MYPYPATH": f"{tmp_path}:{REPO}"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout.replace(f"{tmp_path}/", "") + done.stderr
