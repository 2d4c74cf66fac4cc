"""Find and load the user's code.

A package directory goes on `sys.path`. A plain `.py` file is loaded as the module `__heron_main__`,
which also replaces `__main__`, as in multiprocessing's spawn. So classes defined in the file are found and unpickled as
`__main__.Class`, but the file's `if __name__ == "__main__"` block does not run. A failure in user code becomes an error
with a one-sentence message; the error's attribute `user_traceback` is the full traceback.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from heronpy.api.api_constants import TOPOLOGY_AUTO_TASK_HOOKS
from heronpy.api.component.component_spec import LOCAL_CLASSES, MAIN_ALIAS
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.serializer import default_serializer
from heronpy.api.topology import Topology, TopologyType, submissions_ignored
from heronpy.api.topology_context import ITaskHook
from heronpy.common.errors import ConfigError, HeronError, PackageError, TopologyError

if TYPE_CHECKING:
    from heronpy.plan.launch import LaunchSpec


_T = TypeVar("_T")

#: The folders of the runtime, each with a trailing separator.
_HOME = Path(__file__).parents[2]
_RUNTIME = tuple(str(_HOME / name) + os.sep for name in ("heronpy", "instance", "stmgr"))
#: Maps the folder of the unpacked package to the submitted path, so that tracebacks name the user's own files.
_SUBMITTED_AS: dict[str, str] = {}


class UserPackageError(PackageError):
    """A file or module is missing from the user's package."""

    user_traceback: str = ""


class UserCodeError(TopologyError):
    """The user's code raised an exception, or a class is missing from it."""

    user_traceback: str = ""


def prepare_path(package_dir: str | None) -> None:
    """Put the package directory, and the dependencies of a pex (`.deps`), on sys.path."""
    if not package_dir:
        return
    root = Path(package_dir).resolve()
    if not root.is_dir():
        raise UserPackageError(f"package directory {root} does not exist; submit the topology again")
    deps = root / ".deps"
    entries = [str(root)]
    if deps.is_dir():
        entries += sorted(str(entry) for entry in deps.iterdir())
    sys.path[:] = entries + [entry for entry in sys.path if entry not in entries]
    # Cached look-ups in these folders may be outdated. Do not call
    # `importlib.invalidate_caches`, which writes to each finder that the processes of a container share.
    for entry in entries:
        sys.path_importer_cache.pop(entry, None)


def prepare(launch: LaunchSpec) -> None:
    """Make the user's code of a `LaunchSpec` importable: set path and arguments first, then load its main file."""
    prepare_path(launch.package_dir)
    if launch.package_dir and launch.source:
        _SUBMITTED_AS[launch.package_dir] = launch.source
    if launch.argv:
        use_arguments(launch.argv, launch.argv_names_topology)
    if launch.main_file:
        load_main(launch.main_file)


def load_main(path: str | os.PathLike[str]) -> ModuleType:
    """Load a plain `.py` file once, as the module `__heron_main__` and also as `__main__`."""
    file = os.path.abspath(path)
    loaded = sys.modules.get(MAIN_ALIAS)
    if loaded is not None and loaded.__file__ == file:
        return loaded
    return _execute(file)


def load_class(class_path: str, launch: LaunchSpec | None = None) -> type[Any]:
    """Return the class at `pkg.module.Class` or `__main__.Class`, which may be a nested class."""
    if launch is not None:
        prepare(launch)
    local = LOCAL_CLASSES.get(class_path)
    if local is not None:
        return local
    if "<locals>" in class_path:
        raise UserCodeError(
            f"class {class_path} is defined inside a function, where no task can "
            "find it; move it to the top level of its module"
        )
    module_name, _, name = class_path.rpartition(".")
    if not module_name or not name:
        raise UserCodeError(f"{class_path!r} is not a class path; write it as module.Class")
    value = _resolve(class_path)
    if not isinstance(value, type):
        raise UserCodeError(f"{class_path} is not a class but {type(value).__name__}; give the path of a class")
    return value


def load_hooks(paths: Any) -> list[ITaskHook]:
    """Create a hook of each class in `topology.auto.task.hooks`, which is a list or a comma-separated text."""
    if paths is None:
        return []
    if isinstance(paths, str):
        paths = [path.strip() for path in paths.split(",") if path.strip()]
    if not isinstance(paths, (list, tuple)):
        raise ConfigError(f"{TOPOLOGY_AUTO_TASK_HOOKS} must be a list of class paths, given: {paths!r}")
    hooks: list[ITaskHook] = []
    for path in paths:
        cls = path if isinstance(path, type) else load_class(str(path))
        if not issubclass(cls, ITaskHook):
            raise ConfigError(
                f"{TOPOLOGY_AUTO_TASK_HOOKS} names {path}, which is not an ITaskHook; "
                "extend heronpy.api.task_hook.ITaskHook"
            )
        hooks.append(cls())
    return hooks


def load_custom_grouping(serialized: bytes) -> ICustomGrouping:
    """Return the custom grouping object, given a serialized instance or a serialized class path."""
    value = _guarded(lambda: default_serializer.deserialize(serialized), "the custom grouping")
    if isinstance(value, str):
        cls = load_class(value)
        value = _guarded(cls, f"custom grouping {value}")
    if not isinstance(value, ICustomGrouping):
        raise UserCodeError(
            f"custom grouping {value!r} is not an ICustomGrouping; extend heronpy.api.custom_grouping.ICustomGrouping"
        )
    return value


def find_topologies(module: ModuleType) -> list[type[Topology]]:
    """Return the topology classes that a module defines, in definition order; if none, the classes that it imports."""
    found: list[TopologyType] = []
    for value in vars(module).values():
        if isinstance(value, TopologyType) and value is not Topology and value not in found:
            found.append(value)
    own = [cls for cls in found if cls.__module__ in (module.__name__, MAIN_ALIAS, "__main__")]
    return own or found  # type: ignore[return-value]


def _resolve(class_path: str) -> Any:
    parts = class_path.split(".")
    if parts[0] in ("__main__", MAIN_ALIAS):
        main = sys.modules.get(MAIN_ALIAS) or sys.modules["__main__"]
        return _attribute(main, ".".join(parts[1:]), class_path)
    for cut in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:cut])
        if cut > 1 and not _module_exists(module_name):
            continue
        return _attribute(_import(module_name), ".".join(parts[cut:]), class_path)
    raise UserCodeError(f"{class_path!r} is not a class path; write it as module.Class")


def _module_exists(module_name: str) -> bool:
    if module_name in sys.modules:
        return True

    def look() -> bool:
        try:
            return importlib.util.find_spec(module_name) is not None
        except ModuleNotFoundError as error:
            # A parent is missing or is not a package, so the module does not exist.
            if error.name and (module_name + ".").startswith(error.name + "."):
                return False
            raise

    return _guarded(look, f"Module {module_name}")


def _import(module_name: str) -> ModuleType:
    try:
        with submissions_ignored():
            return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name + ".").startswith(error.name + "."):
            failure = UserPackageError(f"module {error.name!r} is not part of the package; add it and submit again")
            failure.user_traceback = user_traceback(error)
            raise failure from error
        _raise_user_error(f"Module {module_name}", error)
    except (Exception, SystemExit) as error:
        _raise_user_error(f"Module {module_name}", error)


def _attribute(module: ModuleType, path: str, class_path: str) -> Any:
    value: Any = module
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            where = getattr(module, "__file__", None) or module.__name__
            raise UserCodeError(
                f"{class_path} does not exist: {where} defines no {name!r}; check the spelling and the package"
            ) from None
    return value


def _execute(file: str) -> ModuleType:
    try:
        source = Path(file).read_bytes()
    except OSError as error:
        raise UserPackageError(
            f"main file {file} cannot be read ({error.strerror}); submit the topology again"
        ) from error
    module = ModuleType(MAIN_ALIAS)
    module.__file__ = file
    aliases = (MAIN_ALIAS, "__main__")
    before = {alias: sys.modules.get(alias) for alias in aliases}
    for alias in aliases:
        sys.modules[alias] = module
    directory = os.path.dirname(file)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        with submissions_ignored():
            _guarded(
                lambda: exec(compile(source, file, "exec", dont_inherit=True), module.__dict__), f"main file {file}"
            )
    except HeronError:
        for alias, previous in before.items():
            if previous is None:
                del sys.modules[alias]
            else:
                sys.modules[alias] = previous
        raise
    return module


def _guarded(action: Callable[[], _T], what: str) -> _T:
    """Run user code: turn an exception into a UserCodeError, and `sys.exit(0)` into a normal end."""
    try:
        return action()
    except SystemExit as error:
        if error.code in (None, 0):
            return None  # type: ignore[return-value]
        _raise_user_error(what, error)
    except (UserPackageError, UserCodeError):
        raise
    except Exception as error:
        _raise_user_error(what, error)


def _raise_user_error(what: str, error: BaseException) -> NoReturn:
    if isinstance(error, SystemExit):
        reason = (
            f"ended the process with sys.exit({error.code!r}); move code that is not meant "
            "for tasks below `if __name__ == '__main__':`"
        )
    else:
        text = " ".join(str(error).split())
        reason = f"raised {type(error).__name__}" + (f": {text}" if text else "")
    failure = UserCodeError(f"{what} {reason}")
    failure.user_traceback = user_traceback(error)
    raise failure from error


def user_traceback(error: BaseException) -> str:
    """Return the traceback to show to the user; it starts at the first frame outside the runtime."""
    known = getattr(error, "user_traceback", "")
    if known:
        return str(known)
    frames = error.__traceback__
    while frames is not None and is_runtime_frame(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    _know_sources(error)
    # If one of heronpy's connectors fails, all frames belong to heronpy: show all of them.
    text = "".join(traceback.format_exception(type(error), error, frames or _of_files(error)))
    for package, source in _SUBMITTED_AS.items():
        text = text.replace(f'File "{package}{os.sep}', f'File "{source}{os.sep}')
    return text


def _know_sources(error: BaseException) -> None:
    """Make the traceback show source lines from the package for functions that were sent by value.

    Their code names the submitted file, which the user may have changed since the submission."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        for package, source in _SUBMITTED_AS.items():
            if file not in linecache.cache and file.startswith(source + os.sep):
                with suppress(OSError, UnicodeDecodeError):
                    lines = (Path(package) / file[len(source) + 1 :]).read_text(encoding="utf-8").splitlines(True)
                    linecache.cache[file] = sum(map(len, lines)), None, lines, file


def is_runtime_frame(file: str) -> bool:
    """Return whether a file in a traceback belongs to heronpy or to Python's import system."""
    return file.startswith(("<frozen importlib", *_RUNTIME)) or file.endswith(os.path.join("importlib", "__init__.py"))


def _of_files(error: BaseException) -> TracebackType | None:
    """Return the error's traceback; None for an error about a file that cannot be compiled or found."""
    return None if isinstance(error, (SyntaxError, ImportError)) else error.__traceback__


_used: list[str] | None = None
_original = argparse.ArgumentParser.parse_known_args


def use_arguments(argv: Sequence[str], names_topology: bool) -> None:
    """Set this process's arguments once, so that the program's later changes to them are kept.

    With `names_topology`, the first argument is the topology's name given to `heron submit`; it is hidden from an
    argparse parser that takes no positional argument.
    """
    global _used
    if _used == list(argv):
        return
    _used = list(argv)
    sys.argv = list(argv)
    if names_topology:
        _hide_from_argparse(argv[1])


def _hide_from_argparse(name: str) -> None:
    """Hide the topology's name from an argparse parser that takes no positional argument.

    `heron submit local topo.py NAME --size 3` passes NAME to the program as its first argument, where
    programs for Apache heronpy expect NAME; a parser without positional arguments would refuse it.
    """

    def parse_known_args(self: Any, args: Any = None, namespace: Any = None) -> Any:
        takes_words = any(not action.option_strings for action in self._actions)
        if args is None and not takes_words and sys.argv[1:2] == [name]:
            args = sys.argv[2:]
        return _original(self, args, namespace)

    argparse.ArgumentParser.parse_known_args = parse_known_args  # type: ignore[method-assign]
