"""The files of a batch run: who may read and write them, and which values they may have."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, ClassVar

import pytest

from heronpy import Bolt, Grouping, TopologyBuilder
from heronpy.api.user_code import UserCodeError
from heronpy.batch.exchange import BucketFile, BucketWriter, DamagedExchangeError
from heronpy.batch.run import BatchRunError, Runs
from heronpy.common.errors import ConfigError
from heronpy.connectors.files import FileSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.simulator import Simulator
from tests.batch.inside import InsideRun
from tests.batch.programs import splits


@pytest.fixture
def open_umask() -> Any:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_the_folder_of_a_run_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files hold pickles, so whoever writes to them runs code."""
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "4", "30"), monkeypatch)
    run.start()
    run.to_the_end()
    run.close()
    for folder in (run.run.folder, run.run.folder.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in run.run.folder.rglob("*"):
        # The files for the sink become those of the output, for which the umask of the user decides.
        if path.is_file() and not path.name.startswith("sink-"):
            assert not path.stat().st_mode & 0o077, path


def test_files_that_others_may_write_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "4", "30"), monkeypatch).run
    (run.folder / "topology").chmod(0o622)
    with pytest.raises(BatchRunError, match="topology is writable by other users, so it is not read"):
        assert run.topology
    (run.folder / "run.json").chmod(0o622)
    with pytest.raises(BatchRunError, match=r"run\.json is writable by other users, so it is not read"):
        assert run.record
    (tmp_path / "batch").chmod(0o777)
    with (
        pytest.raises(ConfigError, match=r"the folder of batch runs \S+/batch is writable by other users; run: chmod"),
        Runs(tmp_path / "batch", "sums").locked(),
    ):
        pass


def test_rows_of_another_user_and_links_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = BucketWriter(tmp_path / "to-2")
    writer.add(0, b"frame", 1)
    writer.finish()
    assert list(BucketFile(tmp_path / "to-2").records(0)) == [b"frame"]
    (tmp_path / "to-3").symlink_to(tmp_path / "to-2")
    with pytest.raises(DamagedExchangeError, match="to-3 is damaged: it cannot be opened"):
        BucketFile(tmp_path / "to-3")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(DamagedExchangeError, match="to-2 is damaged: it belongs to another user"):
        BucketFile(tmp_path / "to-2")


class Pickled(Bolt):
    outputs: ClassVar[list[Any]] = ["word", "value"]

    def process(self, tup: Any) -> None:
        self.emit([tup.values[0], Path(tup.values[0])])


class Taken(Bolt):
    outputs: ClassVar[list[Any]] = ["word"]

    def process(self, tup: Any) -> None:
        assert isinstance(tup.values[1], Path)
        self.emit([tup.values[0]])


@pytest.mark.parametrize(
    ("refusing", "words"),
    [("", ""), ("pickled", r"component pickled: .*allow_pickle"), ("taken", "component taken: .*forbids pickle")],
)
def test_no_value_is_pickled_or_loaded_against_the_setting(tmp_path: Path, refusing: str, words: str) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    builder = TopologyBuilder("values")
    lines = builder.add_spout("lines", TextFileSpout, par=1, config={TextFileSpout.PATHS: str(tmp_path / "in.txt")})
    configs = {name: {"heron.instance.allow_pickle": name != refusing} for name in ("pickled", "taken")}
    first = builder.add_bolt("pickled", Pickled, 1, {lines: Grouping.SHUFFLE}, config=configs["pickled"])
    then = builder.add_bolt("taken", Taken, 1, {first: Grouping.fields("word")}, config=configs["taken"])
    builder.add_spec(FileSink.spec("sink", {then: Grouping.SHUFFLE}, folder="/never"))
    if not words:
        assert Simulator.run_batch(builder).rows("sink") == [["a"]]
        return
    with pytest.raises(UserCodeError, match=words):
        Simulator.run_batch(builder)
