"""The program passed to `heron submit`: a file, folder, archive or module, and how to run it.

`understand()` turns the command's words into a Program without running any user code. A Program holds the path of its
files, the file that runs as `__main__` or the class to import, and the topology's name. Archives are unpacked only
below the given temporary folder.

The word after the program:
  -                 run the program; all further words are its arguments, nothing is renamed
  module:Class      import that Topology subclass (or module.Class, also in archives and folders)
  Class             a Topology subclass that the file defines: use that class
  any other name    the topology's name; the program also gets it as its first argument
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from heronpy.cli import exits
from heronpy.common.folders import absolute
from heronpy.common.ids import topology_name_problem
from heronpy.common.nearest import suggestion
from heronpy.storage.packages import PackageStore

ARCHIVES = (".zip", ".pex", ".pyz", ".tar.gz", ".tgz", ".tar")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_COLON = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class Program(Struct, frozen=True):
    """How to run what the user submitted."""

    shown: str
    """The program, as the user wrote it."""
    root: Path
    """Folder to put on sys.path."""
    kind: str
    """file: run `source` as __main__; module: run a module; class: import module and class."""
    source: Path | None = None
    module: str = ""
    class_name: str = ""
    name: str | None = None
    """Name for the topology, when the user gave one."""
    args: tuple[str, ...] = ()
    needs_whole_root: bool = True
    """Whether tasks get the whole root instead of only the files that the program imports."""
    archive: Path | None = None
    """The archive from which the root was unpacked."""

    @property
    def name_argument(self) -> bool:
        return self.name is not None and self.args[:1] == (self.name,)


def understand(word: str, rest: tuple[str, ...], scratch: Path) -> Program:
    """Return the Program for `heron submit cluster WORD REST...`."""
    path = absolute(word)
    if path.is_dir():
        return _folder(word, path, rest)
    if path.is_file():
        # As in Python, a script imports from the folder of the file itself, not from the folder of a link to it.
        path = path.resolve() if path.is_symlink() else path
        if path.name.endswith(ARCHIVES):
            return _archive(word, path, rest, scratch)
        if path.suffix == ".py":
            return _file(word, path, rest)
        raise exits.Failure(
            f"{word} is neither a .py file, a folder nor one of {', '.join(ARCHIVES)}; rename or repack it", exits.USAGE
        )
    if _COLON.fullmatch(word):
        return _module(word, rest)
    folder = path.parent if path.parent.is_dir() else Path(".")
    near = suggestion(path.name, [entry.name for entry in folder.iterdir()])
    raise exits.Failure(f"there is no file or folder {word}{near}", exits.USAGE)


def _file(word: str, path: Path, rest: tuple[str, ...]) -> Program:
    program = Program(word, path.parent, "file", source=path, needs_whole_root=False)
    if rest[:1] and rest[0] in _topology_classes(path):
        return replace(program, class_name=rest[0], args=rest[1:])
    for separator in (":", "."):
        module, found, cls = rest[0].partition(separator) if rest else ("", "", "")
        if module == path.stem and cls in _topology_classes(path):
            return replace(program, class_name=cls, args=rest[1:])
        if module == path.stem and found == ":":
            classes = sorted(_topology_classes(path))
            has = f"it defines {', '.join(classes)}" if classes else "subclass heronpy.api.topology.Topology in it"
            raise exits.Failure(f"{word} has no topology class '{cls}'; {has}", exits.USAGE)
    return _named(program, rest)


def _named(program: Program, rest: tuple[str, ...]) -> Program:
    """Apply the rules for '-' and for a topology's name."""
    if not rest or rest[0].startswith("-"):
        return replace(program, args=rest[1:] if rest[:1] == ("-",) else rest)
    problem = topology_name_problem(rest[0])
    if problem:
        raise exits.Failure(
            f"topology name '{rest[0]}' {problem};"
            f" to pass arguments without a name write '{program.shown} - {rest[0]}'",
            exits.USAGE,
        )
    return replace(program, name=rest[0], args=rest)


def _topology_classes(path: Path) -> set[str]:
    """Return the names of the file's classes that derive from a class whose name ends in Topology.

    A bolt's class may have the name that is meant for the topology, so other classes do not count.
    Returns an empty set if the file does not parse; the error is reported when the file is run.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return set()
    bases: dict[str, list[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            bases[node.name] = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    found: set[str] = set()
    for name, parents in bases.items():
        if any(parent in found or (parent not in bases and parent.endswith("Topology")) for parent in parents):
            found.add(name)
    return found


def _class_spec(rest: tuple[str, ...]) -> tuple[str, str] | None:
    """Split 'module:Class' or 'module.Class' into module and class; None for any other word."""
    if not rest:
        return None
    if _COLON.fullmatch(rest[0]):
        module, _, cls = rest[0].partition(":")
        return module, cls
    if _DOTTED.fullmatch(rest[0]):
        module, _, cls = rest[0].rpartition(".")
        return module, cls
    return None


def _with_class(program: Program, module: str, cls: str, rest: tuple[str, ...]) -> Program:
    """Return the program with the named class; the word after the class may be the topology's name."""
    name = rest[0] if rest and not rest[0].startswith("-") else None
    problem = topology_name_problem(name) if name is not None else None
    if problem:
        raise exits.Failure(f"topology name '{name}' {problem}; choose another name", exits.USAGE)
    return replace(program, kind="class", module=module, class_name=cls, name=name, args=rest)


def _folder(word: str, root: Path, rest: tuple[str, ...]) -> Program:
    if (root / "__init__.py").is_file():
        return _package(word, root, rest)
    return _tree(Program(word, root, "file", source=root / "__main__.py"), rest)


def _package(word: str, folder: Path, rest: tuple[str, ...]) -> Program:
    """Return the Program for a folder that is a Python package, which is imported by name, as with `python -m`."""
    program = Program(word, folder.parent, "module", module=folder.name, needs_whole_root=False)
    spec = _class_spec(rest)
    if spec is not None:
        module, cls = spec
        inside = module if module.partition(".")[0] == folder.name else f"{folder.name}.{module}"
        return _with_class(program, inside, cls, rest[1:])
    if not (folder / "__main__.py").is_file():
        raise _no_main(word)
    return _named(program, rest)


def _tree(program: Program, rest: tuple[str, ...]) -> Program:
    """Complete the Program for a folder of modules, which has a __main__.py or a named class."""
    spec = _class_spec(rest)
    if spec is not None:
        return _with_class(program, *spec, rest[1:])
    main = program.root / "__main__.py"
    if not main.is_file():
        raise _no_main(program.shown)
    if rest and rest[0] in _topology_classes(main):
        return replace(program, class_name=rest[0], args=rest[1:])
    return _named(program, rest)


def _no_main(word: str) -> exits.Failure:
    return exits.Failure(
        f"{word} has no __main__.py; add that file, or name the topology with module:Class after {word}", exits.USAGE
    )


def _archive(word: str, path: Path, rest: tuple[str, ...], scratch: Path) -> Program:
    """Unpack an archive and return its Program; the entry point of a .pex replaces its bootstrap."""
    root = Path(PackageStore(scratch / "unpacked").add(path).dir)
    info = root / "PEX-INFO"
    program = Program(word, root, "file", source=root / "__main__.py", archive=path)
    if not info.is_file():
        return _tree(program, rest)
    try:
        entry = json.loads(info.read_text(encoding="utf-8")).get("entry_point")
    except (ValueError, AttributeError):
        raise exits.Failure(f"{word} has a broken PEX-INFO; build the .pex again", exits.USAGE) from None
    spec = _class_spec(rest)
    if spec is not None:
        return _with_class(program, *spec, rest[1:])
    if not entry:
        raise exits.Failure(f"{word} has no entry point; name the topology with module.Class after it", exits.USAGE)
    module, _, function = str(entry).partition(":")
    return _named(replace(program, kind="module", module=module, class_name=function), rest)


def _module(word: str, rest: tuple[str, ...]) -> Program:
    """Return the Program for `package.module:Class`, found on PYTHONPATH or below the current folder."""
    module, _, cls = word.partition(":")
    top = module.partition(".")[0]
    search = [os.getcwd(), *(path for path in sys.path if path)]
    for folder in dict.fromkeys(absolute(path) for path in search):
        candidate = folder / top
        if candidate.is_dir() or candidate.with_suffix(".py").is_file():
            program = Program(word, folder, "class", needs_whole_root=False)
            return _with_class(program, module, cls, rest)
    raise exits.Failure(
        f"module {top} is neither in the current folder nor on PYTHONPATH; cd to its folder or name a file", exits.USAGE
    )
