"""Errors of cluster operations: programs distinguish the classes, and people read the message."""

from __future__ import annotations

from heronpy.common.errors import HeronError, StateAwayError


class ClusterError(HeronError):
    """The request cannot be carried out in the current state."""


class EndpointAwayError(StateAwayError):
    """The control endpoint through which this host reads a topology's state does not answer."""


class RequestError(ClusterError):
    """The request itself is invalid."""


class NotThereError(ClusterError):
    """The topology or the checkpoint does not exist."""


class PartlyDoneError(ClusterError):
    """The request was only partly carried out; the message names the remaining parts."""
