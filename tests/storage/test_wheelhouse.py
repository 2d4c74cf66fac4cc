"""Packing the dependencies of a topology: wheels only, the same bytes each time, and what pip refuses in one sentence."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import ConfigError, DeadlineError, PackageError
from heronpy.launching.submission import check_environment, environment_digest
from heronpy.storage import wheelhouse
from tests.support.command import Heron
from tests.support.wheels import house, make_wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all that pip finds."""
    folder = tmp_path / "index"
    folder.mkdir()
    make_wheel(folder, "alpha", requires="beta>=2")
    make_wheel(folder, "beta", "1.0")
    make_wheel(folder, "beta", "2.5")
    (folder / "gamma-1.0.tar.gz").write_bytes(b"a source distribution")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_the_command_packs_what_is_asked_for_and_what_that_needs(index: Path, heron: Heron, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("alpha\n")
    said = heron("env", "pack", "-r", str(tmp_path / "requirements.txt"), "-o", str(tmp_path / "env.zip"))
    assert said.code == 0, said.err
    file = Path(said.out.strip())
    digest = wheelhouse.digest_of(file)
    assert file == tmp_path / f"env-{digest[:12]}.zip"
    assert digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert wheelhouse.wheels_of(file) == ["alpha-1.0-py3-none-any.whl", "beta-2.5-py3-none-any.whl"]
    (tmp_path / "elsewhere").mkdir()
    again = wheelhouse.pack(tmp_path / "requirements.txt", tmp_path / "elsewhere" / "env", 60)
    assert (again.name, again.read_bytes()) == (file.name, file.read_bytes())
    assert {path.name for path in tmp_path.iterdir()} >= {file.name, "requirements.txt", "index"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".env")], "the scratch folder stays"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nowhere==1", "cannot be packed: .*nowhere==1"),
        ("gamma", "cannot be packed: .*gamma"),  # only its source is there, which would be built
        ("beta==", "cannot be packed: .*beta=="),
        ("", "contains no requirement that can be packed"),
    ],
)
def test_what_cannot_be_packed_is_named_and_leaves_nothing(index: Path, tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "requirements.txt").write_text(line)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(PackageError, match=reason) as raised:
        wheelhouse.pack(tmp_path / "requirements.txt", tmp_path / "env.zip", 60)
    assert "\n" not in str(raised.value)
    assert sorted(tmp_path.iterdir()) == before


def test_bad_paths_and_a_slow_pip(index: Path, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("alpha\n")
    with pytest.raises(ConfigError, match="no requirements file"):
        wheelhouse.pack(tmp_path / "missing.txt", tmp_path / "env.zip", 60)
    with pytest.raises(ConfigError, match=r"no folder .*/missing"):
        wheelhouse.pack(tmp_path / "requirements.txt", tmp_path / "missing" / "env.zip", 60)
    with pytest.raises(DeadlineError, match=r"pip took more than 0\.001 s"):
        wheelhouse.pack(tmp_path / "requirements.txt", tmp_path / "env.zip", 0.001)


@pytest.mark.parametrize("name", ["evil.py", "../alpha-1.0-py3-none-any.whl", "/a-1-py3-none-any.whl", "a.whl", "a/"])
def test_only_wheels_are_in_a_wheelhouse(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "env.zip", "w") as archive:
        archive.writestr(name, "content")
    with pytest.raises(PackageError, match="which is not a wheel"):
        wheelhouse.digest_of(tmp_path / "env.zip")


def test_a_file_that_is_no_wheelhouse(tmp_path: Path) -> None:
    (tmp_path / "env.zip").write_text("text")
    with pytest.raises(PackageError, match=r"env\.zip is not a wheelhouse; create one with 'heron env pack'"):
        wheelhouse.digest_of(tmp_path / "env.zip")
    house(tmp_path / "empty.zip")
    with pytest.raises(PackageError, match="contains no wheel, or a wheel twice"):
        wheelhouse.digest_of(tmp_path / "empty.zip")
    with pytest.raises(PackageError, match="cannot be read"):
        wheelhouse.digest_of(tmp_path / "missing.zip")


def test_a_submit_refuses_a_wheelhouse_that_cannot_work(tmp_path: Path) -> None:
    file = house(tmp_path / "env.zip", make_wheel(tmp_path, "alpha"))
    assert environment_digest(EngineSettings()) == ""
    good = EngineSettings(kind="slurm", environment=str(file), shared=f"/other:{tmp_path}")
    assert environment_digest(good) == wheelhouse.digest_of(file)
    for settings, reason in (
        (EngineSettings(environment=str(file)), "this cluster has no engine"),
        (EngineSettings(kind="slurm", environment="env.zip", shared="/"), "absolute"),
        (
            EngineSettings(kind="slurm", environment=str(file), shared="/other"),
            "is not below a folder of heron.engine.shared",
        ),
        (EngineSettings(kind="slurm", environment=str(file)), "is not below a folder of heron.engine.shared"),
    ):
        with pytest.raises(ConfigError, match=reason):
            check_environment(settings)
    with pytest.raises(PackageError, match="cannot be read"):
        check_environment(EngineSettings(kind="slurm", environment=f"{file}.missing", shared=str(tmp_path)))
