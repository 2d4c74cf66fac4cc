"""What the demo does after it has shown its answer."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest

from heronpy.spark import archive
from tests.spark.support import REPO


def test_spark_classes_are_recorded_in_the_background_unless_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("demo", REPO / "scripts" / "demo.py")
    assert spec is not None and spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    monkeypatch.setattr(archive, "find_archive", lambda: "/x.jsa")
    demo.record_classes(tmp_path)
    assert not started
    missing: Any = None
    monkeypatch.setattr(archive, "find_archive", lambda: missing)
    demo.record_classes(tmp_path)
    assert started[0][-1] == "heronpy.spark.archive" and "archive.log" in capsys.readouterr().out
    assert (tmp_path / "cache" / "spark" / "archive.log").stat().st_mode & 0o077 == 0
