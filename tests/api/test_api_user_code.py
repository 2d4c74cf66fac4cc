"""Loading the user's code: plain files, packages, and what goes wrong in them."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.api import user_code
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.serializer import default_serializer
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.common.errors import PackageError, TopologyError

MAIN = """
from dataclasses import dataclass

from heronpy import Bolt, Grouping, ICustomGrouping, Spout, Topology

@dataclass
class Item:
    n: int

class Words(Spout):
    outputs = ["word"]
    class Inner:
        pass

class Count(Bolt):
    pass

class Pick(ICustomGrouping):
    def choose_tasks(self, values):
        return [1]

def helper():
    return 1

class First(Topology):
    words = Words.spec()

class Second(Topology):
    words = Words.spec()
    count = Count.spec(inputs={words: Grouping.custom("__main__.Pick")})

RAN = __name__ == "__main__"
"""


@pytest.fixture(autouse=True)
def untouched_interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(sys.modules)
    path, argv = list(sys.path), sys.argv
    yield
    for name in set(sys.modules) - set(before):
        if name == user_code.MAIN_ALIAS or not name.startswith(("heronpy", "google", "hypothesis")):
            del sys.modules[name]
    sys.modules.update(before)
    sys.path[:], sys.argv = path, argv


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def launch(package_dir: Path | None = None, main_file: Path | None = None) -> Any:
    return SimpleNamespace(
        source="",
        package_dir=package_dir and str(package_dir),
        main_file=main_file and str(main_file),
        argv=[],
        argv_names_topology=False,
    )


def test_plain_file_stands_for_main(tmp_path: Path) -> None:
    main = write(tmp_path / "topo.py", MAIN)
    module = user_code.load_main(main)
    assert module is user_code.load_main(main) is sys.modules["__main__"]
    assert module.RAN is False
    assert [t.__name__ for t in user_code.find_topologies(module)] == ["First", "Second"]
    proto = user_code.find_topologies(module)[1].to_proto()
    assert proto.bolts[0].comp.class_name == "__main__.Count"
    assert user_code.load_class("__main__.Count") is module.Count
    assert user_code.load_class("__heron_main__.Words.Inner") is module.Words.Inner
    assert pickle.loads(pickle.dumps(module.Item(3))) == module.Item(3)
    by_main = pickle.dumps(module.Item(3), 0).replace(b"__heron_main__", b"__main__")
    assert pickle.loads(by_main) == module.Item(3)
    grouping = user_code.load_custom_grouping(proto.bolts[0].inputs[0].custom_grouping_object)
    assert isinstance(grouping, module.Pick)


def test_load_class_loads_the_main_file_first(tmp_path: Path) -> None:
    main = write(tmp_path / "topo.py", MAIN)
    cls = user_code.load_class("__main__.Words", launch(tmp_path, main))
    assert cls.__name__ == "Words" and sys.path[0] == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import sys\nsys.exit(3)", r"sys\.exit\(3\)"),
        ("def f():\n    raise KeyError('deep')\nf()", "KeyError: 'deep'"),
        ("x = (", "SyntaxError"),
        ("import not_installed_at_all", "No module named 'not_installed_at_all'"),
    ],
)
def test_failing_main_file_keeps_its_traceback(tmp_path: Path, text: str, reason: str) -> None:
    main = write(tmp_path / "topo.py", text)
    old = sys.modules["__main__"]
    with pytest.raises(TopologyError, match=reason) as caught:
        user_code.load_main(main)
    trace = caught.value.user_traceback  # type: ignore[attr-defined]
    assert "user_code.py" not in trace
    assert str(main) in trace or "SystemExit" in trace
    assert "\n" not in str(caught.value)
    assert sys.modules["__main__"] is old and user_code.MAIN_ALIAS not in sys.modules


def test_a_function_that_is_sent_by_value_shows_the_lines_that_were_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as `rows` of work units: file, line and source of each frame, also when the file was edited since."""
    lines = ["def deep():", "    return int('-')", "def rows(unit):", "    return deep()", ""]
    source, package = tmp_path / "home", tmp_path / "package"
    for folder in (source, package):
        folder.mkdir()
        write(folder / "clicks.py", "\n".join(lines))
    sent = "\n".join(
        [
            "import sys, types",
            "from heronpy.api.serializer import default_serializer",
            f"path = {str(source / 'clicks.py')!r}",
            "exec(compile(open(path).read(), path, 'exec'), globals())",
            "sys.stdout.buffer.write(default_serializer.serialize(rows))",
        ]
    )
    data = subprocess.run([sys.executable, "-c", sent], check=True, capture_output=True).stdout
    write(source / "clicks.py", "# edited\n\n\n\n")
    monkeypatch.setattr("heronpy.api.user_code._SUBMITTED_AS", {str(package): str(source)})
    with pytest.raises(ValueError, match="invalid literal") as caught:
        default_serializer.deserialize(data)(None)
    trace = user_code.user_traceback(caught.value)
    assert f'File "{source}/clicks.py", line 4, in rows\n    return deep()\n' in trace
    assert f"File \"{source}/clicks.py\", line 2, in deep\n    return int('-')\n" in trace
    assert trace.startswith("Traceback (most recent call last):\n") and trace.endswith("10: '-'\n")


def test_missing_files_and_directories(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="cannot be read"):
        user_code.load_main(tmp_path / "absent.py")
    with pytest.raises(PackageError, match="does not exist"):
        user_code.prepare_path(str(tmp_path / "absent"))
    user_code.prepare_path(None)


def test_package_and_pex_dependencies(tmp_path: Path) -> None:
    write(tmp_path / "mypkg_a" / "__init__.py", "")
    write(tmp_path / "mypkg_a" / "sub.py", "import mydep_a\nclass A:\n    class B: pass\nnum = 3")
    write(tmp_path / ".deps" / "mydep-1.whl" / "mydep_a.py", "")
    user_code.prepare_path(str(tmp_path))
    user_code.prepare_path(str(tmp_path))
    assert sys.path[:2] == [str(tmp_path), str(tmp_path / ".deps" / "mydep-1.whl")]
    assert sys.path.count(str(tmp_path)) == 1
    assert user_code.load_class("mypkg_a.sub.A").__name__ == "A"
    assert user_code.load_class("mypkg_a.sub.A.B").__qualname__ == "A.B"
    with pytest.raises(TopologyError, match="defines no 'Missing'"):
        user_code.load_class("mypkg_a.sub.Missing")
    with pytest.raises(TopologyError, match="not a class"):
        user_code.load_class("mypkg_a.sub.num")
    with pytest.raises(PackageError, match="'mypkg_missing' is not part"):
        user_code.load_class("mypkg_missing.sub.A")
    for path in ("A", "", "a.", "."):
        with pytest.raises(TopologyError, match="not a class path"):
            user_code.load_class(path)


def test_the_package_is_looked_at_again_and_other_folders_are_not(tmp_path: Path) -> None:
    """To write to the finders of all folders would cost each task its own copy of them."""
    package, other = tmp_path / "package", tmp_path / "other"
    package.mkdir()
    other.mkdir()
    sys.path[:0] = [str(package), str(other)]
    try:
        assert importlib.util.find_spec("comes_later") is None
        remembered = sys.path_importer_cache[str(other)]
        listed_at = vars(remembered)["_path_mtime"]
        times = package.stat()
        (package / "comes_later.py").write_text("", encoding="utf-8")
        # As if it had come within the clock tick of the first look.
        os.utime(package, ns=(times.st_atime_ns, times.st_mtime_ns))
        user_code.prepare_path(str(package))
        assert importlib.util.find_spec("comes_later") is not None
        assert sys.path_importer_cache[str(other)] is remembered
        assert vars(remembered)["_path_mtime"] == listed_at != -1
    finally:
        for folder in (package, other):
            sys.path.remove(str(folder))
            sys.path_importer_cache.pop(str(folder), None)


def test_module_that_raises_on_import(tmp_path: Path) -> None:
    write(tmp_path / "broken_m.py", "1 / 0")
    write(tmp_path / "needs_m.py", "import no_such_dependency_m")
    user_code.prepare_path(str(tmp_path))
    with pytest.raises(TopologyError, match="ZeroDivisionError") as caught:
        user_code.load_class("broken_m.A")
    assert "broken_m.py" in caught.value.user_traceback  # type: ignore[attr-defined]
    assert "importlib" not in caught.value.user_traceback  # type: ignore[attr-defined]
    with pytest.raises(TopologyError, match="no_such_dependency_m"):
        user_code.load_class("needs_m.A")


def test_imported_topologies_count_when_there_are_no_own(tmp_path: Path) -> None:
    write(tmp_path / "defs_m.py", MAIN)
    main = write(tmp_path / "topo.py", "from defs_m import First\nfrom heronpy import Topology")
    module = user_code.load_main(main)
    assert [t.__name__ for t in user_code.find_topologies(module)] == ["First"]


def test_local_classes_work_in_their_own_process() -> None:
    class Local(Spout):
        outputs = ["x"]

    builder = TopologyBuilder("t")
    builder.add_spout("local", Local, 1)
    path = builder.build().spouts[0].comp.class_name
    assert user_code.load_class(path) is Local
    with pytest.raises(TopologyError, match="inside a function"):
        user_code.load_class("mod.f.<locals>.Gone")


def test_custom_groupings(tmp_path: Path) -> None:
    class Local(ICustomGrouping):
        def choose_tasks(self, values: Any) -> list[int]:
            return [2]

    loaded = user_code.load_custom_grouping(Grouping.custom(Local()).python_serialized)
    assert loaded.choose_tasks([1]) == [2]
    with pytest.raises(TopologyError, match="not an ICustomGrouping"):
        user_code.load_custom_grouping(pickle.dumps("collections.OrderedDict"))
    with pytest.raises(TopologyError, match="raised UnpicklingError"):
        user_code.load_custom_grouping(b"junk")
