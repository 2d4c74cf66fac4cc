"""Which driver a master asks for."""

from __future__ import annotations

from pathlib import Path

from heronpy.common.setting_types import SecuritySettings, SparkSettings
from heronpy.common.settings import settings_for
from heronpy.connectors.spark.requirements import is_connect
from heronpy.net.addresses import ports_of
from heronpy.plan.launch import LaunchSpec
from heronpy.spark.archive import find_archive
from heronpy.spark.connect import ConnectDriver
from heronpy.spark.driver import Driver
from heronpy.spark.session import SparkDriver


def open_driver(settings: SparkSettings, spark_dir: Path, name: str, launch: LaunchSpec) -> Driver:
    """The driver of a topology's gateway; starts nothing."""
    if is_connect(settings.master):
        return ConnectDriver(settings, spark_dir, name, launch.package_dir)
    ports = ports_of(settings_for(launch, SecuritySettings).port_range)
    return SparkDriver(
        settings, spark_dir, name, launch.python, launch.package_dir, find_archive(), launch.address, ports
    )
