"""The rows of a FileSink in a batch run: staged with units, and published at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.connectors.files.options import FileOptions
from heronpy.connectors.files.units import FileUnits
from heronpy.task.tuples import InBatch, InFrame


def stage(out: Path, unit: Path, component: str, *rows: str) -> FileUnits:
    unit.mkdir(parents=True, exist_ok=True)
    made = FileUnits(component, FileOptions(str(out)))
    writer = made.open(unit)
    writer.batch(InBatch(InFrame("a", "default", 1, len(rows), 0.0), "default", ["row"], list(rows), range(len(rows))))
    writer.close()
    return made


def published(out: Path) -> list[str]:
    return sorted(line for path in out.glob("part-*") for line in path.read_text().splitlines())


def test_a_sink_whose_name_begins_with_that_of_another_keeps_its_rows(tmp_path: Path) -> None:
    """Both are in one stage, so in one folder of a unit."""
    unit = tmp_path / "run" / "unit=1-1"
    sinks = [stage(tmp_path / name, unit, name, name) for name in ("out", "out.late")]
    for sink in sinks:
        assert sink.publish("visits-1", [unit]) == 1
    assert published(tmp_path / "out") == ['["out"]'] and published(tmp_path / "out.late") == ['["out.late"]']


def test_a_publication_that_was_cut_short_leaves_no_hidden_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, unit = tmp_path / "out", tmp_path / "run" / "unit=1-1"
    sink = stage(out, unit, "store", "row")

    def killed(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("os.rename", killed)
        sink.publish("visits-1", [unit])
    assert list(out.glob(".*")) and not published(out)
    monkeypatch.setattr("os.getpid", lambda: 1)  # another process goes on
    assert sink.publish("visits-1", [unit]) == 1
    assert published(out) == ['["row"]'] and not list(out.glob(".*"))


def test_runs_with_equal_units_publish_beside_each_other_and_each_once(tmp_path: Path) -> None:
    """An interruption between two files is repaired by the repetition."""
    out = tmp_path / "out"
    for run in ("visits-a", "visits-b"):
        units = [tmp_path / run / f"unit=1-{number}" for number in (1, 2)]
        for unit in units:
            sink = stage(out, unit, "store", f"{run} {unit.name}")
        assert [sink.publish(run, units[:1]), sink.publish(run, units), sink.publish(run, units)] == [1, 1, 0]
    assert len(published(out)) == 4 == len(set(published(out)))
    assert not list(out.glob(".*"))
