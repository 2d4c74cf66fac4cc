"""The state manager: versioned nodes, ephemerals, watches, counters and locks.

`open_state` gives the kind that the configuration names; each kind fulfils `base.StateManager` and
passes the same contract tests.  Importing this package loads no kind.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from heronpy.common.errors import ConfigError

if TYPE_CHECKING:
    from heronpy.statemgr.base import StateManager

_KINDS: Final = {"local": ("heronpy.statemgr.localfs", "LocalStateManager")}


def open_state(state_type: str, root: str) -> StateManager:
    """Open the state manager of the given type at the given root."""
    if state_type not in _KINDS:
        import difflib  # only for the error

        near = difflib.get_close_matches(state_type, _KINDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ConfigError(
            f"Unknown state manager type {state_type!r} (heron.statemgr.type); known types are"
            f" {', '.join(sorted(_KINDS))}{hint}"
        )
    if not root:
        raise ConfigError(f"The {state_type!r} state manager needs a root (heron.statemgr.root).")
    module, name = _KINDS[state_type]
    manager: StateManager = getattr(import_module(module), name)(root)
    return manager
