"""Commands name the page of a topology when a tracker runs, and never fail for want of one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from heronpy.clusters.target import unix_user
from heronpy.common.errors import ConfigError
from heronpy.tracker import finding, place
from heronpy.tracker.folder import RECORD
from tests.support.command import REPO

NAMED = ("local", "me", "default", "a b/ü")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "tracker").mkdir(mode=0o700)
    return tmp_path


def test_the_page_is_named_only_while_a_tracker_runs(home: Path) -> None:
    assert place.page_if_running(home, *NAMED) == ""
    running = place.write(home / "tracker", "http://127.0.0.1:8889", "0.1.0", by_ui=True)
    assert place.page_if_running(home, *NAMED) == "http://127.0.0.1:8889/#/t/local/me/default/a%20b%2F%C3%BC"
    place.remove(home / "tracker", running)
    assert place.page_if_running(home, *NAMED) == ""


@pytest.mark.parametrize("record", [b"", b"{", b"[]", b'{"pid": "x"}', b"x" * 100_000])
def test_a_damaged_record_names_nothing(record: bytes, home: Path) -> None:
    (home / "tracker" / RECORD).write_bytes(record)
    assert place.page_if_running(home, *NAMED) == ""
    assert place.page_if_running(home / "nowhere", *NAMED) == ""
    assert not (home / "nowhere").exists()


@pytest.fixture
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", REPO / "scripts" / "demo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_demo_goes_on_without_a_tracker(
    demo: ModuleType, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(home: Path, config_path: str | None) -> place.Running:
        raise ConfigError("no port is free")

    monkeypatch.setattr(finding, "find_or_start", refuse)
    assert demo.page_of_demo(home) == ""
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no port is free" in said


def test_the_demo_names_the_page_of_its_topology(demo: ModuleType, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = place.write(home / "tracker", "http://127.0.0.1:8889", "0.1.0", by_ui=True)
    monkeypatch.setattr(finding, "find_or_start", lambda home, config_path: running)
    assert demo.page_of_demo(home) == f"http://127.0.0.1:8889/#/t/local/{unix_user()}/default/FlightDelays"
