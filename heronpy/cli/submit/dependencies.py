"""The wheelhouse of a topology's dependencies, which each host of a cluster installs (`heron.engine.environment`)."""

from __future__ import annotations

from pathlib import Path

from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import ConfigError
from heronpy.storage.wheelhouse import digest_of, wheels_of

_SETTING = "heron.engine.environment"


def check(engine: EngineSettings) -> None:
    """ConfigError or PackageError, by name, where a wheelhouse is set and cannot work."""
    if not engine.environment:
        return
    if not engine.kind:
        raise ConfigError(
            f"{_SETTING} is for clusters with an engine, and this one has none (heron.engine.kind); install the"
            " dependencies into the Python that runs heron"
        )
    archive = Path(engine.environment)
    if not archive.is_absolute():
        raise ConfigError(f"{_SETTING} {archive} must be an absolute path, because hosts read it in other folders")
    if ".." in archive.parts or not any(
        archive.is_relative_to(folder) for folder in engine.shared.split(":") if folder
    ):
        raise ConfigError(
            f"{_SETTING} {archive} is below no folder of heron.engine.shared, so the hosts may not reach it; put it"
            " there"
        )
    wheels_of(archive)


def digest(engine: EngineSettings) -> str:
    """The digest of the wheelhouse that the hosts install; "" for none."""
    check(engine)
    return digest_of(Path(engine.environment)) if engine.environment else ""
