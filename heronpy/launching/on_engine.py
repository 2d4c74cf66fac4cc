"""Adjusts and checks the settings of a topology for a cluster with an engine, before anything is submitted.

Containers may run on several hosts, so processes reach each other only over TCP, and a file exists on one host only,
unless the settings declare its folder as shared.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from heronpy.clusters.engines import is_shared, kind_of, lease_times, python_of, shared_folders
from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.clusters.requirements import unshared_stores
from heronpy.clusters.room import size_problem
from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import ConfigError, TopologyError
from heronpy.common.folders import heron_home
from heronpy.common.setting_types import CheckpointSettings, LoggingSettings, SparkSettings
from heronpy.common.settings import Resolved, settings_for
from heronpy.connectors.spark import needs_spark
from heronpy.connectors.spark.requirements import check_master, check_packages
from heronpy.engines.contract import EngineError
from heronpy.engines.open import open_engine
from heronpy.ingest.keys import LEDGER_KEY, LOGS_KEY, REPLICAS_KEY, TABLE_KEY
from heronpy.net.addresses import told_at
from heronpy.packing.demand import ResourceRequest
from heronpy.plan.component_config import SerializedValue, config_of, reliability_mode
from heronpy.proto import components_of, topology_pb2
from heronpy.scheduler.leases import fencing_of
from heronpy.storage.objects.opening import check_objects, open_objects
from heronpy.storage.objects.url import Url, place_of
from heronpy.storage.stores import choose_once, replica_of

_GLOB = frozenset("*?[")
#: The end of a sentence that begins with the owner of the ledger.
SQLITE = (
    "keeps its ledger in SQLite, which works on one host only; set heron.ingest.ledger to postgresql://..., or run the"
    " topology on this machine"
)
_FIX = "move it below heron.engine.shared (engine.yaml), or run the topology on this machine"


def settle(topology: topology_pb2.Topology, resolved: Resolved, state_type: str) -> str:
    """Adjust the settings for several hosts; returns the engine's kind, "" for this machine.

    Raises ConfigError or TopologyError if the topology cannot run on the engine.
    """
    kind = kind_of(resolved)
    if not kind:
        return ""
    mode = reliability_mode(topology)
    security = resolved.settings["security"]
    if security["transport"] == "ipc":
        origin = resolved.origins["security.transport"]
        raise ConfigError(
            f"heron.security.transport is ipc ({origin}), which works on one machine only, but the containers of engine"
            f" '{kind}' are on several hosts; remove the setting"
        )
    security["transport"], resolved.origins["security.transport"] = "tcp", f"engine {kind}"
    engine = settings_for(resolved, EngineSettings)
    if engine.on_one_host and not engine.home:  # packages stay there, so not in /tmp
        resolved.settings["engine"]["home"] = str(heron_home() / "engines" / "host")
        resolved.origins["engine.home"] = f"engine {kind}"
    told_at(settings_for(resolved, EngineSettings).endpoint_host, ())
    lease_times(resolved)
    fencing_of(settings_for(resolved, EngineSettings).fencing, mode, state_type == "local")
    for room, name, given in (
        ("logging", "archive", settings_for(resolved, LoggingSettings).archive),
        ("engine", "packages", settings_for(resolved, EngineSettings).packages),
    ):
        _settle_place(resolved, room, name, given)
    problems = [*store_problems(resolved), *_replica_problems(resolved)] if mode == "EFFECTIVELY_ONCE" else []
    if not engine.on_one_host:
        problems += file_problems(topology, shared_folders(resolved))
    if needs_spark(topology):
        problems += _spark_problems(topology, resolved)
    if problems:
        raise TopologyError("\n".join(problems))
    if mode == "EFFECTIVELY_ONCE":
        _settle_store(topology.id, resolved)
    return kind


def _settle_store(topology_id: str, resolved: Resolved) -> None:
    """Choose one of several stores before anything is submitted, because hosts could choose differently."""
    chosen = choose_once(topology_id, settings_for(resolved, CheckpointSettings))
    if chosen is None:
        return
    room = resolved.settings["checkpoint"]
    room.update(
        root=str(chosen.root),
        stores={},
        store_writers=chosen.limits.writers,
        store_rate_bytes=chosen.limits.bytes_per_s,
    )
    origin = f"store '{chosen.name}' by heron.checkpoint.store_policy"
    for name in ("root", "stores", "store_writers", "store_rate_bytes"):
        resolved.origins[f"checkpoint.{name}"] = origin


def _settle_place(resolved: Resolved, room: str, name: str, given: str) -> None:
    """Raise ConfigError unless all hosts can reach a folder or URL for files, and this host can write to it."""
    if not given:
        return
    place = place_of(given)
    if isinstance(place, Url):
        check_objects(open_objects(place), f"heron.{room}.{name}")
    elif not is_shared(place, shared_folders(resolved)):
        raise ConfigError(
            f"heron.{room}.{name} is {given}, a folder on this host; set it to a URL or to a folder below"
            " heron.engine.shared"
        )
    resolved.settings[room][name] = str(place)


def store_problems(resolved: Resolved) -> Iterator[str]:
    """Return the reasons why some hosts cannot reach the checkpoints."""
    for folder in unshared_stores(resolved):
        yield (
            f"EFFECTIVELY_ONCE needs a checkpoint store that all hosts can access, but {folder} is a folder on this"
            " host; set heron.checkpoint.root to a URL or to a folder below heron.engine.shared"
        )


def _replica_problems(resolved: Resolved) -> Iterator[str]:
    replica = replica_of(settings_for(resolved, CheckpointSettings))
    if replica is not None and not isinstance(replica, Url) and not is_shared(replica, shared_folders(resolved)):
        yield (
            f"heron.checkpoint.replica is {replica}, a folder on this host; set it to a URL or to a folder below"
            " heron.engine.shared"
        )


def file_problems(topology: topology_pb2.Topology, shared: list[Path]) -> list[str]:
    """Return a problem for each component that uses files on one host, as far as configurations show. Pure."""
    from heronpy.connectors.files import options as file_sink
    from heronpy.connectors.textfiles.textfilespout import TextFileSpout
    from heronpy.ingest.ledger.reaching import urls_of

    uses = (
        (file_sink.FOLDER, "writes"),
        (TextFileSpout.PATHS, "reads"),
        (TABLE_KEY, "writes"),
        (LOGS_KEY, "reads"),
        (REPLICAS_KEY, "writes"),
    )
    found = []
    for name, part in components_of(topology).items():
        config = config_of(part)
        for key, what in uses:
            found += [
                f"component '{name}' {what} {path}, which other hosts may not have; {_FIX}"
                for path in _paths(config, key)
                if not is_shared(_fixed_part(path), shared)
            ]
        if any(url.startswith("sqlite:") for url in urls_of(str(config.get(LEDGER_KEY, "")))):
            found.append(f"component '{name}' {SQLITE}")
    return found


def _spark_problems(topology: topology_pb2.Topology, resolved: Resolved) -> Iterator[str]:
    """Return why Spark sinks on several hosts could not hand over their batches or reach Spark."""
    from heronpy.connectors.spark.options import sink_options

    settings, shared = settings_for(resolved, SparkSettings), shared_folders(resolved)
    if not settings.handover:
        yield (
            "Spark on several hosts needs a place for batches that all hosts can access; set"
            " heron.spark.handover to a folder below heron.engine.shared (engine.yaml), or to a URL"
        )
    elif not isinstance(place := place_of(settings.handover), Url) and not is_shared(place, shared):
        yield (
            f"heron.spark.handover is {place}, a folder on this host; name a folder below heron.engine.shared"
            " (engine.yaml), or a URL"
        )
    for name, part in components_of(topology).items():
        for option, value in sink_options(config_of(part)).items():
            if isinstance(value, str) and value.startswith("/") and not is_shared(value, shared):
                yield (
                    f"option {option} of SparkSink '{name}' is {value}, which other hosts may not have; put it below"
                    " heron.engine.shared (engine.yaml), or into an object store"
                )


def check_spark_of(resolved: Resolved) -> None:
    """Raise ConfigError if Spark or the hand-over to Spark cannot be used, as far as this host can check."""
    from heronpy.connectors.spark.records import check_handover

    settings = settings_for(resolved, SparkSettings)
    if python_of(resolved) == sys.executable:
        check_packages(settings.master)
    check_master(settings.master)
    check_handover(settings.handover)


def _paths(config: Mapping[str, Any], key: str) -> Sequence[str]:
    given = config.get(key, ())
    if isinstance(given, SerializedValue):
        given = given.plain() or ()
    return [str(given)] if not isinstance(given, list | tuple) else [str(one) for one in given]


def _fixed_part(pattern: str) -> str:
    """Return the part of a pattern before the folder with the first wildcard."""
    parts = Path(pattern).parts
    end = next((index for index, part in enumerate(parts) if _GLOB & set(part)), len(parts))
    return str(Path(*parts[:end])) if end else "."


def check_engine(kind: str, resolved: Resolved, topology_id: str, requests: Mapping[int, ResourceRequest]) -> None:
    """Check with the engine whether it can run the containers. Raises RequestError with the problem and the fix if it
    cannot.
    """
    engine = open_engine(kind, resolved, topology_id, [python_of(resolved)])
    lacking = next((one for one in engine.check() if not one.ok), None)
    if lacking is not None:
        raise RequestError(f"{kind} cannot run the topology: {lacking.what}: {lacking.detail}; {lacking.fix}")
    try:
        problem = size_problem(requests, engine.node_sizes())
    except EngineError as error:
        raise ClusterError(f"{kind} does not report the size of its hosts: {error}") from None
    if problem:
        raise RequestError(problem)
