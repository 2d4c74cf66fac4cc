"""Finds the checkpoints of a topology in all folders that may hold them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from heronpy.ckpt import catalogue
from heronpy.ckpt.catalogue import Found
from heronpy.clusters.errors import NotThereError, RequestError
from heronpy.clusters.records import Records
from heronpy.common.errors import HeronError
from heronpy.common.folders import heron_home
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import plan_pb2


def found_of(records: Records, topology: str) -> list[Found]:
    """Checkpoints of a topology on disk, newest first, in every store that it may use."""
    return catalogue.of_topology(catalogue.roots_of(_settings(records, topology)), topology)


def _settings(records: Records, topology: str) -> list[CheckpointSettings]:
    """Settings that the topology may have used: those of the cluster and those of earlier runs."""
    resolved = records.resolve()
    records.pin_folders(resolved)
    launches = _launches(records, topology, records.record(topology))
    return [
        *(settings_for(launch, CheckpointSettings) for launch in launches),
        settings_for(resolved, CheckpointSettings),
    ]


def _launches(records: Records, topology: str, record: plan_pb2.ExecutionState | None) -> list[LaunchSpec]:
    """The readable launch files of this run, and of other runs with the same name."""
    files = [] if record is None else [Path(record.launch_file)]
    files += heron_home().glob(f"topologies/{records.target.cluster}/*/{topology}/launch.json")
    found = []
    for file in dict.fromkeys(files):
        with suppress(HeronError):  # it is of another release, or was removed meanwhile
            found.append(LaunchSpec.load(file))
    return found


def by_id(everything: list[Found], checkpoint: int, name: str) -> Found:
    """The checkpoint with this id; raises RequestError or NotThereError unless exactly one checkpoint has it."""
    matching = [found for found in everything if found.checkpoint == checkpoint]
    if len(matching) > 1:
        places = ", ".join(found.location for found in matching)
        raise RequestError(
            f"checkpoint {checkpoint} of '{name}' is in {len(matching)} places; give one of these paths: {places}"
        )
    if not matching:
        ids = list(dict.fromkeys(found.checkpoint for found in everything))  # ids may repeat
        known = ", ".join(map(str, ids[:20])) or "none"
        raise NotThereError(f"'{name}' has no checkpoint {checkpoint}; there are: {known}")
    return matching[0]
