"""Finds the engine of a cluster or topology for commands, and ends a topology's objects on the engine.

Commands send requests to an engine only before the topology's scheduler has started or after it has ended.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import ConfigError
from heronpy.common.folders import absolute
from heronpy.common.nearest import suggestion
from heronpy.common.setting_types import SchedulerSettings
from heronpy.common.settings import HasSettings, settings_for
from heronpy.engines.contract import Ended, Engine, EngineAwayError, EngineError, Seen, traits_of
from heronpy.engines.lease import LeaseTimes
from heronpy.engines.open import kinds, open_engine
from heronpy.plan.launch import Submitted

#: Grace period, in seconds, of a container that a command ends, if the engine supports grace periods.
CANCEL_GRACE_S = 5.0
LOOK_S = 0.5
#: After this time, in seconds, a waiting command reports why it waits.
QUIET_S = 2.0


def kind_of(settings: HasSettings) -> str:
    """The kind of engine in the settings; "" for this machine. Raises ConfigError for an unknown engine."""
    kind = settings_for(settings, EngineSettings).kind
    if kind:
        check_kind(kind)
    return kind


def check_kind(kind: str) -> None:
    """Raise ConfigError, with the nearest name, for an unknown engine."""
    known = kinds()
    if kind not in known:
        hint = suggestion(kind, known, f"; known engines are {', '.join(known)}")
        raise ConfigError(f"this release has no engine '{kind}'{hint}")


def python_of(settings: HasSettings) -> str:
    """The Python interpreter for containers."""
    return settings_for(settings, EngineSettings).python or sys.executable


def shared_folders(settings: HasSettings) -> list[Path]:
    """The folders that all hosts share; on a single host, all folders. Raises ConfigError for a relative path."""
    engine = settings_for(settings, EngineSettings)
    if engine.on_one_host:
        return [Path("/")]
    named = [folder for folder in engine.shared.split(":") if folder]
    for folder in named:
        if not os.path.isabs(folder):
            raise ConfigError(
                f"heron.engine.shared names {folder!r}, which is not an absolute path; give absolute paths"
            )
    return [absolute(folder) for folder in named]


def is_shared(folder: str | os.PathLike[str], shared: list[Path]) -> bool:
    """Whether a folder is inside one that all hosts share."""
    path = absolute(folder)
    return any(path == one or one in path.parents for one in shared)


def lease_times(settings: HasSettings) -> LeaseTimes:
    """The lease times; raises ConfigError if they contradict each other."""
    engine, scheduler = settings_for(settings, EngineSettings), settings_for(settings, SchedulerSettings)
    return LeaseTimes(engine.renew_s, engine.fence_s, engine.lost_s, scheduler.kill_grace_s, engine.permit_s)


def engine_of(submitted: Submitted) -> Engine:
    """The engine of a submitted topology; starts nothing."""
    return open_engine(submitted.engine, submitted, submitted.topology_id, [python_of(submitted)])


def where(one: Seen) -> str:
    """An object of an engine as text: `container 2 (812_2 on n17)`."""
    return f"container {one.container} ({one.engine_id}{f' on {one.host}' if one.host else ''})"


class Ends(Struct, frozen=True):
    """The outcome of ending a topology's objects on the engine."""

    asked: int = 0
    #: Objects that have not ended.
    left: tuple[str, ...] = ()
    #: Objects that the engine has abandoned. Their processes may still be running on a host that does not answer.
    unconfirmed: tuple[str, ...] = ()
    #: Names of hosts on which files of ended objects may be left.
    hosts: tuple[str, ...] = ()


def end_all(
    engine: Engine,
    timeout_s: float,
    sleep: Callable[[float], None] = time.sleep,
    waits: Callable[[str], None] = lambda text: None,
) -> Ends:
    """End all objects of a topology, and wait until they have ended. Raises EngineError if the engine does not answer.

    If the end takes a while, `waits` is called once with the reason.
    """
    # Without a watch, some engines cannot report how an object ended that the next list no longer shows.
    with engine.watch(lambda: None):
        return _end_all(engine, timeout_s, sleep, waits)


def _end_all(engine: Engine, timeout_s: float, sleep: Callable[[float], None], waits: Callable[[str], None]) -> Ends:
    began, told = time.monotonic(), False
    deadline, asked, count = began + timeout_s, False, 0
    seen: list[Seen] = []
    hosts: set[str] = set()
    while True:
        try:
            seen = list(engine.list())
            left = [one for one in seen if one.ended is Ended.NO]
            if left and not asked:
                count = len(left)
                hosts = {one.host for one in left if one.host and traits_of(engine).keeps_files}
                engine.cancel([one.engine_id for one in left], CANCEL_GRACE_S)
                asked = True
            if not left:
                with suppress(EngineError):
                    # Some engines remove an ended object only in the `list` call after the one that reported its end.
                    engine.list()
                break
        except EngineAwayError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            break
        if not told and time.monotonic() > began + QUIET_S:
            told = True
            names = ", ".join(where(one) for one in seen if one.ended is Ended.NO)
            waits(f"waiting for {names} to end" if names else "waiting for the engine, which does not answer")
        sleep(LOOK_S)
    return Ends(
        count,
        tuple(where(one) for one in seen if one.ended is Ended.NO),
        tuple(where(one) for one in seen if one.ended is Ended.UNCONFIRMED),
        tuple(sorted(hosts)),
    )
