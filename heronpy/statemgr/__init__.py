"""The state manager: versioned nodes, ephemerals, watches, counters and locks.

`open_state` returns the kind of state manager that the configuration names; each kind implements `base.StateManager`
and passes the same contract tests. This package imports a kind only when it is opened. `heronpy.net.state` opens the
kind that a launch file names, including the scheduler's control endpoint.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from heronpy.common.errors import ConfigError
from heronpy.common.nearest import did_you_mean

if TYPE_CHECKING:
    from heronpy.common.setting_types import StatemgrSettings
    from heronpy.statemgr.base import StateManager

_KINDS: Final = {
    "local": ("heronpy.statemgr.localfs", "LocalStateManager"),
    "zookeeper": ("heronpy.statemgr.zookeeper", "ZooKeeperStateManager"),
}
#: Optional dependency of a kind: module and extra.
_EXTRAS: Final = {"zookeeper": ("kazoo", "zookeeper")}


def open_state(state_type: str, root: str, settings: StatemgrSettings | None = None) -> StateManager:
    """Open the state manager of the given kind at the given root."""
    if state_type not in _KINDS:
        raise ConfigError(
            f"unknown state manager type {state_type!r}{did_you_mean(state_type, _KINDS)} in heron.statemgr.type;"
            f" known types are {', '.join(_KINDS)}"
        )
    if not root:
        raise ConfigError(f"the {state_type!r} state manager needs a root; set heron.statemgr.root")
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


def module_of(state_type: str) -> str:
    """Return the module of a kind of state manager, which a fork server loads once for its children."""
    return _KINDS[state_type][0] if state_type in _KINDS else ""
