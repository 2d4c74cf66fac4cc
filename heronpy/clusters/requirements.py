"""`heron cluster check`: tests, one by one, the requirements of a cluster on an engine."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heronpy.clusters.engines import is_shared, kind_of, lease_times, python_of, shared_folders
from heronpy.clusters.records import Records
from heronpy.clusters.trial import Trial, trial_command, trial_id
from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import ConfigError, HeronError
from heronpy.common.folders import check_root
from heronpy.common.setting_types import CheckpointSettings, SecuritySettings
from heronpy.common.settings import Resolved, settings_for
from heronpy.engines.contract import Engine, EngineError, Found
from heronpy.engines.lease import Fencing
from heronpy.engines.open import open_engine
from heronpy.net import transport
from heronpy.net.addresses import address_here, ports_of, told_at
from heronpy.scheduler.leases import fencing_of
from heronpy.storage.objects.url import Url
from heronpy.storage.stores import store_roots

#: Minimum number of ports for the containers of one host: endpoint, links, files, and some metrics pages.
PORTS_MIN = 20
_MODES = ("ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE")


@dataclass(frozen=True, slots=True)
class Checked:
    """An engine to test, and the addresses of this host."""

    engine: Engine
    topology_id: str
    addresses: tuple[str, ...]


def check(records: Records, container: bool) -> Iterator[Found]:
    """Yield one line per requirement, as it is tested; with `container`, also run a test container."""
    try:
        resolved = records.resolve()
        kind = kind_of(resolved)
        if not kind:
            raise ConfigError(
                f"cluster '{records.target.cluster}' has no engine: heron.engine.kind is empty, so containers run here"
            )
    except HeronError as error:
        yield Found("settings", False, str(error), "correct conf/<cluster>/*.yaml, or run 'heron cluster init'")
        return
    yield Found("settings", True, f"engine {kind}")
    yield times(resolved)
    yield fencing(resolved, records.state_place(resolved)[0])
    yield python(resolved)
    folders = [*shared(resolved)]
    yield from folders
    yield checkpoints(resolved)
    yield state(records)
    yield ports(resolved)
    topology_id = trial_id()
    try:
        engine = open_engine(kind, resolved, topology_id, trial_command(python_of(resolved)))
        found = list(engine.check())
    except ConfigError as error:
        yield Found(kind, False, str(error), "correct this setting")
        return
    yield from found
    if not all(one.ok for one in found):
        return
    addresses, line = reach(resolved, engine)
    yield line
    if container and addresses:
        room = settings_for(resolved, EngineSettings)
        usable = shared_folders(resolved) if all(one.ok for one in folders) and not room.on_one_host else []
        port_range = settings_for(resolved, SecuritySettings).port_range
        yield from Trial(engine, topology_id, usable, room.home, port_range, room.endpoint_host).run(addresses)


def times(resolved: Resolved) -> Found:
    """Whether the lease times (for renewal, fencing and loss of a container) are consistent."""
    try:
        found = lease_times(resolved)
    except ConfigError as error:
        return Found("leases", False, str(error), "change the times in engine.yaml")
    detail = f"a silent container is fenced after {found.fence_s:g} s and replaced after {found.lost_s:g} s"
    return Found("leases", True, detail)


def fencing(resolved: Resolved, state_type: str) -> Found:
    """How lost containers are fenced, by reliability mode."""
    asked, chosen = settings_for(resolved, EngineSettings).fencing, {}
    for mode in _MODES:
        try:
            chosen[mode] = fencing_of(asked, mode, state_type == "local").value
        except ConfigError as error:
            if asked == Fencing.LEASE.value:
                return Found("fencing", False, str(error), "use fencing: auto")
            chosen[mode] = "refused"
    return Found("fencing", True, ", ".join(f"{how} for {mode}" for mode, how in chosen.items()))


def python(resolved: Resolved) -> Found:
    """The containers' Python interpreter, as far as this host can check it."""
    path = python_of(resolved)
    if not os.path.isabs(path):
        return Found("python", False, f"heron.engine.python is {path!r}", "give Python's absolute path on the hosts")
    here = "this one" if path == sys.executable else "there" if os.path.exists(path) else "missing on this host"
    return Found("python", True, f"{path} ({here})")


def shared(resolved: Resolved) -> Iterator[Found]:
    """The folders that the settings declare as shared by all hosts."""
    if settings_for(resolved, EngineSettings).on_one_host:
        yield Found("shared folders", True, "all: containers run on this host")
        return
    try:
        folders = shared_folders(resolved)
    except ConfigError as error:
        yield Found("shared folders", False, str(error), "give absolute paths, separated by ':'")
        return
    if not folders:
        yield Found("shared folders", True, "none")
    for folder in folders:
        yield _shared(folder)


def _shared(folder: Path) -> Found:
    try:
        mode = os.stat(folder).st_mode
    except OSError as error:
        return Found("shared folders", False, f"{folder}: {error.strerror}", f"create it: mkdir -m 700 {folder}")
    if not stat.S_ISDIR(mode) or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return Found("shared folders", False, f"{folder} is not a folder that you can write to", "name another folder")
    try:
        check_root(folder, "The shared folder", sticky=True)
    except ConfigError as error:
        return Found("shared folders", False, str(error), f"chmod go-w {folder}, or name a folder below it")
    return Found("shared folders", True, str(folder))


def unshared_stores(resolved: Resolved) -> list[str]:
    """Checkpoint folders that other hosts cannot reach."""
    settings, folders = settings_for(resolved, CheckpointSettings), shared_folders(resolved)
    return [str(root) for root in store_roots(settings) if not isinstance(root, Url) and not is_shared(root, folders)]


def checkpoints(resolved: Resolved) -> Found:
    """Whether EFFECTIVELY_ONCE is possible."""
    try:
        missed = unshared_stores(resolved)
    except ConfigError as error:
        return Found("checkpoints", False, str(error), "correct checkpoint.yaml")
    if missed:
        what = "EFFECTIVELY_ONCE will be refused: set heron.checkpoint.root to a URL or below heron.engine.shared"
        return Found("checkpoints", True, f"{what}; it is {missed[0]}")
    return Found("checkpoints", True, ", ".join(map(str, store_roots(settings_for(resolved, CheckpointSettings)))))


def state(records: Records) -> Found:
    """Whether the state manager can be opened."""
    try:
        kind, root = records.state_place(records.resolve())
        records.names()
    except HeronError as error:
        return Found("state", False, str(error), "see statemgr.yaml")
    endpoint = "; containers reach it through the scheduler's control endpoint" if kind == "local" else ""
    return Found("state", True, f"{kind} at {root}{endpoint}")


def ports(resolved: Resolved) -> Found:
    """Whether the port range is valid and large enough."""
    settings = settings_for(resolved, SecuritySettings)
    try:
        transport.check(settings)
        given = ports_of(settings.port_range)
    except ConfigError as error:
        return Found("ports", False, str(error), "correct security.yaml")
    if settings.transport == "ipc":
        return Found("ports", False, "heron.security.transport is ipc, which works on one machine only", "remove it")
    if given is not None and len(given) < PORTS_MIN:
        what = f"heron.security.port_range {settings.port_range} has {len(given)} ports"
        return Found("ports", False, what, f"give at least {PORTS_MIN}; each process on a host uses one or two")
    return Found("ports", True, settings.port_range or "any free port")


def reach(resolved: Resolved, engine: Engine) -> tuple[tuple[str, ...], Found]:
    """The addresses at which the cluster's hosts reach this host."""
    network = settings_for(resolved, SecuritySettings).network
    endpoint_host = settings_for(resolved, EngineSettings).endpoint_host
    try:
        told_at(endpoint_host, ())
        found = (address_here(network, ""),) if network else engine.reach()
    except (ConfigError, EngineError) as error:
        return (), Found("address", False, str(error), "set heron.security.network, or correct the setting")
    return found, Found("address", True, f"nodes reach this host at {endpoint_host or ', '.join(found)}")
