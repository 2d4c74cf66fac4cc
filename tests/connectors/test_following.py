"""Following logs against a model: whatever rotates and dies, each line once, or what is lost is named."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heronpy.connectors.textfiles import finding, places
from heronpy.connectors.textfiles.decoding import LineDecoder
from heronpy.connectors.textfiles.followed import Table
from heronpy.connectors.textfiles.following import FollowedBlock, Follower
from heronpy.growing.identity import Fingerprint
from heronpy.growing.patterns import parse
from tests.support.command import REPO
from tests.support.growing_logs import GrowingLogs
from tests.support.waiting import wait_for

#: All of the files that rotation makes match the first, only the logs themselves the second.
PATTERNS = ("*.log*", "*.log")


class Task:
    """One reader, as the spout drives it."""

    def __init__(self, pattern: str, index: int, tasks: int, block_bytes: int, **more: Any) -> None:
        self.index, self.tasks = index, tasks
        self.make = lambda: Follower([parse(pattern)], LineDecoder(), block_bytes=block_bytes, **more)
        self.rows: list[str] = []
        self.told: list[str] = []
        self.start(None)

    def start(self, state: Any) -> None:
        self.follower = self.make()
        self.block: FollowedBlock | None = None
        self.done = 0
        if state is not None:
            self.follower.restore(state)

    def attend(self, now: float) -> None:
        self.follower.attend(now, self.index, self.tasks)
        self.told += [notice.text for notice in self.follower.notices() if notice.is_error]

    def read(self, lines: int) -> bool:
        while lines:
            if self.block is None or self.done == len(self.block.lines):
                self.block, self.done = self.follower.next_block(), 0
                if self.block is None:
                    return False
            self.rows.append(self.block.lines[self.done])
            self.done += 1
            lines -= 1
        return True

    def save(self) -> tuple[Any, int]:
        return pickle.loads(pickle.dumps(self.kept())), len(self.rows)

    def kept(self) -> dict[tuple[str, int], Any]:
        state: dict[tuple[str, int], Any] = {}
        self.follower.keep(self.done, state, 0)
        return state

    def restore(self, saved: tuple[Any, int]) -> None:
        del self.rows[saved[1] :]
        self.start(saved[0])


class World:
    """Logs and the tasks that follow them, on a clock of their own."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, pattern: str, tasks: int, block_bytes: int, **more: Any
    ):
        self.folder = folder
        self.logs = GrowingLogs(folder, 1, ("app.log", "b-1.log"), **more)
        self.tasks = [Task(f"{folder}/{pattern}", index, tasks, block_bytes) for index in range(tasks)]
        self.saved: list[Any] = [(None, 0)] * tasks
        self.now = 0.0
        self._later_ns = 0
        patch.setattr(
            finding, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + self._later_ns, monotonic=time.monotonic)
        )

    def look(self, is_quiet: bool = False) -> None:
        if is_quiet:
            # What changes from now on has a later time than all that is there.
            newest = max((entry.stat().st_ctime_ns for entry in os.scandir(self.folder)), default=0)
            mark = self.folder / "tick"
            while True:
                mark.write_bytes(b"")
                if mark.stat().st_ctime_ns > newest:
                    break
            self._later_ns = 10**10
        self.now += 30.0
        for task in self.tasks:
            task.attend(self.now)
        self._later_ns = 0

    def drain(self) -> None:
        for log in self.logs.written.lines:
            self.logs.finish(log)
        for _ in range(finding.MISSES + 3):
            self.look()
            for task in self.tasks:
                assert not task.read(10**6)

    def rows(self) -> list[str]:
        return [row for task in self.tasks for row in task.rows]

    def told(self) -> list[str]:
        return [text for task in self.tasks for text in task.told]

    def do(self, act: str, number: int) -> None:
        log = list(self.logs.written.lines)[number % 2]
        if act == "append":
            self.logs.append(log, 1 + number % 7)
        elif act == "look":
            self.look()
        elif act == "quiet":
            self.look(is_quiet=True)
        elif act == "read":
            self.tasks[number % len(self.tasks)].read(1 + number)
        elif act == "save":
            self.saved = [task.save() for task in self.tasks]
        elif act == "crash":
            for task, saved in zip(self.tasks, self.saved, strict=True):
                task.restore(saved)
        else:
            getattr(self.logs, act)(log)


WRITING = ("append", "append", "append", "begin", "finish", "rename", "copytruncate")
READING = ("look", "look", "quiet", "read", "read", "read")


def acts(*names: str) -> st.SearchStrategy[list[tuple[str, int]]]:
    return st.lists(st.tuples(st.sampled_from(names), st.integers(0, 20)), max_size=60)


@settings(deadline=None, max_examples=120)
@given(
    acts(*WRITING, *READING, "copy", "save", "crash"),
    st.sampled_from(PATTERNS),
    st.integers(1, 3),
    st.sampled_from([16, 200, 4096]),
)
def test_each_line_once_through_rotation_and_restores(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], pattern: str, tasks: int, block_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    with pytest.MonkeyPatch.context() as patch:
        world = World(folder, patch, pattern, tasks, block_bytes)
        for act, number in steps:
            # With a narrow pattern nobody can find a file that was rotated before anybody has seen it.
            if act in ("rename", "copytruncate") and pattern == "*.log":
                for log in world.logs.written.lines:
                    world.logs.finish(log)
                world.look()
                world.saved = [task.save() for task in world.tasks]
            world.do(act, number)
        world.drain()
        wrong = world.logs.judge(world.rows())
        assert not wrong, (wrong, world.told())
    shutil.rmtree(folder)


@settings(deadline=None, max_examples=80)
@given(acts(*WRITING, *READING, "truncate"), st.integers(1, 3), st.sampled_from([16, 4096]))
# A new log may get the inode of one that was removed before it was read.
@example([*[("append", 0)] * 5, ("rename", 0), ("rename", 0), ("begin", 0), ("look", 0)], 1, 16)
def test_what_is_thrown_away_before_it_is_read_is_named(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], tasks: int, block_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    with pytest.MonkeyPatch.context() as patch:
        world = World(folder, patch, "*.log*", tasks, block_bytes, keep=1)
        for act, number in steps:
            if act in ("truncate", "rename", "copytruncate"):
                # What nobody has ever seen, nobody can name.
                for log in world.logs.written.lines:
                    world.logs.finish(log)
                world.look()
            world.do(act, number)
        world.drain()
        wrong = world.logs.judge(world.rows())
        assert not wrong.doubled and not wrong.foreign
        lost = sum(task.follower.figures()["lost-bytes"] for task in world.tasks)
        assert lost == sum(len(line) + 1 for line in wrong.missing), (wrong, world.told())
        assert bool(lost) == any("are lost" in text for text in world.told())
    shutil.rmtree(folder)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_writer_and_logrotate_at_full_speed(tmp_path: Path, seed: int) -> None:
    """What happens in the middle of a look or a read: processes of their own do not wait for them."""
    lines = 1500
    words = ["--seed", seed, "--logs", 2, "--lines", lines, "--pause-s", 0.001]
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.support.growing_logs", str(tmp_path), *map(str, words)], cwd=REPO
    )
    tasks = [Task(f"{tmp_path}/*.log*", index, 2, 500) for index in range(2)]
    chance = random.Random(seed)

    def ended() -> bool:
        has_ended = writer.poll() is not None
        for task in tasks:
            task.attend(time.monotonic())
            task.read(200)
            if chance.random() < 0.1:
                task.restore(task.save())
        return has_ended

    try:
        wait_for(ended, 120.0, "the end of the writer")
    finally:
        writer.kill()
        writer.wait()
    for _ in range(finding.MISSES):
        for task in tasks:
            task.attend(time.monotonic())
            assert not task.read(10**6)
    logs = GrowingLogs(tmp_path, seed)
    logs.written.lines = {f"app-{number}.log": lines for number in range(2)}
    assert not logs.judge(row for task in tasks for row in task.rows), [task.told for task in tasks]


# ---- one by one ----------------------------------------------------------------------------------


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(f"{tmp_path}/*.log*", 0, 1, 4096, forget_s=100.0, line_bytes_max=5000, files_max=3)


def after(task: Task, looks: int = 1, seconds: float = 1.0) -> list[str]:
    """What the task reads in some more looks."""
    before = len(task.rows)
    for _ in range(looks):
        task.now = getattr(task, "now", 0.0) + seconds  # type: ignore[attr-defined]
        task.attend(task.now)  # type: ignore[attr-defined]
        assert not task.read(10**6)
    return task.rows[before:]


def test_an_unfinished_line_waits_and_is_shown(task: Task, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\ntw")
    assert after(task, 2) == ["one"]
    assert task.follower.figures() == {
        "files": 1, "backlog-bytes": 0, "unfinished-line-bytes": 2, "held-files": 0, "held-bytes": 0, "lost-bytes": 0,
    }  # fmt: skip
    with open(tmp_path / "a.log", "ab") as file:
        file.write(b"o\n")
    assert after(task) == ["two"]
    assert task.follower.figures()["unfinished-line-bytes"] == 0


def test_a_mutated_file_is_named_and_not_read_until_it_is_restored(task: Task, tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    good = b"x" * 2000 + b"\n" + b"y" * 2000 + b"\n"
    file.write_bytes(good)
    assert len(after(task)) == 2
    for content in (good[:3500] + b"z" + good[3501:] + b"more\n", good[:2500]):
        file.write_bytes(content)
        assert after(task, 3) == []
        assert task.follower.figures()["held-files"] == 1
    assert "has changed before byte 4002, in bytes that were already read" in task.told[0]
    assert "has become shorter than the 4002 bytes that were read" in task.told[1]
    # Replaced by another file of the same name, as editors do.
    (tmp_path / "new").write_bytes(good[:3500] + b"z" + good[3501:] + b"more\n")
    os.rename(tmp_path / "new", file)
    assert after(task, 3) == []
    file.write_bytes(good + b"more\n")
    assert after(task) == ["more"] and task.follower.figures()["held-files"] == 0


def test_lines_that_cannot_be_read_stop_their_own_file_only(task: Task, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"good\n" + b"x" * 6000 + b"\n")
    (tmp_path / "b.log").write_bytes(b"good\n" + b"\xff\n")
    (tmp_path / "c.log").write_bytes(b"fine\n")
    rows = after(task)
    with open(tmp_path / "c.log", "ab") as file:
        file.write(b"still fine\n")
    assert sorted(rows + after(task)) == ["fine", "good", "still fine"]
    told = "\n".join(task.told)
    assert "a.log has a line of more than 5000 bytes at byte 5" in told
    assert "b.log is not valid utf-8 at byte 5" in told


def test_what_is_no_log_is_named(task: Task, tmp_path: Path) -> None:
    (tmp_path / "a.log.1.gz").write_bytes(b"\x1f\x8b\x08rest\n")
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "link.log").symlink_to("/etc/passwd")
    task.follower.attend(1.0, 0, 1)
    said = [notice.text for notice in task.follower.notices()]
    assert task.follower.next_block() is None
    assert len(said) == 3 and ["compressed (gzip)" in text for text in said].count(True) == 1
    task.follower.attend(2.0, 0, 1)
    assert task.follower.notices() == [], "once"


def test_names_that_do_not_print_are_escaped_and_read_if_they_are_text(task: Task, tmp_path: Path) -> None:
    (tmp_path / "a\n\x1b[31m.log").write_bytes(b"one\n")
    os.mkfifo(tmp_path / "b\n.log")
    with open(os.fsencode(tmp_path) + b"/\xff.log", "wb") as file:
        file.write(b"two\n")
    task.follower.attend(1.0, 0, 1)
    block = task.follower.next_block()
    assert block is not None and block.lines == ["one"] and task.follower.next_block() is None
    texts = sorted(notice.text.removeprefix(f"{tmp_path}/") for notice in task.follower.notices())
    assert [text.split(" ")[0] for text in texts] == ["\\udcff.log", "b\\n.log"] and "not UTF-8" in texts[0]
    assert json.dumps(list(task.kept().values()), ensure_ascii=False).encode()


def test_a_file_that_may_not_be_read_is_named_and_read_once_it_may(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    (tmp_path / "b.log").write_bytes(b"two\n")
    open_below = places.open_below

    def refuse(root: str, key: str) -> int:
        if key == "a.log":
            raise PermissionError(13, "Permission denied")
        return open_below(root, key)

    assert sorted(after(task)) == ["one", "two"]
    with open(tmp_path / "a.log", "ab") as file:
        file.write(b"three\n")
    with monkeypatch.context() as patch:
        patch.setattr(places, "open_below", refuse)
        task.follower.attend(50.0, 0, 1)
        assert task.follower.next_block() is None and task.follower.figures()["held-files"] == 1
        assert [notice.text for notice in task.follower.notices()] == [
            f"{tmp_path}/a.log cannot be read (Permission denied); check its permissions"
        ]
    assert after(task) == ["three"]


def test_a_file_that_is_replaced_between_look_and_read_is_not_read_as_the_old_one(tmp_path: Path) -> None:
    logs = GrowingLogs(tmp_path, 3)
    small = Task(f"{tmp_path}/*.log*", 0, 1, 16)
    logs.append("app.log", 2)
    small.attend(1.0)
    logs.copytruncate("app.log")
    logs.append("app.log", 9)
    assert not small.read(100), "longer than before, and nothing was read of it"
    after(small, 2)
    assert not logs.judge(small.rows) and small.told == []


def test_lines_behind_a_header(tmp_path: Path) -> None:
    task = Task(f"{tmp_path}/*.csv", 0, 1, 16, header_lines=2)
    head = b"# made by a program\ntime,level\n"
    file = tmp_path / "a.csv"
    file.write_bytes(head[:25])
    assert after(task, 2) == []
    file.write_bytes(head + b"1,x\n2,")
    (tmp_path / "b.csv").write_bytes(head + b"1,y\n")
    assert sorted(after(task)) == ["1,x", "1,y"]
    with open(file, "ab") as more:
        more.write(b"z\n")
    task.restore(task.save())
    assert after(task) == ["2,z"]
    file.write_bytes(head)
    assert after(task, 2) == []
    file.write_bytes(head + b"3,x\n")
    assert after(task, 2) == ["3,x"] and task.told == []


def test_a_copy_is_named_and_not_read_until_it_differs(task: Task, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\ntwo\n")
    (tmp_path / "a.log.bak").write_bytes(b"one\n")
    (tmp_path / "other.log").write_bytes(b"one\n")
    assert sorted(after(task, 2)) == ["one", "one", "two"], "other.log has nothing to do with a.log"
    with open(tmp_path / "a.log.bak", "ab") as file:
        file.write(b"three\n")
    assert after(task) == ["one", "three"]


def test_what_is_gone_is_forgotten_after_a_time_and_before_that_not_read_again(task: Task, tmp_path: Path) -> None:
    for seconds, expected in ((20.0, []), (150.0, ["one", "two"])):
        (tmp_path / "a.log").write_bytes(b"one\ntwo\n")
        assert after(task) == ([] if seconds == 150.0 else ["one", "two"])
        os.unlink(tmp_path / "a.log")
        after(task, 4, seconds)
        assert len(task.kept()) == (1 if not expected else 0)
        (tmp_path / "a.log").write_bytes(b"one\ntwo\n")
        assert after(task) == expected
    assert task.told == []


def test_the_number_of_files_is_bounded(task: Task, tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.log").write_bytes(b"line of %d\n" % number)
    assert len(after(task)) == 3
    assert len(task.told) == 2 and "its task already follows 3 files" in task.told[0]
    os.unlink(tmp_path / "0.log")
    os.unlink(tmp_path / "1.log")
    os.unlink(tmp_path / "2.log")
    assert len(after(task, 5)) == 2, "those that are gone make room"


def test_quiet_files_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch, "*.log*", 2, 4096)
    for log in world.logs.written.lines:
        world.logs.append(log, 5)
    (tmp_path / "empty.log").touch()
    world.look(is_quiet=True)
    for task in world.tasks:
        task.read(100)
    world.look(is_quiet=True)
    opened: list[str] = []
    monkeypatch.setattr("heronpy.connectors.textfiles.places.open_below", lambda root, key: opened.append(key))
    world.look(is_quiet=True)
    assert opened == []
    assert all(task.follower.wait_s(world.now) == pytest.approx(0.5, abs=0.4) for task in world.tasks)


def test_rescaling_without_checkpoints_leaves_no_file_without_a_reader(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.log").write_bytes(b"line of %d\n" % number)
    tasks = [Task(f"{tmp_path}/*.log", index, 2, 4096) for index in range(2)]
    assert sorted(map(len, (after(task) for task in tasks))) != [0, 20]
    tasks.append(Task(f"{tmp_path}/*.log", 2, 3, 4096))
    for task in tasks:
        task.tasks = 3
    again = [row for task in tasks for row in after(task)]
    assert 0 < len(again) < 20, "files that have another task are read again"
    tasks.pop()
    for task in tasks:
        task.tasks = 2
    for number in range(20):
        with open(tmp_path / f"{number}.log", "ab") as file:
            file.write(b"more of %d\n" % number)
    rows = [row for task in tasks for row in after(task)]
    assert {row for row in rows if row.startswith("more")} == {f"more of {number}" for number in range(20)}


def test_the_state_is_plain_and_of_a_known_version() -> None:
    table = Table()
    table.add("/a.log", 1, 2, Fingerprint("f", 1, "h", 0, "b"), 0, 5)
    state = json.loads(json.dumps(table.to_state(None, 0)))
    again = Table()
    again.restore(state["f"])
    assert again.to_state(None, 0) == table.to_state(None, 0)
    found = again.at(1, 2)
    assert again.origins("/b.log", "f") == again.origins("/a.log", "g") == []
    assert found is not None and found.path == "/a.log" and again.origins("/a.log.1", "f") == [found]
    with pytest.raises(ValueError, match="another release"):
        Follower([], LineDecoder()).restore({("f", 0): (2, 0)})
