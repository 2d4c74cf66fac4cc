"""The child process of `heron submit` that runs the user's program and writes its topology as a .defn file.

It reads a request from its standard input, and ends if there is no request. The program runs as `__main__`, or one of
its classes is imported. If the program builds no topology, the Topology subclasses that it defines are written.
The written files and the loaded user files are listed in the report that the request names. A traceback of
user code is printed in full, without frames of the runtime; exit code 3 means that the report contains the error.
"""

from __future__ import annotations

import dis
import importlib
import importlib.util
import inspect
import json
import os
import signal
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

SENTENCE = 3
INTERRUPTED = 130

#: Errors with which heronpy.api refuses a program's description.
_REFUSALS = (ValueError, TypeError, RuntimeError)
#: The modules of the base classes whose `process`, `process_batch`, `next_tuple` and `run` only raise an error.
_UNDEFINED = tuple(
    f"heronpy.api.{name}" for name in ("bolt.bolt", "bolt.async_bolt", "spout.spout", "spout.async_spout")
)


class Unusable(Exception):
    """The program yields no usable topology; the text is the sentence to print."""


class Failed(Exception):
    """The program failed; the text follows the program's name in a sentence, such as `raised ValueError`."""


def main() -> int:
    # Imported before the user's code, as in a task, because a .pex may contain other releases of heronpy.
    import heronpy.api.topology  # noqa: F401  # most programs need it
    from heronpy.api.user_code import use_arguments

    data = sys.stdin.buffer.read()
    if not data:
        return 0  # the command has refused to run anything, or was interrupted
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    request = json.loads(data)
    report = Path(request["report"])
    os.environ["HERON_OPTIONS"] = request["options"]
    sys.path[0:0] = request["sys_path"]
    use_arguments([request["program"], *request["args"]], request["name_argument"])
    try:
        # SIGINT was blocked until here, so that it interrupts no import. The parent is interrupted too, and reports it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        _run(request)
        _check_names(Path(request["out"]))
    except KeyboardInterrupt:
        return INTERRUPTED
    except (Unusable, Failed) as error:
        kind = "sentence" if isinstance(error, Unusable) else "failed"
        report.write_text(json.dumps({kind: str(error)}), encoding="utf-8")
        return SENTENCE
    content = {
        "main_file": _main_file(),
        "files": _loaded_files(request["root"]),
        "warnings": _spouts_that_start_over(Path(request["out"])),
        "plain": _plain(Path(request["out"])),
    }
    report.write_text(json.dumps(content), encoding="utf-8")
    sys.stdout.flush()
    return 0


def _run(request: dict[str, Any]) -> None:
    if request["kind"] == "class":
        _guarded(lambda: _write_class(request["module"], request["class"]))
        return
    if request["kind"] == "module":
        _guarded(lambda: _run_module(request["module"], request["class"]))
    else:
        _guarded(lambda: _run_file(Path(request["program"]), request["source"]))
    if (request["class"] and request["kind"] == "file") or not any(Path(request["out"]).glob("*.defn")):
        _guarded(lambda: _write_main_classes(request))


def _guarded(step: Callable[[], None]) -> None:
    """Run the user's code; raises Unusable or Failed when it fails."""
    try:
        step()
    except (Unusable, Failed, KeyboardInterrupt):
        raise
    except SystemExit as leave:
        if leave.code in (None, 0):
            return
        if isinstance(leave.code, int):
            raise Failed(f"ended with exit code {leave.code}") from None
        raise Failed(f"ended: {leave.code}") from None
    except BaseException as error:
        _explain(error)


def _explain(error: BaseException) -> NoReturn:
    """Raise Unusable if heronpy refused the description; otherwise print the traceback and raise Failed."""
    from heronpy.api.user_code import is_runtime_frame, user_traceback
    from heronpy.common.log_format import escape

    frames = traceback.extract_tb(error.__traceback__)
    text = " ".join(str(error).split())
    if frames and is_runtime_frame(frames[-1].filename) and isinstance(error, _REFUSALS):
        # heronpy's error describes the problem; heronpy's frames would only hide the line of the program.
        users = [frame for frame in frames if not is_runtime_frame(frame.filename)]
        if users:
            where = f"{os.path.basename(users[-1].filename)}, line {users[-1].lineno}: "
            raise Unusable(where + text) from None
    sys.stdout.flush()
    sys.stderr.write(escape(user_traceback(error)))
    raise Failed(f"raised {type(error).__name__}" + (f": {text}" if text else "")) from None


def _new_main(path: str) -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__file__ = path
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = module
    return module


def _run_file(program: Path, source: str) -> None:
    """Run a file as `python file` does."""
    module = _new_main(source)
    code = compile(Path(source).read_bytes(), source, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def _run_module(name: str, function: str) -> None:
    """Call the function of a module, or without a function run the module as `python -m name` does."""
    if function:
        importlib.import_module(name)
        target: Any = sys.modules[name]
        for part in function.split("."):
            target = getattr(target, part)
        sys.exit(target())
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name += ".__main__"
        spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or spec.loader is None:
        raise Unusable(f"module {name} of the package cannot be found; name a module and class with module:Class")
    module = _new_main(spec.origin)
    module.__spec__ = spec
    module.__package__ = spec.parent
    code = compile(Path(spec.origin).read_bytes(), spec.origin, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def _topology_base() -> Any:
    """Return heronpy's Topology, or None if the program never imported it."""
    module = sys.modules.get("heronpy.api.topology")
    return getattr(module, "Topology", None)


def _write_class(module_name: str, class_name: str) -> None:
    module = importlib.import_module(module_name)
    found: Any = module
    for part in class_name.split("."):
        if not hasattr(found, part):
            raise Unusable(f"module {module_name} has no class '{part}'{_classes_of(module)}")
        found = getattr(found, part)
    base = _topology_base()
    if base is None or not (isinstance(found, type) and issubclass(found, base)):
        raise Unusable(f"'{class_name}' of module {module_name} is not a Topology{_classes_of(module)}")
    found.write()  # type: ignore[attr-defined]


def _classes_of(module: types.ModuleType) -> str:
    names = [cls.__name__ for cls in _topologies_in(module)]
    return f"; it defines {', '.join(names)}" if names else "; subclass heronpy.api.topology.Topology in it"


def _topologies_in(module: types.ModuleType) -> list[Any]:
    if _topology_base() is None:
        return []
    from heronpy.api.user_code import find_topologies

    return list(find_topologies(module))


def _write_main_classes(request: dict[str, Any]) -> None:
    """Write the chosen Topology subclass of the program, or all that it defines."""
    main = sys.modules["__main__"]
    classes = _topologies_in(main)
    chosen = request["class"] if request["kind"] == "file" else ""
    if chosen:
        classes = [cls for cls in classes if cls.__name__ == chosen]
        if not classes:
            raise Unusable(f"'{chosen}' of {request['program']} is not a Topology{_classes_of(main)}")
        for stale in Path(request["out"]).glob("*.defn"):
            stale.unlink()
    if not classes:
        raise Unusable(
            f"{request['program']} builds no topology; call build_and_submit() of a TopologyBuilder,"
            " or define a subclass of heronpy.api.topology.Topology"
        )
    for cls in classes:
        cls.write()


def _check_names(out: Path) -> None:
    """Raise Unusable if a component lacks its main method and has a method with a similar name.

    Without such a method the class may get its main method later, so only the running task can tell.
    """
    from heronpy.common.nearest import nearest

    for name, is_spout, cls in _components(out):
        is_async = getattr(cls, "is_async", False)
        main = ("run" if is_async else "next_tuple") if is_spout else "process"
        wanted = {main} if is_spout or is_async else {main, "process_batch"}
        kinds = [kind for kind in cls.__mro__ if not kind.__module__.startswith("heronpy.")]
        own = [value for kind in kinds for value in vars(kind).values() if inspect.isfunction(value)]
        # A class whose methods mention the main method may set it on its objects.
        mentioned = {used for method in own for used in method.__code__.co_names}
        near = nearest(main, [method.__name__ for method in own])
        if (
            near
            and not wanted & mentioned
            and not hasattr(cls, "__getattr__")
            and all(getattr(getattr(cls, one, None), "__module__", _UNDEFINED[0]) in _UNDEFINED for one in wanted)
        ):
            what = "spout" if is_spout else "bolt"
            raise Unusable(f"{what} '{name}': class {cls.__name__} has no method '{main}'; rename its method '{near}'")


def _spouts_that_start_over(out: Path) -> list[str]:
    """Return a sentence for each spout of an EFFECTIVELY_ONCE topology that keeps no position."""
    from heronpy.api.state.stateful_component import StatefulComponent

    return [
        f"spout '{name}' is not a StatefulComponent: after a failure the spout starts over, and"
        " its tuples are counted again; keep its position in a state, or use ATLEAST_ONCE"
        for name, is_spout, cls in _components(out, "EFFECTIVELY_ONCE")
        if is_spout and not issubclass(cls, StatefulComponent)
    ]


def _plain(out: Path) -> list[str]:
    """Return the components of EFFECTIVELY_ONCE topologies that keep a plain State, which their `init_state` uses.

    Of heronpy's own classes, only windows are known to keep a State before the first checkpoint.
    """
    found = []
    for name, _, cls in _components(out, "EFFECTIVELY_ONCE"):
        init_state: Any = getattr(cls, "init_state", None)
        code = getattr(init_state, "__code__", None)
        if code is None or code.co_argcount < 2:
            continue
        used = any(
            one.argval == code.co_varnames[1] and one.opname.startswith("LOAD") for one in dis.get_instructions(code)
        )
        module = init_state.__module__
        if used and (not module.startswith("heronpy.") or module == "heronpy.api.bolt.window_bolt"):
            found.append(name)
    return found


def _components(out: Path, mode: str = "") -> Iterator[tuple[str, bool, type]]:
    """Yield the name, whether it is a spout, and the class of each known component of topologies in `mode`, or all."""
    from google.protobuf.message import DecodeError

    from heronpy.plan.component_config import reliability_mode
    from heronpy.proto import topology_pb2

    for path in sorted(out.glob("*.defn")):
        try:
            topology = topology_pb2.Topology.FromString(path.read_bytes())
        except DecodeError:
            continue  # The parent reports the error.
        if mode and reliability_mode(topology) != mode:
            continue
        for parts, is_spout in ((topology.spouts, True), (topology.bolts, False)):
            for part in parts:
                cls = _class_at(part.comp.class_name)
                if cls is not None:
                    yield part.comp.name, is_spout, cls


def _class_at(class_path: str) -> type | None:
    """Return the class of a component; None if only the tasks can load it."""
    module, _, name = class_path.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


def _main_file() -> str | None:
    """Return the file that ran as `__main__`, if any."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    return os.path.abspath(path) if path and os.path.abspath(path) != os.path.abspath(__file__) else None


def _loaded_files(root: str) -> list[str]:
    """Return the files under the root that the program imported."""
    found = set()
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and os.path.abspath(path).startswith(root + os.sep):
            found.add(os.path.abspath(path))
    return sorted(found)


if __name__ == "__main__":
    sys.exit(main())
