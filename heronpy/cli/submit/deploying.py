"""`heron job create` and `deploy`: from a user's program to a stored definition, which the manager applies."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from heronpy.cli import exits
from heronpy.cli.change.jobs import ensure_manager, opened, say_outcome, writer
from heronpy.cli.output import say, warning
from heronpy.cli.submit.child import Child
from heronpy.cli.submit.loader import NOT_STARTED, load
from heronpy.cli.submit.program import understand
from heronpy.clusters.errors import RequestError
from heronpy.clusters.pools import find as find_pool
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import ConfigError, NodeExistsError
from heronpy.common.units import parse_duration_s
from heronpy.jobs import adopting
from heronpy.jobs.documents import ALLOW_DROPPED
from heronpy.jobs.driver import STARTS_FROM, definition_of
from heronpy.jobs.store import Definition, Store
from heronpy.launching import submission
from heronpy.launching.restoring import LATEST
from heronpy.proto import topology_pb2
from heronpy.statemgr import paths


def create(
    target: Target,
    program: str,
    words: tuple[str, ...],
    slo: str | None,
    most: tuple[str, ...],
    pool: str | None,
    why: str,
    detach: bool,
    timeout_s: float,
    common: Common,
) -> None:
    """Make a job from a program, and wait until its topology runs."""
    promised = _promised(slo, most)
    session, store = opened(target, common)
    session.check_cluster()
    if pool is not None:
        find_pool(session, pool)
        promised["place"] = {"pool": pool}
    topology, definition = _defined(session, program, words, timeout_s)
    name = topology.name
    if session.state.exists(paths.job(name)):
        raise NodeExistsError(
            f"job '{name}' exists; deploy the program to it: heron job deploy {target} {name} {program}"
        )
    # The lock excludes other submits of a topology of this name.
    with session.operation(name):
        submission.refuse_taken(session, name, f", or turn it into a job: heron job adopt {target} {name}")
        layer = _layer(store, topology, definition, common)
        layer["scale"] = {**layer["scale"], **promised.pop("scale", {})}
        store.create(name, {"provisioner": {**layer, **promised}}, writer(), why or "created")
    say(f"job {name}: created")
    ensure_manager(session)
    if not detach:
        say_outcome(session, store, name, timeout_s, proved=False)
        for one in store.log(name).decisions:
            if one.text.startswith(STARTS_FROM):
                say(f"job {name}: {one.text} of an earlier topology '{name}'; restore=empty starts without state")


def adopt(target: Target, topology: str, why: str, detach: bool, timeout_s: float, common: Common) -> None:
    """Make a job from a running topology, and wait until the manager maintains it."""
    session, store = opened(target, common)
    adopting.adopt(session, store, topology, writer(), why or "adopted")
    say(f"job {topology}: adopted; nothing was restarted")
    ensure_manager(session)
    if not detach:
        say_outcome(session, store, topology, timeout_s)


def _promised(slo: str | None, most: tuple[str, ...]) -> dict[str, Any]:
    """Return `slo` and `scale` of a layer, from texts such as `lag=5s` and `work=8`."""
    layer: dict[str, Any] = {}
    if slo is not None:
        key, found, value = slo.partition("=")
        try:
            if key != "lag" or not found:
                raise ValueError
            layer["slo"] = {"lag_s": parse_duration_s(value)}
        except (ConfigError, ValueError):
            raise ConfigError(f"--slo {slo!r} does not have the form lag=TIME; give a time, such as lag=5s") from None
    for text in most:
        component, _, number = text.rpartition("=")
        if not component or not number.isdecimal():
            raise ConfigError(
                f"--max {text!r} does not have the form COMPONENT=N; give a component and a number, such as work=8"
            )
        layer.setdefault("scale", {}).setdefault("max", {})[component] = int(number)
    return layer


def deploy(
    target: Target,
    job: str,
    program: str,
    words: tuple[str, ...],
    allow_dropped_state: bool,
    why: str,
    detach: bool,
    timeout_s: float,
    common: Common,
) -> None:
    """Deploy another program to a job; wait until it has run without problems, or the old program runs again."""
    session, store = opened(target, common)
    view = store.get(job)
    topology, definition = _defined(session, program, words, timeout_s, job)
    layer = _layer(store, topology, definition, common)
    before = view.found.get(("restore",))
    if allow_dropped_state:
        layer["restore"] = ALLOW_DROPPED
    elif before is not None and before.layer == "provisioner" and before.value == ALLOW_DROPPED:
        layer["restore"] = LATEST  # the permission was for another program
    after = store.set(job, "provisioner", layer, view.versions["provisioner"], writer(), why or f"deployed {program}")
    changed = after.versions != view.versions
    version = f"provisioner v{after.versions['provisioner']}"
    say(f"job {job}: {version if changed else 'it has this program already'}")
    ensure_manager(session)
    if not detach:
        say_outcome(session, store, job, timeout_s)


def _defined(
    session: Session, program: str, words: tuple[str, ...], timeout_s: float, name: str | None = None
) -> tuple[topology_pb2.Topology, Definition]:
    """Return the checked topology of a program and its definition, after storing the package on this host."""
    with Child() as child, tempfile.TemporaryDirectory(prefix="heron-job-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        try:
            loaded = load(child, understand(program, words, folder), session.target, False, folder, timeout_s)
        except exits.Failure as error:
            left = f"job {name} is unchanged" if name is not None else "no job was made"
            raise exits.Failure(str(error).replace(NOT_STARTED, left), error.code, error.report) from None
        topology = loaded.topology
        if name is not None and topology.name != name:
            raise RequestError(
                f"the topology of {program} is '{topology.name}', but the job is '{name}'; deploy the program of"
                f" '{name}', or give the program this name: heron job deploy {session.target} {name} {program} {name}"
            )
        submission.plan(session, topology, warning)
        kept = submission.keep(loaded)
    role, environ = session.target.role_or_user, session.target.environ_or_default
    return topology, definition_of(topology, kept, role, environ, loaded.plain)


def _layer(store: Store, topology: topology_pb2.Topology, definition: Definition, common: Common) -> dict[str, Any]:
    """Return the layer `provisioner`, with the settings from the command line."""
    layer = adopting.layer_of(topology, store.define(definition))
    for text in common.config_property:
        key, found, value = text.partition("=")
        if not found:
            raise ConfigError(f"--config-property {text!r} does not have the form key=value")
        layer.setdefault("settings", {})[key] = value
    return layer
