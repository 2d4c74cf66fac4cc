"""Leases: the right to act as the one owner of something, with a number that fences older owners.

A `Lease` can only be had from `claim`, which takes the next epoch from a counter and creates an
ephemeral node with it.  Invariants: epochs of one counter only grow; a lease whose node is gone or
has been taken by another is not held, and `require` then raises FencedError.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from heronpy.common.errors import FencedError, NodeExistsError, NoNodeError, VersionMismatchError
from heronpy.statemgr.base import StateManager


@dataclass(slots=True)
class Lease:
    """Proof of ownership of `path` at `epoch`."""

    state: StateManager
    path: str
    epoch: int
    data: bytes
    version: int = 1

    def held(self) -> bool:
        """Whether the node still says that we are the owner."""
        return self.state.get(self.path) == (self.data, self.version)

    def require(self) -> None:
        """Raise FencedError unless the lease is held."""
        if not self.held():
            raise FencedError(f"Lease {self.path!r} of epoch {self.epoch} has passed to another.")

    def update(self, data: bytes) -> None:
        """Change what the node says; FencedError when it is ours no more."""
        self.require()
        try:
            self.version = self.state.set(self.path, data, version=self.version)
        except (VersionMismatchError, NoNodeError):
            raise FencedError(
                f"Lease {self.path!r} of epoch {self.epoch} has passed to another."
            ) from None
        self.data = data

    def release(self) -> None:
        """Give the lease up, if it is still ours."""
        if self.held():
            with contextlib.suppress(VersionMismatchError, NoNodeError):
                self.state.delete(self.path, version=self.version)


def claim(
    state: StateManager, path: str, epochs: str, describe: Callable[[int], bytes]
) -> Lease | None:
    """Become the owner of `path`, or None while another process is.

    `epochs` is the path of the counter of epochs; `describe(epoch)` gives the content of the node
    and must contain the epoch, so that no two owners write the same bytes.
    """
    if state.exists(path):
        return None
    epoch = state.counter(epochs)
    data = describe(epoch)
    try:
        state.create(path, data, ephemeral=True)
    except NodeExistsError:
        return None
    return Lease(state, path, epoch, data)
