"""The mixin of components that make results visible exactly once, in two phases.

In `pre_save`, a sink prepares what it received before the checkpoint, invisible to readers. In `post_save`, which
is called when the checkpoint of the whole topology is complete, it makes the result visible.
"""

from __future__ import annotations

from heronpy.api.state.stateful_component import StatefulComponent


class TwoPhaseStatefulComponent(StatefulComponent):
    """A stateful component that commits with the checkpoint. Ids are decimal numbers as text.

    What was prepared for checkpoint n becomes visible exactly once if `pre_save` keeps it under the id n
    in the component's state or in the target, `post_save` is idempotent, and `pre_restore` finishes the
    commits up to the restored checkpoint and drops everything later.
    """

    def pre_save(self, checkpoint_id: str) -> None:
        """Prepare: make everything since the last checkpoint durable but invisible."""

    def post_save(self, checkpoint_id: str) -> None:
        """Commit what was prepared up to this checkpoint. May be called twice, or only after a restart."""
        raise NotImplementedError(f"{type(self).__name__} must define post_save(checkpoint_id)")

    def pre_restore(self, checkpoint_id: str) -> None:
        """The task starts from this checkpoint, "0" for none: called after `init_state` and before
        `initialize`. Commit what was prepared up to it; drop what was prepared for later ones."""
        raise NotImplementedError(f"{type(self).__name__} must define pre_restore(checkpoint_id)")
