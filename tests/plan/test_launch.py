"""The launch file: whole, private, and strict about what it holds."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.errors import ConfigError
from heronpy.common.exit_codes import describe
from heronpy.common.setting_types import InstanceSettings
from heronpy.common.settings import resolve, settings_for
from heronpy.plan.launch import LaunchSpec

RESOLVED = resolve("local", [], {}, {"word": {"heron.instance.batch_tuples": 7}}, [])
SPEC = LaunchSpec(
    topology="word_count",
    topology_id="word_count-1",
    cluster="local",
    role="me",
    environ="default",
    submission_user="größe",
    release="0.1.0",
    working_dir="/home/me/.herondata/topologies/local/me/word_count",
    sockets_dir="/run/heron",
    state_root="/home/me/.herondata/state/local",
    state_type="local",
    package_dir=None,
    main_file="/home/me/.herondata/packages/0/word_count.py",
    python="/usr/bin/python3",
    settings=RESOLVED.settings,
    origins=RESOLVED.origins,
    component_settings=RESOLVED.component_settings,
)


def test_a_specification_survives_the_file(tmp_path: Path) -> None:
    path = tmp_path / "dir/launch.json"
    SPEC.save(path)
    assert LaunchSpec.load(path) == SPEC
    assert path.stat().st_mode & 0o777 == 0o600
    replace(SPEC, needs_spark=True).save(path)
    assert LaunchSpec.load(str(path)).needs_spark
    assert os.listdir(path.parent) == ["launch.json"]
    assert settings_for(SPEC, InstanceSettings, "word").batch_tuples == 7
    assert settings_for(LaunchSpec.load(path), InstanceSettings).batch_tuples == 2000
    assert str(SPEC.log_dir).endswith("word_count/log-files")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "launch.json"
    SPEC.save(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace(SPEC, role="other").save(path)
    assert LaunchSpec.load(path) == SPEC
    assert os.listdir(tmp_path) == ["launch.json"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": "red"}, "unknown field 'colour'"),
        ({"topology": None}, "field 'topology' of launch file must be str but is NoneType"),
        ({"needs_spark": 1}, "field 'needs_spark' of launch file must be bool but is int"),
        ({"settings": []}, "field 'settings'"),
        ({"settings": {"stmgr": 1}}, "field 'settings'"),
        ({"origins": {"a": 1}}, "field 'origins'"),
        ({"package_dir": 1}, "field 'package_dir'"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], message: str) -> None:
    text = json.dumps(json.loads(SPEC.to_json()) | changes)
    with pytest.raises(ConfigError, match=message):
        LaunchSpec.from_json(text)


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "launch.json"
    with pytest.raises(ConfigError, match=rf"cannot read launch file {path}: No such file"):
        LaunchSpec.load(path)
    content = json.loads(SPEC.to_json())
    del content["role"]
    for text, message in (
        (json.dumps(content), "lacks field 'role'"),
        ("{", "is not valid JSON"),
        ("[]", "must hold a JSON object"),
        ("", "is not valid JSON"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=rf"{path} {message}"):
            LaunchSpec.load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        LaunchSpec.load(path)


def test_exit_codes_in_words() -> None:
    assert describe(3) == "exit code 3 (startup failure)"
    assert describe(77) == "exit code 77"
