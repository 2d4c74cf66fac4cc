"""The mixin of components whose state survives failures (mode EFFECTIVELY_ONCE)."""

from __future__ import annotations

import inspect
from typing import Any

from heronpy.api.state.state import HashMapState
from heronpy.common.errors import TopologyError


class StatefulComponent:
    """A spout or bolt that keeps its state in a `State` object from the runtime."""

    def init_state(self, stateful_state: HashMapState) -> None:
        """Receive the state of the last checkpoint, or an empty state. Called before `initialize`.

        Keep a reference to `stateful_state`, and put everything that must survive a failure into it.
        """

    def pre_save(self, checkpoint_id: str) -> None:
        """Called just before the state is saved, to bring the state object up to date."""


def refuse_old_state(state: HashMapState, what: str) -> None:
    """Raise TopologyError if a checkpoint has a State for a component that now keeps partitioned state."""
    if state:
        raise TopologyError(
            f"{what} was checkpointed by a release of heronpy that saved positions per task; restore the"
            " checkpoint with that release, or start without it"
        )


def call_pre_save(component: Any, checkpoint_id: str) -> None:
    """Call `component.pre_save` with the checkpoint id if it takes an argument, else without arguments.

    Apache documents `pre_save(self)`, but its runtime passes the id; user code has either form.
    """
    parameters = inspect.signature(component.pre_save).parameters.values()
    takes_id = any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)
    if takes_id:
        component.pre_save(checkpoint_id)
    else:
        component.pre_save()
