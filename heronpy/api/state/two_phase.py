"""The mixin of components that make results visible exactly once, in two phases.

In `pre_save`, a sink stores the rows that it received before the checkpoint, but keeps them invisible to readers.
`post_save` is called when the checkpoint of the whole topology is complete, and makes the rows visible.
"""

from __future__ import annotations

from heronpy.api.state.stateful_component import StatefulComponent


class TwoPhaseStatefulComponent(StatefulComponent):
    """A stateful component that commits with the checkpoint. Checkpoint ids are decimal numbers as text.

    The results of checkpoint n become visible exactly once under three conditions: `pre_save` stores them
    under the id n in the component's state or in the target, `post_save` is idempotent, and `pre_restore`
    finishes the commits up to the restored checkpoint and drops all later results.
    """

    def pre_save(self, checkpoint_id: str) -> None:
        """Prepare: make everything written since the last checkpoint durable but invisible."""

    def post_save(self, checkpoint_id: str) -> None:
        """Commit everything prepared up to this checkpoint. May be called twice, or late, after a restart."""
        raise NotImplementedError(f"{type(self).__name__} must define post_save(checkpoint_id)")

    def pre_restore(self, checkpoint_id: str) -> None:
        """Called when the task starts from this checkpoint ("0" if there is none), after `init_state` and before
        `initialize`. Commit everything prepared up to this checkpoint; drop everything prepared for later
        checkpoints."""
        raise NotImplementedError(f"{type(self).__name__} must define pre_restore(checkpoint_id)")
