"""Settings and checks for submitting pipelines of work units: site, ledger, and cycles of `after`.

A fault in a ledger or table on this host is reported here, before anything starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from heronpy.common.engine_settings import EngineSettings, IngestSettings
from heronpy.common.errors import ConfigError, LedgerAwayError, LedgerError, TopologyError
from heronpy.common.settings import Resolved, settings_for
from heronpy.connectors.spark.requirements import DISPATCH_KEY
from heronpy.ingest.keys import (
    AFTER_KEY,
    DEFAULT_KEY,
    LEDGER_KEY,
    LOGS_KEY,
    PIPELINE_KEY,
    REPLICAS_KEY,
    SITE_KEY,
    TABLE_KEY,
)
from heronpy.ingest.ledger.reaching import afters_of, refuse, text_of
from heronpy.ingest.options import SITE_MARK, site_problem
from heronpy.ingest.outputs.stages import Stages
from heronpy.launching.model import Warn, unheard
from heronpy.plan.component_config import SerializedValue, config_of, set_key
from heronpy.proto import components_of, topology_pb2


def settle(topology: topology_pb2.Topology, resolved: Resolved, warn: Warn = unheard) -> None:
    """Set the site and ledger of the components of pipelines. Raises TopologyError or ConfigError if a pipeline cannot
    run.
    """
    parts = {name: part for name, part in components_of(topology).items() if LEDGER_KEY in config_of(part)}
    if not parts:
        return
    settings = settings_for(resolved, IngestSettings)
    given, ledger = settings.site, ledger_of(settings.ledger)
    if given and (wrong := site_problem(given)):
        raise ConfigError(f"heron.ingest.{wrong}")
    problems: list[str] = []
    for part in parts.values():
        config = config_of(part)
        own = str(config.get(SITE_KEY, ""))
        problems += site_problems(str(config[PIPELINE_KEY]), own, given, str(config.get(LOGS_KEY, "")))
        if given and DISPATCH_KEY in config:
            problems.append(
                f"pipeline '{config[PIPELINE_KEY]}' has SparkBatches, which does not support the site {given}; use a"
                " ParquetTable, or submit the topology without heron.ingest.site"
            )
        if given:
            set_key(part.comp.config, SITE_KEY, given)
        if ledger and config.get(DEFAULT_KEY):
            set_key(part.comp.config, LEDGER_KEY, ledger)
    configs = [config_of(part) for part in parts.values()]
    problems += shared_tables(configs)
    if not settings_for(resolved, EngineSettings).kind:
        problems += _unusable(configs)
    if not problems:
        problems += _circles(configs, warn)
    if problems:
        raise TopologyError("\n".join(dict.fromkeys(problems)))


def ledger_of(given: str) -> str:
    """Return the setting `heron.ingest.ledger` in the form of `text_of`. Raises ConfigError if it is invalid."""
    try:
        return text_of(given) if given else ""
    except LedgerError as error:
        raise ConfigError(f"heron.ingest.ledger: {error}") from None


def site_problems(pipeline: str, own: str, given: str, logs: str) -> Iterator[str]:
    """Yield the problems with the site that a program names, and with the site in the settings. Pure."""
    if own and given and own != given:
        yield (
            f"pipeline '{pipeline}' has the site {own} in its program and {given} in heron.ingest.site; leave site= out"
            " of the program to submit it on several sites"
        )
    if SITE_MARK in logs and not own and not given:
        yield (
            f"pipeline '{pipeline}' reads {logs}, but the name of this site is not set; submit the topology with"
            " --config-property heron.ingest.site=NAME"
        )


def _unusable(configs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for config in configs:
        pipeline = str(config[PIPELINE_KEY])
        try:
            ledger = refuse(str(config[LEDGER_KEY]), pipeline, str(config[LOGS_KEY]))
            replicas = config.get(REPLICAS_KEY)
            folders = replicas.plain() if isinstance(replicas, SerializedValue) else None
            Stages(str(config[TABLE_KEY]), folders or ()).refuse(pipeline, ledger)
        except (LedgerError, ConfigError) as error:
            yield f"pipeline '{pipeline}': {error}"
        except OSError as error:
            yield f"pipeline '{pipeline}': {error.filename} cannot be checked: {error.strerror}"


def shared_tables(configs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the problems that `Stages.refuse` would find, for tables that no pipeline has claimed yet. Pure."""
    owners: dict[str, str] = {}
    for config in configs:
        table, pipeline = str(config[TABLE_KEY]), str(config[PIPELINE_KEY])
        owner = owners.setdefault(table, pipeline)
        if owner != pipeline:
            yield (
                f"pipeline '{pipeline}': {table} is also the table of pipeline {owner!r}; give {pipeline!r} a separate"
                " table"
            )


def _circles(configs: Iterable[Mapping[str, Any]], warn: Warn) -> Iterator[str]:
    ledgers: dict[str, dict[str, tuple[str, ...]]] = {}
    for config in configs:
        after = tuple(name for name in str(config.get(AFTER_KEY, "")).split(",") if name)
        ledgers.setdefault(str(config[LEDGER_KEY]), {})[str(config[PIPELINE_KEY])] = after
    for ledger, pipelines in ledgers.items():
        if not any(pipelines.values()):
            continue
        try:
            known = afters_of(ledger)
        except LedgerAwayError as error:
            warn(f"cannot check before the start whether pipelines wait for each other in a cycle: {error}")
            known = {}
        except LedgerError:
            known = {}  # the ledger does not exist yet
        for name in pipelines:
            circle = circle_of(name, {**known, **pipelines})
            if circle:
                yield f"pipelines wait for each other in a cycle: {' after '.join(circle)}; leave one `after` out"


def circle_of(name: str, afters: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return a path from a pipeline back to itself along `after`; empty if there is no cycle. Pure."""
    ways: list[tuple[str, ...]] = [(name,)]
    known: set[str] = set()
    while ways:
        way = ways.pop()
        for one in afters.get(way[-1], ()):
            if one == name:
                return (*way, one)
            if one not in known:
                known.add(one)
                ways.append((*way, one))
    return ()
