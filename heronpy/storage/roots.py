"""Checks a topology's files before its processes trust them."""

from __future__ import annotations

from pathlib import Path

from heronpy.common.folders import check_root
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.plan.launch import LaunchSpec
from heronpy.storage.package_manifest import check_entry
from heronpy.storage.stores import replica_of, store_roots


def check_folders(launch: LaunchSpec) -> None:
    """Raise ConfigError or PackageError if another user could replace files that the topology's processes read.

    The working folder, its logs, the checkpoint stores, and the stored package are checked; the files of the
    package must be unchanged.
    """
    check_root(launch.working_dir, "the working folder")
    check_root(launch.log_dir, "the log folder")
    settings = settings_for(launch, CheckpointSettings)
    for place in (*store_roots(settings), replica_of(settings)):
        if isinstance(place, Path):  # an object store has no owner that could be checked
            check_root(place, "the checkpoint store", sticky=True)
    if launch.package_dir:
        check_entry(launch.package_dir)
