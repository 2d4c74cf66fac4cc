"""Chooses and checks the checkpoint for `heron submit --restore`, before anything starts.

`latest`, an id, a path or a URL leads to one intact checkpoint that fits the topology, or to an error with the reason.
A damaged checkpoint is never skipped silently: `latest` warns of the damage and uses the previous checkpoint. The id,
path or URL of a damaged checkpoint is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from heronpy.api.api_constants import TOPOLOGY_STATEFUL_START_CLEAN
from heronpy.ckpt import catalogue, compatibility
from heronpy.ckpt.catalogue import Found
from heronpy.clusters.errors import ClusterError, NotThereError
from heronpy.clusters.places import by_id
from heronpy.common.errors import TopologyError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.launching.model import Planned, Restore, Warn, unheard
from heronpy.plan.component_config import config_of, reliability_mode
from heronpy.proto import topology_pb2
from heronpy.storage.locations import check_trusted
from heronpy.storage.objects.url import place_of
from heronpy.storage.stores import replica_of

LATEST = "latest"


def choose(
    planned: Planned,
    wanted: str,
    allow_dropped: bool,
    warn: Warn = unheard,
    run: str = "",
    stopping: Mapping[str, int] | None = None,
) -> Restore | None:
    """Return the checkpoint to start from; None means to start empty. Raises an error if neither is possible.

    With `run`, only checkpoints of the topology with this id count as the latest. With
    `stopping`, the parallelism of a running topology, its predicted next savepoint is checked instead.
    """
    topology, settings = planned.topology, settings_for(planned.resolved, CheckpointSettings)
    _refuse_conflicts(topology)
    if wanted == LATEST:
        found = _latest(topology.name, settings, warn, run)
    else:
        found = _named(topology.name, settings, wanted, warn)
    if found is None:
        return None
    assert found.metadata is not None  # intact, so it could be read
    check_trusted(found.location)
    parallelism = {component.name: component.parallelism for component in planned.logical.definitions}
    known = found.metadata if stopping is None else compatibility.at_savepoint(found.metadata, stopping)
    wrong = compatibility.problems(known, parallelism, settings.key_groups, allow_dropped)
    if wrong:
        raise TopologyError("\n".join(wrong))
    fresh = compatibility.starting_empty(found.metadata, parallelism)
    return Restore(found.location, found.checkpoint, tuple(fresh), found.metadata.taken_at)


def _refuse_conflicts(topology: topology_pb2.Topology) -> None:
    mode = reliability_mode(topology)
    if mode != "EFFECTIVELY_ONCE":
        raise TopologyError(
            f"topology '{topology.name}' is {mode} and has no checkpoints; leave out --restore,"
            " or set topology.reliability.mode to EFFECTIVELY_ONCE"
        )
    if config_of(topology).get(TOPOLOGY_STATEFUL_START_CLEAN) is True:
        raise TopologyError(
            f"topology '{topology.name}' sets '{TOPOLOGY_STATEFUL_START_CLEAN}' and is submitted with --restore,"
            " which contradict each other; leave out one of them"
        )


def _latest(name: str, settings: CheckpointSettings, warn: Warn, run: str) -> Found | None:
    """Return the newest intact checkpoint, if necessary from the replica. Warns of each skipped checkpoint."""
    everything, copies = catalogue.of_topology(catalogue.roots_of([settings]), name), _copies(name, settings)
    if run:
        everything, copies = ([one for one in those if one.folder.name == run] for those in (everything, copies))
    for found in everything:
        if _intact(found, warn):
            return found
        twin = _whole_twin(found, copies)
        if twin is not None and not found.abandoned:
            warn(f"using its copy in the replica {settings.replica} instead")
            return twin
    for found in copies:
        if _intact(found, warn, " in the replica"):
            has = "only damaged checkpoints" if everything else "no checkpoint"
            warn(
                f"{_listed(settings)} contains {has} of '{name}'; using {found.name} from the replica, the newest"
                " intact checkpoint there"
            )
            return found
    if settings.allow_empty:
        warn(f"no checkpoint of '{name}' can be restored; starting empty, because heron.checkpoint.allow_empty is set")
        return None
    if everything or copies:
        raise ClusterError(
            f"every checkpoint of '{name}' is damaged or abandoned; give --restore the path of a copy, or leave out"
            " --restore to start empty"
        )
    also = f" nor in the replica {settings.replica}" if settings.replica else ""
    raise NotThereError(
        f"there is no checkpoint of '{name}' in {_listed(settings)}{also}; leave out --restore to start empty, or give"
        " a path"
    )


def _intact(found: Found, warn: Warn, where: str = "") -> bool:
    """Whether the checkpoint can be used as the latest. Warns with the reason if not."""
    wrong = catalogue.missing_files(found) if not found.abandoned else []
    if found.abandoned:
        warn(f"skipped {found.name}: its topology was later restored from an older checkpoint")
    elif wrong:
        warn(f"skipped {found.name}{where}, which is damaged: {wrong[0]}")
    return not (found.abandoned or wrong)


def _copies(name: str, settings: CheckpointSettings) -> list[Found]:
    """Return the checkpoints of a topology in the configured replica, newest first; empty if there is no replica."""
    replica = replica_of(settings)
    return catalogue.of_topology([replica], name) if replica is not None else []


def _whole_twin(found: Found, copies: list[Found]) -> Found | None:
    """Return the replica's copy of a checkpoint, if it exists and is intact."""
    key = (found.folder.name, found.checkpoint)
    twins = (copy for copy in copies if (copy.folder.name, copy.checkpoint) == key)
    return next((copy for copy in twins if not catalogue.missing_files(copy)), None)


def _named(name: str, settings: CheckpointSettings, wanted: str, warn: Warn) -> Found:
    """Return the checkpoint with this id or at this path. Raises an error if it is missing or damaged."""
    if wanted.isascii() and wanted.isdigit():
        everything, copies = catalogue.of_topology(catalogue.roots_of([settings]), name), _copies(name, settings)
        here = any(found.checkpoint == int(wanted) for found in everything)
        if not here and any(copy.checkpoint == int(wanted) for copy in copies):
            warn(
                f"{_listed(settings)} contains no checkpoint {wanted} of '{name}'; using the replica {settings.replica}"
            )
            everything = copies
        found = by_id(everything, int(wanted), name)
    else:
        listed = catalogue.at_place(place_of(wanted), name)
        if not listed:
            raise NotThereError(
                f"'{wanted}' contains no checkpoint; give a folder chk-<id>, or the folder that contains such folders"
            )
        found = listed[0]
    wrong = catalogue.missing_files(found)
    if wrong:
        raise ClusterError(f"{found.name} is damaged: {wrong[0]}; restore another checkpoint")
    if found.withdrawn:
        raise ClusterError(
            f"{found.name} cannot be restored: its topology was later restored from an older checkpoint, and sinks may"
            " have removed the output that belongs to it; restore an older checkpoint"
        )
    return found


def _listed(settings: CheckpointSettings) -> str:
    return ", ".join(map(str, catalogue.roots_of([settings])))
