"""The writer of rotating logs, the judge of a table of their lines, and the points at which processes end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import pytest

from heronpy.ingest import LineFiles
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.options import UnitOptions
from heronpy.ingest.outputs.lineage import Lineage, Range
from heronpy.ingest.outputs.stages import Stages
from heronpy.loadtest.cluster import Cluster, Topology
from heronpy.loadtest.errors import LabError
from heronpy.verify.oracle import Limits
from heronpy.verify.scenarios import find, scenarios, together
from heronpy.verify.stream import InputSpec
from heronpy.verify.units.logs import RotatedLogs, TableVerdict, Writer, Written, is_poison, judge, line_of
from heronpy.verify.units.topology import POINTS, PointedStages, Points
from heronpy.verify.units.world import UnitWorld
from tests.support.waiting import wait_for

SEED = 3


def test_every_point_and_every_fault_of_work_units_is_there() -> None:
    assert {one.name for one in find(("U15",))} == {f"U15-{point}" for point in POINTS}
    for name in (
        "U21",
        "U22",
        "U22-silent",
        "U23",
        "U29",
        "U29-whole",
        "U31",
        "U35",
        "U36",
        "F01-worker",
        "F01-keeper",
        "F04-units",
        "F10-worker",
        "F21-table",
        "F27-units",
        "F28-units",
        "F28-postgres",
    ):
        assert scenarios()[name].units
    for other in ("F02", "U22", "U29-whole", "U36"):
        runs = together([scenarios()["U21"], scenarios()[other]])
        assert [one.name for one in runs] == ["U21", other], "one each"


# ---- logs -----------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(6))
def test_what_was_written_is_in_the_files_or_was_thrown_away(tmp_path: Path, seed: int) -> None:
    chance, logs = random.Random(seed), RotatedLogs(tmp_path, seed, ("a.log", "b.log"), poison=40)
    for _ in range(250):
        for log in ("a.log", "b.log"):
            logs.append(log, chance.randint(1, 5))
            if chance.random() < 0.15:
                logs.rotate(log, chance)
    for log in logs.written.lines:
        logs.finish(log)
    files = [path for path in tmp_path.iterdir() if not path.name.endswith(".bak")]
    found = Counter(line for path in files for line in path.read_text().splitlines())
    written, thrown = set(logs.written.all_lines()), logs.written.thrown_lines()
    assert max(found.values()) == 1
    assert set(found) == written - thrown
    assert any(map(is_poison, written)) and not all(map(is_poison, written))


def test_a_writer_keeps_its_rate_until_it_is_stopped(tmp_path: Path) -> None:
    logs = RotatedLogs(tmp_path, SEED, ("a.log",))
    writer = Writer(logs, lines_per_s=500.0, rotations_per_s=2.0)
    writer.start()
    wait_for(lambda: logs.written.lines["a.log"] > 50, 20.0, "some lines")
    written = writer.stop()
    assert not writer.is_alive() and written.lines["a.log"] > 50
    assert all(
        path.read_bytes().endswith(b"\n")
        for path in tmp_path.iterdir()
        if path.stat().st_size and path.suffix != ".bak"
    )


def test_a_writer_that_could_not_write_says_so(tmp_path: Path) -> None:
    writer = Writer(RotatedLogs(tmp_path / "none", SEED, ("a.log",)), 500.0, 0.0)
    writer.start()
    writer.join(20.0)
    with pytest.raises(FileNotFoundError):
        writer.stop()


# ---- the judge ------------------------------------------------------------------------------
def _line(number: int) -> str:
    return line_of(SEED, "a.log", number, 9)


POISON = next(number for number in range(5, 100) if is_poison(_line(number)))
COUNT = POISON + 10


def publish(table: Path, unit: int, *ranges: range, rows: list[str] | None = None) -> None:
    """A unit of these lines, but for poison; `rows`: what it has instead."""
    stages, chunks, lines = Stages(str(table)), [], []
    stage = stages.make(1, unit, 1)
    for numbers in ranges:
        own = [_line(number) for number in numbers if not is_poison(_line(number))]
        begin = sum(len(_line(number)) + 1 for number in range(numbers.start))
        end = begin + sum(len(_line(number)) + 1 for number in numbers)
        digest = sha256("".join(line + "\n" for line in own).encode()).hexdigest()
        chunks.append(Range("a.log", 1, begin, end, "x:0:y", digest))
        lines += own
    lines = lines if rows is None else rows
    (stage / "part-0.txt").write_text("".join(line + "\n" for line in lines))
    stages.finish(stage, Lineage("p", 1, unit, 1, len(lines), tuple(chunks)))
    stages.publish(1, unit, 1)


def bury(table: Path, *lines: str) -> None:
    for number, line in enumerate(lines):
        Stages(str(table)).write_bad(f"bad-{number}", f'{{"text": "{line}\\n"}}')


def all_right(table: Path) -> None:
    publish(table, 1, range(0, 2), range(2, POISON))
    publish(table, 2, range(POISON + 1, COUNT))
    bury(table, *(_line(number) for number in range(COUNT) if is_poison(_line(number))))


def judged(table: Path, lines: int = COUNT, thrown: tuple[int, int] = (0, 0)) -> TableVerdict:
    logs = RotatedLogs(table, SEED, ("a.log",), poison=9)
    logs.written.lines["a.log"] = lines
    logs.written.thrown.append(("a.log", *thrown))
    return judge(table, logs.written)


def test_a_right_table_is_right(tmp_path: Path) -> None:
    all_right(tmp_path)
    found = judged(tmp_path)
    assert found.ok, found
    assert (found.expected, found.units, found.bad) == (COUNT, 2, COUNT - found.arrived)


def lost(table: Path) -> TableVerdict:
    return judged(table, lines=COUNT + 1 + is_poison(_line(COUNT)))


def lost_poison(table: Path) -> TableVerdict:
    (table / "_units" / "bad" / "bad-0.json").unlink()
    return judged(table)


def twice(table: Path) -> TableVerdict:
    publish(table, 3, range(0, 2))
    return judged(table)


def strange(table: Path) -> TableVerdict:
    publish(table, 3, rows=["what nobody wrote"])
    return judged(table)


def innocent(table: Path) -> TableVerdict:
    assert not is_poison(_line(0))
    bury(table, _line(0))
    return judged(table)


def swapped(table: Path) -> TableVerdict:
    """All rows are there, and those of one unit are in the wrong order."""
    path = table / "unit=1-2" / "part-0.txt"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    return judged(table)


def miscounted(table: Path) -> TableVerdict:
    path = table / "unit=1-2" / "_unit.json"
    path.write_text(path.read_text().replace('"rows":', '"rows":1'))
    return judged(table)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lost, "missing"),
        (lost_poison, "missing"),
        (twice, "doubled"),
        (twice, "wrong_units"),
        (strange, "foreign"),
        (innocent, "innocent"),
        (swapped, "wrong_units"),
        (miscounted, "wrong_units"),
    ],
)
def test_each_way_to_be_wrong_is_found(wrong: Callable[[Path], TableVerdict], what: str, tmp_path: Path) -> None:
    all_right(tmp_path)
    found = wrong(tmp_path)
    assert getattr(found, what) and not found.ok, found


def test_what_was_thrown_away_may_be_missing_and_may_not_be_twice(tmp_path: Path) -> None:
    publish(tmp_path, 1, range(2, POISON))
    publish(tmp_path, 2, range(POISON + 1, COUNT))
    bury(tmp_path, *(_line(number) for number in range(2, COUNT) if is_poison(_line(number))))
    assert not judged(tmp_path).ok
    found = judged(tmp_path, thrown=(0, 2))
    assert found.ok and found.thrown_missing == 2
    publish(tmp_path, 3, range(0, 2))
    assert judged(tmp_path, thrown=(0, 2)).ok
    publish(tmp_path, 4, range(0, 1))
    assert judged(tmp_path, thrown=(0, 2)).doubled == [_line(0)]


# ---- the end of a run -----------------------------------------------------------------------
class Settling(UnitWorld):
    """A pipeline that looks done: the next publication comes when it is looked at the second time."""

    def __init__(self, table: Path, publications: list[Callable[[], None]]) -> None:
        super().__init__(
            Topology(cast(Cluster, None), "seen", table),
            table,
            random.Random(SEED),
            True,
            "ATMOST_ONCE",
            cast(InputSpec, None),
            may_fail=True,
        )
        self.table = table
        self.written = Written(SEED, 9, {"a.log": COUNT})
        self.publications = publications
        self.failing = False
        self.looks = 0

    def look(self) -> None:
        self.looks += 1
        if self.publications:
            self.publications.pop(0)()

    def figures(self) -> dict[str, Any]:
        failed = self.failing and not self.publications
        return {"waiting_bytes": 0, "units": {"failed": (int(failed), 0)}, "live": [{"error": "no space"}]}

    def differences(self) -> list[str]:
        return []


def test_lines_that_keepers_have_not_looked_at_are_waited_for(tmp_path: Path) -> None:
    world = Settling(tmp_path, [lambda: None, lambda: all_right(tmp_path)])
    world.settled()
    assert world.looks == 2 and world.written is not None and judge(tmp_path, world.written).ok


def test_lines_that_do_not_come_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heronpy.verify.units.world.LOOK_S", 0.2)
    world = Settling(tmp_path, [])
    world.settled()
    assert world.looks > 1 and world.written is not None and judge(tmp_path, world.written).missing


def test_a_unit_that_fails_while_the_last_lines_are_waited_for_is_told(tmp_path: Path) -> None:
    world = Settling(tmp_path, [lambda: None])
    world.failing = True
    with pytest.raises(LabError, match="a unit has failed: no space"):
        world.settled()


@pytest.mark.parametrize("complete", [True, False])
def test_lines_that_are_missing_are_lost_only_when_the_run_came_to_its_end(tmp_path: Path, complete: bool) -> None:
    publish(tmp_path, 1, range(2))
    world = Settling(tmp_path, [])
    world.complete = complete
    verdict = world.verdict(Limits(stall_max_s=60.0))
    [loss] = [check for check in verdict.checks if check.name == "loss"]
    assert not loss.ok and verdict.complete is complete
    assert ("lines lost" in loss.text, "had not arrived when the run was abandoned" in loss.text) == (
        complete,
        not complete,
    )


# ---- points ---------------------------------------------------------------------------------
def test_one_process_takes_an_armed_point_and_gets_the_signal(tmp_path: Path) -> None:
    points = Points(tmp_path / "points")
    points.reach("record", 1, 1)
    assert points.taken("record") is None, "nothing is armed"
    program = (
        f"from heronpy.verify.units.topology import Points; Points({str(tmp_path / 'points')!r}).reach('record', 7, 2)"
    )
    points.arm("record", signal.SIGKILL)
    children = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    codes = sorted(child.wait(60) for child in children)
    assert codes == [-signal.SIGKILL, 0]
    taken = points.taken("record")
    assert (
        taken is not None and taken.pid in [child.pid for child in children] and (taken.unit, taken.attempt) == (7, 2)
    )
    assert points.taken("record") is None
    points.arm("record", signal.SIGKILL)
    points.disarm("record")
    points.reach("record", 1, 1)


def test_stages_come_to_the_points_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[tuple[str, int, int]] = []
    monkeypatch.setattr(Points, "reach", lambda self, *about: reached.append(about))
    options = UnitOptions("p", "/logs/*.log", "", LineFiles(str(tmp_path / "table")), Config(pattern="/logs/*.log"))
    stages = PointedStages(options, Points(tmp_path))
    stage = stages.make(1, 7, 2)
    stages.finish(stage, Lineage("p", 1, 7, 2, 0, (Range("a.log", 1, 0, 1, "x:0:y"),)))
    stages.publish(1, 7, 2)
    stages.discard(stages.make(1, 8, 1))
    assert reached == [("prepare", 7, 2), ("record", 7, 2), ("publish", 7, 2), ("settle", 7, 2), ("clean", 8, 1)]
    assert os.listdir(tmp_path / "table" / "_units" / "g1") == []
