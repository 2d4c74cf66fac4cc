"""Compares the lines of each room with the room's limit, and lists small modules that have only one importer.

    python scripts/rooms.py

`make check` runs it. The limits are in rooms.toml in the same folder. CONTRIBUTING.md says when a limit may be raised.
Exit status 1 if a room, or the sum of a wing, is above its limit, or a room has no limit.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("heronpy", "instance", "stmgr")
#: A module with fewer lines than this and only one importer is listed.
SMALL_LINES = 60


def modules() -> dict[str, Path]:
    """Return the product modules by dotted name, without generated code."""
    found = {}
    for top in PRODUCT:
        for path in sorted((ROOT / top).rglob("*.py")):
            if not path.name.endswith("_pb2.py"):
                found[".".join(path.relative_to(ROOT).with_suffix("").parts)] = path
    return found


def room_of(path: Path) -> str:
    """`heronpy/tmaster/x.py` belongs to room `tmaster`, `tests/sim/x.py` to `tests`, `stmgr/x.py` to `stmgr`."""
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "heronpy" and len(parts) > 2 else parts[0]


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def importers(known: dict[str, Path]) -> dict[str, set[str]]:
    """Return the importers of each product module, including imports inside functions."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in known.items():
        package = name.removesuffix(".__init__") if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
            else:
                continue
            for one in names:
                if one in known and one != name:
                    found[one].add(name)
    return found


def main() -> int:
    limits = tomllib.loads((ROOT / "scripts/rooms.toml").read_text(encoding="utf-8"))
    known = modules()
    rooms: dict[str, int] = defaultdict(int)
    for path in known.values():
        rooms[room_of(path)] += lines_of(path)
    wrong = []
    total = 0
    for wing, limit_of in limits["wings"].items():
        lines = sum(rooms.get(room, 0) for room in limit_of)
        print(f"{wing:<12} {lines:>7,} lines")
        for room, limit in limit_of.items():
            there = rooms.pop(room, 0)
            total += there
            mark = ""
            if there > limit:
                mark = "  too many"
                wrong.append(f"room {room} has {there:,} lines; its limit is {limit:,}")
            print(f"  {room:<10} {there:>7,} of {limit:>7,}{mark}")
    wrong += [f"room {room} has no limit in scripts/rooms.toml" for room in rooms]
    tests = sum(lines_of(path) for path in (ROOT / "tests").rglob("*.py"))
    for what, there, limit in (("product", total, limits["product"]), ("tests", tests, limits["tests"])):
        print(f"{what:<12} {there:>7,} of {limit:>7,}")
        if there > limit:
            wrong.append(f"{what} has {there:,} lines; its limit is {limit:,}")
    small = sorted(
        (name, next(iter(users)))
        for name, users in importers(known).items()
        if len(users) == 1 and lines_of(known[name]) < SMALL_LINES and not name.endswith(("__init__", "__main__"))
    )
    print(
        f"{len(small)} modules below {SMALL_LINES} lines have one importer"
        + (":" if "-v" in sys.argv else " (-v: which)")
    )
    if "-v" in sys.argv:
        print("\n".join(f"  {name} <- {user}" for name, user in small))
    for text in wrong:
        print(f"rooms: {text}; see CONTRIBUTING.md", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
