"""The state manager: versioned nodes, ephemerals, watches, counters and locks.

`open_state` returns the kind that the configuration names; each kind implements `base.StateManager` and
passes the same contract tests.  Importing this package loads no kind.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from heronpy.common.errors import ConfigError
from heronpy.common.nearest import did_you_mean

if TYPE_CHECKING:
    from heronpy.common.setting_types import StatemgrSettings
    from heronpy.plan.launch import LaunchSpec
    from heronpy.statemgr.base import StateManager

_KINDS: Final = {
    "local": ("heronpy.statemgr.localfs", "LocalStateManager"),
    # Not in this room, because it needs connections. No setting names it: a launch file does, on hosts that do not
    # reach the files of the scheduler's host.
    "door": ("heronpy.net.door_state", "DoorStateManager"),
    "zookeeper": ("heronpy.statemgr.zookeeper", "ZooKeeperStateManager"),
}
_FOR_USERS: Final = ("local", "zookeeper")
#: The session of a process that only reads, as a multiple of what is set, and what the door allows.
_READER_TIMES: Final = 3
_READER_MAX_S: Final = 300.0
#: Optional dependency of a kind: module and extra.
_EXTRAS: Final = {"zookeeper": ("kazoo", "zookeeper")}


def open_state(state_type: str, root: str, settings: StatemgrSettings | None = None) -> StateManager:
    """Open the state manager of the given type at the given root."""
    if state_type not in _KINDS:
        raise ConfigError(
            f"unknown state manager type {state_type!r}{did_you_mean(state_type, _FOR_USERS)} in heron.statemgr.type;"
            f" known types are {', '.join(_FOR_USERS)}"
        )
    if not root:
        raise ConfigError(f"the {state_type!r} state manager needs a root (heron.statemgr.root)")
    module, name = _KINDS[state_type]
    try:
        kind = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        needed, extra = _EXTRAS.get(state_type, ("", ""))
        if not needed or (error.name or "").partition(".")[0] != needed:
            raise
        raise ConfigError(
            f"the {state_type!r} state manager needs {needed}, which is not installed; run"
            f" pip install 'heronpy[{extra}]'"
        ) from None
    manager: StateManager = kind(root) if state_type == "local" else kind(root, settings)
    return manager


def open_state_of(launch: LaunchSpec, owns: bool = True) -> StateManager:
    """Open the state manager of a topology's launch file.

    `owns`: this process makes ephemerals or takes locks. One that only reads says less often that it lives where the
    scheduler's door has to hear it: it loses nothing that another one waits for.
    """
    from msgspec.structs import replace

    from heronpy.common.setting_types import StatemgrSettings
    from heronpy.common.settings import settings_for

    settings = settings_for(launch, StatemgrSettings)
    if not owns and launch.state_type == "door":
        settings = replace(settings, session_timeout_s=min(_READER_MAX_S, _READER_TIMES * settings.session_timeout_s))
    return open_state(launch.state_type, launch.state_root, settings)


def module_of(state_type: str) -> str:
    """The module of a kind, which a fork server loads once for its children."""
    return _KINDS[state_type][0] if state_type in _KINDS else ""
