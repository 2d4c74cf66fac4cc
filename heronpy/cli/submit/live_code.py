"""Packages a topology whose classes are defined in this process: a notebook, a script, a Python prompt.

Tasks are separate processes and need the classes too. Classes of imported modules are sent as files, as with
`heron submit`. Classes of a script that runs as `__main__` are sent with the script. Classes that are defined in a
notebook have no file, so they are pickled by value with cloudpickle, with everything that they refer to.
"""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from heronpy.cli.submit import package_files
from heronpy.common.errors import PackageError, TopologyError
from heronpy.launching.model import Loaded
from heronpy.proto import components_of, topology_pb2

#: Names that no user module can have.
SESSION_FILE = "heron_session_main.py"
_VALUES_FILE = "heron_session_main.pickle"
_SESSION_SOURCE = f'''\
"""Definitions of the session that submitted this topology; tasks load this file as `__main__`."""

import os
import pickle

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "{_VALUES_FILE}"), "rb") as _file:
    globals().update(pickle.load(_file))
'''
_BY_NAME = re.compile(rb"__main__\b")


def package_of(topology: topology_pb2.Topology, folder: Path) -> Loaded:
    """Return the topology with the files that its tasks need; the files are written below the empty `folder`."""
    paths = [part.comp.class_name for part in components_of(topology).values()]
    for path in paths:
        if "<locals>" in path:
            raise TopologyError(
                f"class {path} is defined inside a function, where no task can find it; move it to the top level"
            )
    roots = _roots({path.rpartition(".")[0] for path in paths if not path.startswith("__main__.")})
    main_file, source = None, ""
    if _BY_NAME.search(topology.SerializeToString()):
        script = _script()
        if script is not None:
            roots.setdefault(script.parent, []).append(script)
            main_file, source = script.name, str(script.parent)
        else:
            wanted = {path.split(".")[1] for path in paths if path.startswith("__main__.")}
            _write_session(wanted, topology.SerializeToString(), folder)
            main_file = SESSION_FILE
            roots.setdefault(Path.cwd(), [])
    for root, files in roots.items():
        _copy(root, [*files, *_loaded_from(root)], folder)
    if not source and len(roots) == 1:
        source = str(next(iter(roots)))
    return Loaded(topology, folder if folder.is_dir() else None, main_file, source)


def _roots(modules: set[str]) -> dict[Path, list[Path]]:
    """Return the folders from which these modules were imported; installed modules are left out."""
    roots: dict[Path, list[Path]] = {}
    for name in sorted(modules):
        # The name of a nested class begins with the name of the outer class.
        while name and name not in sys.modules:
            name = name.rpartition(".")[0]
        module = sys.modules.get(name)
        root = _root_of(module) if module is not None else None
        if root is not None and not package_files.is_installed(root, Path(str(module and module.__file__))):
            roots.setdefault(root, [])
    return roots


def _root_of(module: ModuleType) -> Path | None:
    """Return the folder of sys.path that contains a module; None for a module without a file."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    path, depth = Path(os.path.abspath(file)), module.__name__.count(".")
    return path.parents[depth + 1 if path.name == "__init__.py" and len(path.parents) > depth + 1 else depth]


def _loaded_from(root: Path) -> list[Path]:
    """Return the files of the modules that were imported from a folder."""
    modules = [module for name, module in list(sys.modules.items()) if name not in ("__main__", "__mp_main__")]
    return [Path(os.path.abspath(str(module.__file__))) for module in modules if _root_of(module) == root]


def _copy(root: Path, files: list[Path], folder: Path) -> None:
    """Copy files of one root; raises PackageError when another root had a file of the same name."""
    before = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    tops = {path.relative_to(root).parts[0] for path in files if not package_files.is_installed(root, path)}
    twice = sorted(tops & before)
    if twice:
        raise PackageError(f"'{twice[0]}' of {root} is also in another folder of this topology's code; rename one")
    package_files.copy_needed(root, files, folder)


def _script() -> Path | None:
    """Return the file that runs as `__main__`; None in a notebook or at a prompt."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    path = Path(os.path.abspath(file)) if isinstance(file, str) else None
    return path if path is not None and path.suffix == ".py" and path.is_file() else None


class _Recorder(cloudpickle.Pickler):  # type: ignore[misc]
    """A pickler that records the classes and functions of `__main__` that it has pickled."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.met: dict[str, Any] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType) and obj.__module__ == "__main__" and obj.__qualname__.isidentifier():
            self.met[obj.__qualname__] = obj
        return super().reducer_override(obj)


def _write_session(wanted: set[str], definition: bytes, folder: Path) -> None:
    """Write the file that tasks load as `__main__`, and the pickled values that it defines."""
    main = vars(sys.modules["__main__"])
    missing = sorted(wanted - main.keys())
    if missing:
        raise TopologyError(f"__main__ no longer has the class {missing[0]!r}; define it, or build the topology again")
    # Pickles in the definition, such as a custom grouping, refer to these names, so tasks need them.
    values = {name: main[name] for name in wanted | _named(main, definition)}
    values.update(_met(values))
    folder.mkdir(mode=0o700)
    (folder / SESSION_FILE).write_text(_SESSION_SOURCE, encoding="utf-8")
    (folder / _VALUES_FILE).write_bytes(cloudpickle.dumps(values))


def _named(main: dict[str, Any], definition: bytes) -> set[str]:
    own = {
        name
        for name, value in main.items()
        if isinstance(value, type | FunctionType) and getattr(value, "__module__", "") == "__main__"
    }
    return {name for name in own if re.search(rb"\b" + re.escape(name.encode()) + rb"\b", definition)}


def _met(values: dict[str, Any]) -> dict[str, Any]:
    """Return the classes and functions of `__main__` that these values refer to by name."""
    main, met = vars(sys.modules["__main__"]), {}
    for name, value in values.items():
        recorder = _Recorder(io.BytesIO())
        try:
            recorder.dump(value)
        except Exception as error:
            raise PackageError(
                f"'{name}' cannot be sent to the tasks, because something that it refers to cannot be pickled"
                f" ({type(error).__name__}: {' '.join(str(error).split())}); create it in initialize(),"
                " or put the class into a module"
            ) from error
        met.update(recorder.met)
    return {name: value for name, value in met.items() if main.get(name) is value}
