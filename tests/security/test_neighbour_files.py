"""Files of heronpy and another user of the machine: what he may read, write, swap or plant (attacks that worked)."""

from __future__ import annotations

import ast
import io
import os
import pwd
import py_compile
import re
import stat
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from heronpy.clusters.takedown import belongs
from heronpy.clusters.target import unix_user
from heronpy.common.errors import ConfigError, HeronError, PackageError
from heronpy.common.folders import check_root, make_folders, make_output, read_own
from heronpy.proto import checkpoint_pb2
from heronpy.storage.checkpoints import CheckpointStore, DamagedFileError
from heronpy.storage.locations import check_trusted, open_location
from heronpy.storage.package_manifest import check_entry
from heronpy.storage.packages import PackageStore
from tests.security.evil import TERMINAL
from tests.security.other_user import NOBODY, needs_root, reached, run_as_nobody
from tests.support.command import EXAMPLES, REPO, Heron
from tests.support.waiting import wait_for

# ---- folders with their parents -------------------------------------------------------------------------


@pytest.fixture
def no_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def test_every_level_that_is_made_is_private(tmp_path: Path, no_umask: object) -> None:
    make_folders(tmp_path / "a" / "b" / "c")
    for folder in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700
    make_folders(tmp_path / "a" / "b" / "c")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_folders(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        make_folders("/proc/no-such/folder")  # which says so of each folder, also of one whose parent is there


def test_what_users_read_keeps_their_umask(tmp_path: Path, no_umask: object) -> None:
    os.umask(0o022)
    make_output(tmp_path / "out" / "part")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o755


def test_folders_with_parents_are_made_in_one_place_only() -> None:
    """`parents=True` gives the mode to the last level alone, and `os.makedirs` too."""
    found = []
    for room in ("heronpy", "instance", "stmgr", "scripts", "topologies"):
        for path in sorted((REPO / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name == "makedirs" or (name == "mkdir" and any(key.arg == "parents" for key in node.keywords)):
                    found.append(f"{path.relative_to(REPO)}:{node.lineno}")
    assert [place.partition(":")[0] for place in found] == ["heronpy/common/folders.py"], found


@pytest.mark.parametrize(
    ("mode", "problem"),
    [(0o700, ""), (0o755, ""), (0o770, "chmod go-w"), (0o707, "chmod go-w"), (0o1777, "chmod go-w")],
)
def test_a_root_that_others_may_write_is_refused_with_the_command_that_helps(
    tmp_path: Path, mode: int, problem: str
) -> None:
    root = tmp_path / "a root"
    root.mkdir()
    root.chmod(mode)
    if not problem:
        check_root(root, "HERON_HOME")
        return
    with pytest.raises(ConfigError, match=problem) as caught:
        check_root(root, "HERON_HOME")
    assert f"'{root}'" in str(caught.value)  # to be pasted as it is
    if mode & stat.S_ISVTX:
        check_root(root, "The checkpoint store", sticky=True)


def test_a_root_below_a_folder_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    between = tmp_path / "between"
    (between / "home").mkdir(parents=True)
    between.chmod(0o777)
    for root in (between / "home", between / "home" / "not yet"):
        with pytest.raises(ConfigError, match="which is writable by all users; run: chmod o-w"):
            check_root(root, "HERON_HOME")
    between.chmod(0o1777)
    check_root(between / "home", "HERON_HOME")


@needs_root
def test_a_root_of_another_user_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "home"
    root.mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(root)
    check_root(tmp_path / "link", "HERON_HOME")
    os.lchown(tmp_path / "link", NOBODY, NOBODY)
    with pytest.raises(ConfigError, match="belongs to another user"):
        check_root(tmp_path / "link", "HERON_HOME")
    os.chown(root, NOBODY, NOBODY)
    with pytest.raises(ConfigError, match=r"belongs to another user \((nobody, )?uid 65534\)"):
        check_root(root, "HERON_HOME")


@needs_root
def test_a_root_in_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """He could rename what is in it, and put a package of his own in its place."""
    between = tmp_path / "neighbour" / "shared"
    (between / "home").mkdir(parents=True)
    os.chown(tmp_path / "neighbour", NOBODY, NOBODY)
    owner = r"another user \((nobody, )?uid 65534\)"
    problem = rf"reached through the folder {tmp_path / 'neighbour'}, which belongs to {owner}"
    for root in (between / "home", between / "home" / "not yet"):
        with pytest.raises(ConfigError, match=problem):
            check_root(root, "HERON_HOME")
    with pytest.raises(ConfigError, match=problem):
        check_root(between / "home", "The checkpoint store", sticky=True)
    (tmp_path / "link").symlink_to(tmp_path / "neighbour")
    with pytest.raises(ConfigError, match=problem):
        check_root(tmp_path / "link" / "shared" / "home", "HERON_HOME")


@needs_root
def test_a_link_of_another_user_on_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine" / "home").mkdir(parents=True)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    link = tmp_path / "open" / "link"
    link.symlink_to(tmp_path / "mine")
    check_root(link / "home", "HERON_HOME")
    os.lchown(link, NOBODY, NOBODY)
    (tmp_path / "mine" / "again").symlink_to("../open/link/home")
    for root in (link / "home", link / "not yet", tmp_path / "mine" / "again"):
        with pytest.raises(ConfigError, match=r"reached through the link .*open/link, which belongs to another user"):
            check_root(root, "HERON_HOME")


@needs_root
@pytest.mark.parametrize("what", ["writable", "foreign"])
def test_sockets_are_not_put_where_others_could_replace_them(heron: Heron, home: Path, what: str) -> None:
    folder = home.parent / "s"  # short, as a socket's path must be
    folder.mkdir()
    heron.env["TMPDIR"] = str(folder)
    if what == "writable":
        folder.chmod(0o777)
    else:
        os.chown(folder, NOBODY, NOBODY)
    problem = "writable by other users" if what == "writable" else "belongs to another user"
    heron("submit", "local", EXAMPLES / "word_count.py").refused(2, "the folder for temporary files", problem)
    assert heron.names() == []
    folder.chmod(0o700)
    os.chown(folder, 0, 0)


def test_a_home_that_others_may_write_stops_a_submit(heron: Heron) -> None:
    heron.home.chmod(0o770)
    try:
        for words in (("submit", "local", EXAMPLES / "word_count.py"), ("kill", "local", "x"), ("list", "local")):
            result = heron(*words)
            assert "HERON_HOME" in result.refused(2, f"is writable by other users; run: chmod go-w {heron.home}")
    finally:
        heron.home.chmod(0o700)


def test_a_file_that_another_user_could_have_written_is_not_read(tmp_path: Path) -> None:
    """Launch files and the copies of plans are read this way."""
    file = tmp_path / "launch.json"
    file.write_text("{}")
    file.chmod(0o600)
    assert read_own(file, 2) == b"{}"
    with pytest.raises(ConfigError, match="larger than 1 bytes"):
        read_own(file, 1)
    large = tmp_path / "large"
    large.write_bytes(bytes(100_000))
    assert read_own(large, 100_000) == bytes(100_000)
    with pytest.raises(ConfigError):
        read_own(large, 99_999)
    for mode in (0o620, 0o602):
        file.chmod(mode)
        with pytest.raises(ConfigError, match="is writable by other users"):
            read_own(file, 2)
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError):
        read_own(tmp_path / "link", 2)
    with pytest.raises(ConfigError, match="is not a file"):
        read_own(tmp_path / "pipe", 2)
    if os.geteuid() == 0:
        file.chmod(0o600)
        os.chown(file, NOBODY, NOBODY)
        with pytest.raises(ConfigError, match="belongs to another user"):
            read_own(file, 2)


# ---- a running topology ---------------------------------------------------------------------------------


@needs_root
def test_nothing_of_a_running_topology_is_open_to_another_user(tmp_path: Path, home: Path) -> None:
    """Submitted under umask 000 into folders that are not there yet, sockets in a folder like /tmp."""
    sockets = home.parent / "t"
    for folder, mode in ((home.parent, 0o755), (home, 0o755), (sockets, 0o1777)):
        folder.chmod(mode)
    heron = Heron(home / "deep" / "down" / "home")
    heron.cwd = home
    try:
        example = (EXAMPLES / "stateful_word_count.py", "Counts", "--file", REPO / "LICENSE", "--out", tmp_path / "out")
        heron("submit", "local", *example, "--times", 1000, "--rate", 50, umask=0).ok()
        heron.when_state("Counts", "RUNNING")
        taken = home / "deep" / "down" / "home" / "checkpoints"
        wait_for(lambda: any(taken.rglob("metadata")), 60, "a checkpoint")
        known = [str(path) for root in (home, sockets) for path in root.rglob("*")]
        assert any(name.endswith("scheduler.log") for name in known) and any(Path(name).is_socket() for name in known)
        here = {str(home), str(sockets)}
        open_to_all = [(what, path) for what, path in reached(home, sockets, known=known) if path not in here]
        assert open_to_all == []
        assert ("write", str(sockets)) in reached(sockets, known=[])  # the walk does find what is open
        modes = {}
        for name in known:
            with suppress(FileNotFoundError):  # it runs: files come and go
                if not os.path.islink(name):
                    modes[name] = stat.S_IMODE(os.lstat(name).st_mode)
        logs = {name: mode for name, mode in modes.items() if name.endswith((".log", ".json", ".pid", ".key"))}
        assert logs and set(logs.values()) == {0o600}, logs
    finally:
        heron.kill("Counts")


# ---- the package cache ----------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.mkdir()
    (path / "main.py").write_text("MINE = 1\n")
    (path / "helper.py").write_text("HELP = 1\n")
    return path


@pytest.mark.parametrize("known", [True, False])
def test_a_stored_package_that_was_changed_is_not_taken(tmp_path: Path, program: Path, known: bool) -> None:
    """Also when no manifest says what was stored: then it is compared with what is submitted."""
    store = PackageStore(tmp_path / "packages")
    entry = store.add(program).dir
    manifest = tmp_path / "packages" / ".manifests" / f"{entry.name}.json"
    if not known:
        manifest.unlink()
    py_compile.compile(str(entry / "helper.py"))
    (entry / "__pycache__" / "main.cpython-311.opt-1.pyc.140735").write_bytes(b"of a Python that was killed")
    assert store.add(program).dir == entry and manifest.exists()
    if not known:
        manifest.unlink()
    status = (entry / "main.py").stat()
    (entry / "main.py").write_text("EVIL = 1\n")
    os.utime(entry / "main.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(
        PackageError, match=r"has 'main.py' with content that differs from the submitted file; remove that folder"
    ):
        store.add(program)
    (entry / "main.py").unlink()
    with pytest.raises(PackageError, match=r"lacks 'main.py'"):
        store.add(program)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    "added",
    ["json.py", "helper.pyc", "helper.cpython-311-x86_64-linux-gnu.so", "lib/a.py", "__pycache__/json.cpython-311.pyc",
     "__pycache__/helper.py", "lib/__pycache__/helper.cpython-311.pyc"],
)  # fmt: skip
def test_a_package_with_a_file_that_was_added_is_not_taken(
    tmp_path: Path, program: Path, added: str, known: bool
) -> None:
    """It could hide a module of the package or of Python: json.py would be loaded in place of Python's own."""
    store = PackageStore(tmp_path / "packages")
    entry = store.add(program).dir
    if not known:
        (tmp_path / "packages" / ".manifests" / f"{entry.name}.json").unlink()
    (entry / added).parent.mkdir(parents=True, exist_ok=True)
    (entry / added).write_text("EVIL = 1\n")
    with pytest.raises(
        PackageError, match=f"contains '{re.escape(added)}', which was not submitted; remove that folder"
    ):
        store.add(program)
    (entry / added).unlink()
    (entry / "__pycache__").mkdir(exist_ok=True)
    (entry / "__pycache__" / "helper.cpython-311.pyc").symlink_to("/tmp/elsewhere.pyc")
    with pytest.raises(PackageError, match="which was not submitted"):
        store.add(program)
    (entry / "__pycache__" / "helper.cpython-311.pyc").unlink()
    assert store.add(program).dir == entry


@needs_root
def test_a_package_that_a_stranger_swapped_is_not_taken(tmp_path: Path, program: Path) -> None:
    """The attack: the cache's folder had the umask's mode, so an entry could be moved aside and another one put there."""
    store = PackageStore(tmp_path / "packages")
    entry = store.add(program).dir
    for folder in (entry.parent, *entry.parents):
        if (
            folder.stat().st_uid == 0
            and folder != Path("/")
            and folder.is_relative_to("/tmp")
            and folder != Path("/tmp")
        ):
            folder.chmod(folder.stat().st_mode | 0o055)
    swap = "import os, sys; e = sys.argv[1]; os.rename(e, e + '.old'); os.mkdir(e, 0o700); open(e + '/main.py', 'w').write('EVIL = 1')"
    with pytest.raises(AssertionError, match="PermissionError"):
        run_as_nobody(swap, entry)
    entry.parent.chmod(0o777)
    with pytest.raises(ConfigError, match=r"the package cache .* is writable by other users"):
        store.add(program)
    run_as_nobody(swap, entry)
    entry.parent.chmod(0o755)
    with pytest.raises(PackageError, match="belongs to another user"):
        store.add(program)
    with pytest.raises(PackageError, match="belongs to another user"):
        check_entry(entry)
    subprocess.run(["rm", "-r", "--", str(entry), f"{entry}.old"], check=True)
    entry = store.add(program).dir
    os.chown(entry / "helper.py", NOBODY, NOBODY)
    with pytest.raises(HeronError, match=r"has 'helper.py' of another user"):
        check_entry(entry)


# ---- checkpoint metadata --------------------------------------------------------------------------------


def metadata_of(topology: str) -> checkpoint_pb2.Metadata:
    return checkpoint_pb2.Metadata(version=1, checkpoint=1, topology=topology, topology_id=f"{topology}-1")


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A whole checkpoint, in a store of two folders."""
    return Path(CheckpointStore(tmp_path / "store" / "wc-1", fsync=False).write_metadata(metadata_of("wc")))


@pytest.mark.parametrize("mode", [0o020, 0o002])
@pytest.mark.parametrize(
    "which", [lambda at: at / "metadata", lambda at: at, lambda at: at.parent, lambda at: at.parent.parent]
)
def test_metadata_that_others_may_replace_is_not_read(location: Path, which: Callable[[Path], Path], mode: int) -> None:
    path = which(location)
    path.chmod(path.stat().st_mode | mode)
    for look in (check_trusted, open_location):
        with pytest.raises(
            DamagedFileError, match="can be changed by other users, so it is not restored; run: chmod go-w"
        ):
            look(str(location))
    path.chmod(path.stat().st_mode & ~mode)
    assert open_location(str(location))[1].topology == "wc"


def test_a_store_may_be_a_folder_like_tmp(location: Path) -> None:
    location.parent.parent.chmod(0o1777)
    assert open_location(str(location))[1].topology == "wc"


@needs_root
@pytest.mark.parametrize("which", [lambda at: at / "metadata", lambda at: at, lambda at: at.parent])
def test_metadata_of_another_user_is_not_read(location: Path, which: Callable[[Path], Path]) -> None:
    os.chown(which(location), NOBODY, NOBODY)
    for look in (check_trusted, open_location):
        with pytest.raises(DamagedFileError, match="belongs to another user"):
            look(str(location))


@pytest.mark.parametrize("name", ["metadata", ""])
def test_metadata_is_not_read_through_a_link(location: Path, name: str) -> None:
    """The link leads to a file that would pass: it is the link that another user may turn round later."""
    path = location / name
    path.rename(location.parent / "aside")
    path.symlink_to(location.parent / "aside")
    with pytest.raises(DamagedFileError, match="cannot be read"):
        open_location(str(location))


@pytest.mark.parametrize("name", ["metadata", ""])
def test_no_race_wins_against_the_check_of_metadata(tmp_path: Path, location: Path, name: str) -> None:
    """The attack: between the look at a file and its opening, another one takes its place."""
    evil = Path(CheckpointStore(tmp_path / "other" / "wc-1", fsync=False).write_metadata(metadata_of("evil")))
    (evil / "metadata").chmod(0o666)
    good, bad, place = location.parent / "good", location.parent / "bad", location / name
    place.rename(good)
    (evil / name).rename(bad)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for file in (good, bad):
                os.rename(file, place)
                os.rename(place, file)

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = []
    try:
        while len(seen) < 4000:
            try:
                check_trusted(str(location))
                seen.append(open_location(str(location))[1].topology)
            except DamagedFileError as error:
                seen += ["refused"] if "changed by other users" in str(error) else []
    finally:
        stop.set()
        swapping.join()
    assert "evil" not in seen
    assert "refused" in seen or "wc" in seen


# ---- names and packages ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../tmp/x", "a b", "-rf", "$(id)", "x\u202ey", "x\u3164y", ""])
def test_the_role_is_the_users_name_as_the_system_knows_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "somebody-else")
    assert unix_user() == pwd.getpwuid(os.getuid()).pw_name
    entry = pwd.struct_passwd((name, "x", os.getuid(), 0, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    assert unix_user() == f"uid{os.getuid()}"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("a\nb.py", "control character"),
        ("a\u202eyp.b.py", "hides or reorders"),
        ("a\u061cyp.b.py", "hides or reorders"),
        ("a\xadb\U000e0041.py", "hides or reorders"),
        ("a\u200bb.py", "hides or reorders"),
        ("a\x9bb.py", "control character"),
        ("/".join(["d"] * 101) + "/a.py", "nested deeper than 100 folders"),
        ("d/" * 900 + "a.py", "nested deeper|too long"),
        ("x" * 256 + ".py", "too long"),
    ],
)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_entry_with_an_odd_name_is_refused_and_named(tmp_path: Path, entry: str, problem: str, kind: str) -> None:
    path = tmp_path / f"x.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo(entry), "")
    else:
        with tarfile.open(path, "w") as archive:
            archive.addfile(tarfile.TarInfo(entry), io.BytesIO())
    with pytest.raises(PackageError, match=problem) as caught:
        PackageStore(tmp_path / "packages").add(path)
    assert ascii(entry[:5])[1:-1] in str(caught.value) and not TERMINAL.search(str(caught.value))


def test_a_file_with_an_odd_name_in_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a\u202eb.py").touch()
    with pytest.raises(PackageError, match="hides or reorders"):
        PackageStore(tmp_path / "packages").add(tmp_path / "code")


# ---- which processes a kill may end ---------------------------------------------------------------------

LAUNCH = "/h/topologies/local/me/wc/launch.json"


@pytest.mark.parametrize(
    ("argv", "inherited", "terminal", "ours"),
    [
        (["python", "-P", "-m", "heronpy.scheduler", "--launch", LAUNCH], None, False, True),
        (["python", "-X", "dev", "-m", "stmgr", f"--launch={LAUNCH}", "--container", "1"], None, True, True),
        (["heron: container_1_word_1"], LAUNCH, False, True),
        (["java", "-cp", "spark"], LAUNCH, False, True),
        (["vim", LAUNCH], None, True, False),
        (["tail", "-f", LAUNCH], None, False, False),
        (["python", "-c", "x", "--launch", LAUNCH], None, False, False),
        (["python", "tool.py", "-m", "heronpy.scheduler", "--launch", LAUNCH], None, False, False),
        (["python", "-m", "mytool", "--launch", LAUNCH], None, False, False),
        (["python", "-m", "heronpy.scheduler", "--launch", LAUNCH + ".old"], None, False, False),
        (["python", "-m", "heronpy.scheduler", "--launch", "/other", LAUNCH], "/other", False, False),
        (["python", "-m"], None, False, False),
        (["python", "-", "-m", "heronpy.scheduler", "--launch", LAUNCH], None, False, False),
        (["grep", "-m", "heronpy.scheduler", "--launch", LAUNCH], None, False, False),
        ([], None, False, False),
        (["bash"], LAUNCH, True, False),
    ],
)
def test_a_kill_ends_what_belongs_to_the_topology_only(
    argv: list[str], inherited: str | None, terminal: bool, ours: bool
) -> None:
    assert belongs(argv, inherited, terminal, LAUNCH) is ours
