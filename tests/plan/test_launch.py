"""The launch file: whole, private, and strict about what it holds."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.common.errors import ConfigError
from heronpy.common.exit_codes import describe
from heronpy.common.setting_types import CheckpointSettings, InstanceSettings
from heronpy.common.settings import resolve, settings_for
from heronpy.plan.launch import Here, LaunchSpec, Submitted, make_here, save_submitted

RESOLVED = resolve("local", [], {}, {"word": {"heron.instance.batch_tuples": 7}}, [])
SUBMITTED = Submitted(
    topology="word_count",
    topology_id="word_count-1",
    cluster="local",
    role="me",
    environ="default",
    submission_user="größe",
    release="0.1.0",
    state_type="local",
    package="0" * 64,
    package_main="word_count.py",
    settings=RESOLVED.settings,
    origins=RESOLVED.origins,
    component_settings=RESOLVED.component_settings,
)
SPEC = LaunchSpec(
    SUBMITTED,
    Here(
        working_dir="/home/me/.herondata/topologies/local/me/word_count",
        sockets_dir="/run/heron",
        python="/usr/bin/python3",
        state_root="/home/me/.herondata/state/local",
        packages="/home/me/.herondata/packages",
        checkpoints="/home/me/.herondata/checkpoints/local",
    ),
)


def test_a_specification_survives_the_file(tmp_path: Path) -> None:
    path = tmp_path / "dir/launch.json"
    SPEC.save(path)
    assert LaunchSpec.load(path) == SPEC
    assert {one.stat().st_mode & 0o777 for one in path.parent.iterdir()} == {0o600}
    replace(SPEC, submitted=replace(SUBMITTED, needs_spark=True)).save(path)
    assert LaunchSpec.load(str(path)).needs_spark
    assert sorted(os.listdir(path.parent)) == ["here.json", "launch.json"]
    assert settings_for(SPEC, InstanceSettings, "word").batch_tuples == 7
    assert settings_for(LaunchSpec.load(path), InstanceSettings).batch_tuples == 2000
    assert str(SPEC.log_dir).endswith("word_count/log-files")
    assert SPEC.main_file == f"/home/me/.herondata/packages/{'0' * 64}/word_count.py"
    assert SPEC.package_archive is None


def test_each_host_has_folders_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was submitted on one host, read on another whose folders differ."""
    data = SUBMITTED.to_bytes()
    found = {}
    for host in ("a", "b"):
        monkeypatch.setenv("HERON_HOME", str(tmp_path / host))
        submitted = Submitted.from_bytes(data, "test")
        assert submitted == SUBMITTED
        found[host] = LaunchSpec(submitted, make_here(submitted, tmp_path / host / "work" / "launch.json"))
    for host, launch in found.items():
        mine = str(tmp_path / host)
        assert (launch.working_dir, launch.state_root) == (f"{mine}/work", f"{mine}/state/local")
        assert launch.package_dir == f"{mine}/packages/{'0' * 64}"
        assert launch.main_file == f"{launch.package_dir}/word_count.py"
        assert settings_for(launch, CheckpointSettings).root == f"{mine}/checkpoints/local"
        assert launch.python == sys.executable


def test_a_folder_that_was_given_is_the_same_everywhere() -> None:
    given = {"checkpoint": {"root": "/shared/checkpoints"}, "statemgr": {"root": "/shared/state"}}
    launch = LaunchSpec(replace(SUBMITTED, settings=given), SPEC.here)
    assert settings_for(launch, CheckpointSettings).root == "/shared/checkpoints"
    assert make_here(launch.submitted, "/srv/wc/launch.json").state_root == "/shared/state"
    servers = replace(SUBMITTED, state_type="zookeeper", state_root="zk:2181/heron")
    assert make_here(servers, "/srv/wc/launch.json").state_root == ""
    assert LaunchSpec(servers, SPEC.here).state_root == "zk:2181/heron"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "launch.json"
    SPEC.save(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_submitted(replace(SUBMITTED, role="other"), path)
    assert LaunchSpec.load(path) == SPEC
    assert sorted(os.listdir(tmp_path)) == ["here.json", "launch.json"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": "red"}, "unknown field 'colour'"),
        ({"topology": None}, "field 'topology' of the launch must be str but is NoneType"),
        ({"needs_spark": 1}, "field 'needs_spark' of the launch must be bool but is int"),
        ({"settings": []}, "field 'settings'"),
        ({"settings": {"stmgr": 1}}, "field 'settings'"),
        ({"origins": {"a": 1}}, "field 'origins'"),
        ({"package": 1}, "field 'package'"),
        ({"working_dir": "/home/me"}, "unknown field 'working_dir'"),
        ({"package": "../../evil"}, "field 'package' of the launch is not a digest"),
        ({"package": "/evil"}, "field 'package' of the launch is not a digest"),
        ({"package_main": "../evil.py"}, "field 'package_main' of the launch leads out of the package"),
        ({"package_archive": "/evil.pex"}, "field 'package_archive' of the launch leads out of the package"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], message: str) -> None:
    text = json.dumps(json.loads(SUBMITTED.to_bytes()) | changes)
    with pytest.raises(ConfigError, match=message):
        Submitted.from_bytes(text.encode(), "the launch")


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "launch.json"
    with pytest.raises(ConfigError, match=rf"cannot read launch file {path}: No such file"):
        LaunchSpec.load(path)
    content = json.loads(SUBMITTED.to_bytes())
    del content["role"]
    for text, message in (
        (json.dumps(content), "lacks field 'role'"),
        ("{", "is not valid JSON"),
        ("[]", "must contain a JSON object"),
        ("", "is not valid JSON"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=rf"{path} {message}"):
            LaunchSpec.load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        LaunchSpec.load(path)
    save_submitted(SUBMITTED, path)
    with pytest.raises(ConfigError, match=rf"cannot read launch file {tmp_path}/here.json: No such file"):
        LaunchSpec.load(path)


def test_exit_codes_in_words() -> None:
    assert describe(3) == "exit code 3 (startup failure)"
    assert describe(77) == "exit code 77"
