"""The package cache: what it stores, what it refuses, and how it takes crashes and crowds."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
import tarfile
import zipfile
import zipimport
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from heronpy.common.errors import PackageError
from heronpy.storage import packages
from heronpy.storage.packages import PackageStore, archive_in

DEADLINE_S = 30.0
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(tmp_path: Path) -> PackageStore:
    return PackageStore(tmp_path / "store", files_max=100, bytes_max=100_000)


def content(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def leftovers(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "store/.tmp").iterdir()]


def zip_file(path: Path, entries: dict[str, str | bytes | tuple[str, int]]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in entries.items():
            info = zipfile.ZipInfo("x")
            info.filename = name
            data, mode = value if isinstance(value, tuple) else (value, stat.S_IFREG | 0o644)
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return path


def tar_file(path: Path, *members: tarfile.TarInfo, data: bytes = b"") -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for member in members:
            member.size = len(data) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def test_a_plain_file_is_stored_alone(store: PackageStore, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    file = tmp_path / "code/word_count.py"
    file.write_text("print(1)")
    (tmp_path / "code/neighbour.py").write_text("")
    package = store.add(file)
    assert package.dir == tmp_path / "store" / package.sha256
    assert package.main_file == package.dir / "word_count.py"
    assert content(package.dir) == {"word_count.py": "print(1)"}
    assert store.add(str(file)) == package
    file.write_text("print(2)")
    assert store.add(file).sha256 != package.sha256
    other = file.rename(tmp_path / "code/other.py")
    other.write_text("print(1)")
    assert store.add(other).main_file != package.main_file


def test_a_directory_is_stored_without_caches(store: PackageStore, tmp_path: Path) -> None:
    code = tmp_path / "code"
    for name in ("__pycache__/a.pyc", ".git/config", ".venv/bin/python", "sub/__pycache__/b.pyc"):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("")
    (code / "main.py").write_text("main")
    (code / "sub/part.py").write_text("part")
    (code / "empty").mkdir()
    (code / "run.sh").write_text("")
    (code / "run.sh").chmod(0o755)
    package = store.add(code)
    assert package.main_file is None
    assert content(package.dir) == {"main.py": "main", "sub/part.py": "part", "run.sh": ""}
    assert (package.dir / "empty").is_dir()
    assert os.access(package.dir / "run.sh", os.X_OK)
    assert not os.access(package.dir / "main.py", os.X_OK)
    (code / "__pycache__/new.pyc").write_text("")
    assert store.add(f"{code}/") == package
    (code / "sub/part.py").write_text("tart")
    assert store.add(code).sha256 != package.sha256


def test_a_directory_that_is_a_python_package_keeps_its_name(store: PackageStore, tmp_path: Path) -> None:
    (tmp_path / "mine/sub").mkdir(parents=True)
    (tmp_path / "mine/__init__.py").write_text("")
    (tmp_path / "mine/sub/a.py").write_text("a")
    assert content(store.add(tmp_path / "mine").dir) == {
        "mine/__init__.py": "",
        "mine/sub/a.py": "a",
    }


def test_links_inside_a_directory_are_kept(store: PackageStore, tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "sub").mkdir(parents=True)
    (code / "sub/a.py").write_text("a")
    (code / "b.py").symlink_to("sub/a.py")
    (code / "c.py").symlink_to(code / "b.py")
    (code / "dir").symlink_to("sub")
    package = store.add(code)
    for name in ("b.py", "c.py", "dir/a.py"):
        assert (package.dir / name).read_text() == "a"
        assert (package.dir / name).resolve() == package.dir / "sub/a.py"


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "missing", ".", "loop"])
def test_links_out_of_a_directory_are_refused(store: PackageStore, tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "code").mkdir()
    (tmp_path / "code/loop").symlink_to(target)
    with pytest.raises(PackageError, match="code/loop is a link that leads out of the package"):
        store.add(tmp_path / "code")


def test_a_pipe_in_a_directory_is_refused(store: PackageStore, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    os.mkfifo(tmp_path / "code/pipe")
    with pytest.raises(PackageError, match="code/pipe is neither a file nor a directory"):
        store.add(tmp_path / "code")
    with pytest.raises(PackageError, match="is not a file or directory"):
        store.add(tmp_path / "code/pipe")


def test_zip_and_tar_are_unpacked(store: PackageStore, tmp_path: Path) -> None:
    entries: dict[str, str | bytes | tuple[str, int]] = {
        "a/": ("", stat.S_IFDIR | 0o755),
        "a/b.py": "b",
        "c.sh": ("c", stat.S_IFREG | 0o755),
        "link.py": ("a/../a/b.py", stat.S_IFLNK | 0o777),
    }
    package = store.add(zip_file(tmp_path / "x.zip", entries))
    assert content(package.dir) == {"a/b.py": "b", "c.sh": "c", "link.py": "b"}
    assert os.access(package.dir / "c.sh", os.X_OK)
    for name in ("x.tar", "x.tar.gz"):
        path = tar_file(
            tmp_path / name,
            member("./", tarfile.DIRTYPE),
            member("./lib/last.so", tarfile.SYMTYPE, "libx.so.1"),
            member("./lib/libx.so.1", tarfile.SYMTYPE, "libx.so.1.0"),
            member("./lib/libx.so.1.0"),
            member("hard", tarfile.LNKTYPE, "./lib/libx.so.1.0"),
            data=b"so",
        )
        package = store.add(path)
        assert set(content(package.dir).values()) == {"so"}
        assert len(content(package.dir)) == 4
    for path in (tmp_path / "store").rglob("*"):
        assert path.is_symlink() or path.stat().st_mode & 0o077 == 0, path


def test_bytecode_in_an_archive_is_left_to_python(store: PackageStore, tmp_path: Path) -> None:
    """Python writes it again where the times of the source differ; the stored package stays the same."""
    archive = tmp_path / "job.zip"
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("job.py", "x = 1\n")
        written.writestr(f"__pycache__/job.{sys.implementation.cache_tag}.pyc", b"of another time")
    entry = store.add(archive).dir
    code = f"import sys; sys.path.insert(0, {str(entry)!r}); import job"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""}, check=True)
    assert list(entry.rglob("*.pyc"))
    assert store.add(archive).dir == entry


def test_a_pex_has_its_dependencies_beside_the_code(store: PackageStore, tmp_path: Path) -> None:
    entries: dict[str, str | bytes | tuple[str, int]] = {
        ".deps/lib-1.0.whl/lib/__init__.py": "lib",
        ".deps/lib-1.0.whl/mine.py": "not mine",
        ".deps/other.whl/LICENSE": "1",
        ".deps/third.whl/LICENSE": "2",
        "PEX-INFO": "{}",
        "mine.py": "mine",
    }
    path = zip_file(tmp_path / "x.pex", entries)
    path.write_bytes(b"#!/usr/bin/env python\n" + path.read_bytes())
    found = content(store.add(path).dir)
    assert found == {"lib/__init__.py": "lib", "mine.py": "mine", "LICENSE": "1", "PEX-INFO": "{}"}
    packed = zip_file(tmp_path / "y.pex", {"PEX-INFO": "{}", ".deps/lib.whl": "zip"})
    with pytest.raises(PackageError, match=r"'\.deps/lib\.whl' in the pex is packed"):
        store.add(packed)


LINK = stat.S_IFLNK | 0o777
EVIL_ZIPS: list[dict[str, str | bytes | tuple[str, int]]] = [
    {"../evil": "x"},
    {"a/../../evil": "x"},
    {"/tmp/evil": "x"},
    {"..": "x"},
    {"..\\evil": "x"},
    {"C:/evil": "x"},
    {"a\x00b": "x"},
    {"a\nb": "x"},
    {"x" * 300: "x"},
    {"../evil/": ("", stat.S_IFDIR)},
    {"link": ("/etc/passwd", LINK)},
    {"link": ("../evil", LINK)},
    {"link": ("", LINK)},
    {"link": (".", LINK)},
    {"link": ("link", LINK)},
    {"link": ("missing", LINK)},
    {"a": (".", LINK), "a/evil": "x"},
    {"d/x": "x", "a": ("d", LINK), "a/b": ("d/x", LINK)},
    {"d/x": "x", "a": ("d", LINK), "a/y": "x"},
    {"device": ("", stat.S_IFCHR)},
    {"pipe": ("", stat.S_IFIFO)},
    {"a": "x", "a/b": "x"},
    {"a/b": "x", "a": "x"},
    {"a": "x", "./a": "y"},
]


@pytest.mark.parametrize("entries", EVIL_ZIPS, ids=lambda entries: ascii(list(entries)[-1])[:30])
def test_an_evil_zip_is_refused_and_leaves_nothing(
    store: PackageStore, tmp_path: Path, entries: dict[str, str | bytes | tuple[str, int]]
) -> None:
    path = zip_file(tmp_path / "evil.zip", entries)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(PackageError, match="in the package") as caught:
        store.add(path)
    assert any(repr(name.rstrip("/"))[1:-1][:40] in str(caught.value) for name in entries)
    assert leftovers(tmp_path) == []
    assert sorted(path for path in tmp_path.iterdir() if path.name != "store") == before
    assert not Path("/tmp/evil").exists()


@pytest.mark.parametrize(
    "members",
    [
        [member("../evil")],
        [member("/tmp/evil")],
        [member("device", tarfile.CHRTYPE)],
        [member("device", tarfile.BLKTYPE)],
        [member("pipe", tarfile.FIFOTYPE)],
        [member("link", tarfile.SYMTYPE, "/etc/passwd")],
        [member("a/link", tarfile.SYMTYPE, "../../evil")],
        [member("link", tarfile.LNKTYPE, "../evil")],
        [member("link", tarfile.LNKTYPE, "/etc/passwd")],
        [member("a", tarfile.SYMTYPE, "b"), member("b", tarfile.SYMTYPE, "a")],
        [member("a", tarfile.SYMTYPE, ".."), member("a/evil")],
        [member("a/x"), member("a", tarfile.SYMTYPE, "b"), member("b/y")],
        [member("a"), member("a")],
    ],
    ids=lambda members: "-".join(f"{one.name}:{one.type.decode()}:{one.linkname}" for one in members),
)
def test_an_evil_tar_is_refused(store: PackageStore, tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    path = tar_file(tmp_path / "evil.tar", *members, data=b"x")
    with pytest.raises(PackageError, match="in the package"):
        store.add(path)
    assert leftovers(tmp_path) == []


def test_caps_hold_for_what_is_really_there(tmp_path: Path) -> None:
    store = PackageStore(tmp_path / "store", files_max=3, bytes_max=5000)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(1_000_000))
    assert bomb.stat().st_size < 5000
    with pytest.raises(PackageError, match="more than 5000 bytes"):
        store.add(bomb)
    with pytest.raises(PackageError, match="more than 3 files"):
        store.add(zip_file(tmp_path / "many.zip", {str(number): "" for number in range(4)}))
    directory = tmp_path / "code"
    directory.mkdir()
    for number in range(4):
        (directory / f"{number}.py").write_text("")
    with pytest.raises(PackageError, match="more than 3 files"):
        store.add(directory)
    (directory / "0.py").unlink()
    (directory / "1.py").write_bytes(bytes(5001))
    for path in (directory, directory / "1.py"):
        with pytest.raises(PackageError, match="more than 5000 bytes"):
            store.add(path)
    assert leftovers(tmp_path) == []


def test_what_is_no_package_is_one_sentence(store: PackageStore, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("text")
    with pytest.raises(PackageError, match="does not exist"):
        store.add(tmp_path / "missing.py")
    with pytest.raises(PackageError, match=r"submit a \.py file, a directory, or a zip"):
        store.add(tmp_path / "x.txt")


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz"])
def test_a_damaged_archive_is_refused(store: PackageStore, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "x.zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.py", os.urandom(2000).hex())
    else:
        tar_file(path, member("a.py"), data=os.urandom(2000).hex().encode())
    whole = path.read_bytes()
    for at in range(60, len(whole) - 200, 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with pytest.raises(PackageError) as caught:
            store.add(path)
        assert "\n" not in str(caught.value)
    assert leftovers(tmp_path) == []


@hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(st.sampled_from("ab./\\ \n~:"), min_size=1, max_size=8),
        st.tuples(st.text(st.sampled_from("ab./"), max_size=8), st.sampled_from([0o100644, LINK])),
        max_size=5,
    )
)
def test_no_archive_writes_outside(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, tuple[str, int]]
) -> None:
    base = tmp_path_factory.mktemp("fuzz")
    path = zip_file(base / "x.zip", dict(entries))
    try:
        package = PackageStore(base / "store").add(path)
    except PackageError:
        assert leftovers(base) == []
    else:
        for found in package.dir.rglob("*"):
            assert found.resolve().is_relative_to(package.dir)
    assert sorted(item.name for item in base.iterdir()) in (["store", "x.zip"], ["x.zip"])
    assert len(list((base / "store").iterdir())) <= 4


def test_a_package_that_changes_while_it_is_read_is_refused(
    store: PackageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.py"
    file.write_text("1")
    unpack = packages.unpack

    def change(*arguments: object) -> None:
        file.write_text("2")
        unpack(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(packages, "unpack", change)
    with pytest.raises(PackageError, match="changed while it was read"):
        store.add(file)
    assert leftovers(tmp_path) == []


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    store: PackageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("1")
    with monkeypatch.context() as patch:

        def full(path: Path) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(packages, "_sync", full)
        with pytest.raises(PackageError, match=r"cannot be stored: .*: No space left on device$"):
            store.add(tmp_path / "a.py")
    assert leftovers(tmp_path) == []
    assert content(store.add(tmp_path / "a.py").dir) == {"a.py": "1"}


def test_unused_entries_are_pruned(store: PackageStore, tmp_path: Path) -> None:
    found = []
    for number in range(3):
        (tmp_path / f"{number}.py").write_text("")
        found.append(store.add(tmp_path / f"{number}.py"))
    os.utime(found[0].dir, (0, 0))
    os.utime(found[1].dir, (0, 0))
    assert store.prune({found[1].sha256}, unused_s=3600) == [found[0].sha256]
    assert [package.dir.exists() for package in found] == [False, True, True]
    assert leftovers(tmp_path) == []
    assert store.add(tmp_path / "0.py") == found[0]
    assert content(found[0].dir) == {"0.py": ""}


def run(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE)


def test_many_processes_add_one_package_once(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for number in range(50):
        (code / f"m{number}.py").write_text("x" * 1000)
    add = """
import sys, pathlib
from heronpy.storage import packages
unpack = packages.unpack
def counted(*arguments):
    print("unpacked", flush=True)
    unpack(*arguments)
packages.unpack = counted
package = packages.PackageStore(sys.argv[1]).add(sys.argv[2])
assert len(list(package.dir.iterdir())) == 50
print(package.sha256, flush=True)
"""
    processes = [run(add, str(tmp_path / "store"), str(code)) for _ in range(8)]
    output = b"".join(process.communicate(timeout=DEADLINE_S)[0] for process in processes)
    lines = output.decode().split()
    assert all(process.returncode == 0 for process in processes)
    assert lines.count("unpacked") == 1
    assert len(set(lines)) == 2
    assert len(lines) == 9


@pytest.mark.parametrize("after", [1, 7, 20, 21])
def test_a_crash_in_the_middle_leaves_no_half_entry(tmp_path: Path, after: int) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for number in range(20):
        (code / f"m{number:02}.py").write_text(str(number))
    add = """
import os, signal, sys
from heronpy.storage import packages, sources
count = 0
def die_after(original):
    def wrapper(*arguments):
        global count
        count += 1
        if count == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)
    return wrapper
sources._write = die_after(sources._write)
packages._sync = die_after(packages._sync)
packages.PackageStore(sys.argv[1]).add(sys.argv[2])
"""
    process = run(add, str(tmp_path / "store"), str(code), str(after))
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == -signal.SIGKILL
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == [".locks", ".manifests", ".tmp"]
    assert len(leftovers(tmp_path)) == 1

    assert len(content(PackageStore(tmp_path / "store").add(code).dir)) == 20
    assert leftovers(tmp_path) == []


def test_an_archive_lies_beside_what_it_unpacks_to(store: PackageStore, tmp_path: Path) -> None:
    """Tasks written for Apache Heron open the .pex that was submitted and read files from its folder."""
    tar_file(tmp_path / "x.tar.gz", member("lib/a.py"), member("lib/link.py", tarfile.SYMTYPE, "a.py"), data=b"A = 1")
    zip_file(tmp_path / "x.pex", {"lib/a.py": "A = 1", "PEX-INFO": "{}", ".deps/d.whl/d.py": "D = 1"})
    (tmp_path / "folder/lib").mkdir(parents=True)
    (tmp_path / "folder/lib/a.py").write_text("A = 1")
    found = {}
    for name in ("x.tar.gz", "x.pex", "folder"):
        package = store.add(tmp_path / name, archived=True)
        archive = archive_in(package.dir)
        assert archive.parent == package.dir and stat.S_IMODE(archive.stat().st_mode) == 0o600
        assert (package.dir / "lib/a.py").read_text() == "A = 1"
        with zipfile.ZipFile(archive) as opened:
            assert opened.read("lib/a.py") == b"A = 1"
            found[name] = set(opened.namelist())
        assert zipimport.zipimporter(str(archive) + "/lib").find_spec("a") is not None
        assert store.add(tmp_path / name, archived=True) == package
        alone = store.add(tmp_path / name)
        assert alone.sha256 != package.sha256 and not archive_in(alone.dir).exists()
    assert found["x.tar.gz"] == {"lib/a.py", "lib/link.py"} and found["folder"] == {"lib/a.py"}
    assert (
        ".deps/d.whl/d.py" in found["x.pex"]
        and archive_in(store.add(tmp_path / "x.pex", archived=True).dir).read_bytes()
        == (tmp_path / "x.pex").read_bytes()
    )


def test_equal_content_has_an_equal_archive(tmp_path: Path) -> None:
    archives = []
    for place in ("one", "two"):
        (tmp_path / place / "code").mkdir(parents=True)
        (tmp_path / place / "code/a.py").write_text("A = 1")
        os.utime(tmp_path / place / "code/a.py", (1_700_000_000 + len(place) + len(archives),) * 2)
        package = PackageStore(tmp_path / place / "store").add(tmp_path / place / "code", archived=True)
        archives.append((package.sha256, archive_in(package.dir).read_bytes()))
    assert archives[0] == archives[1]
