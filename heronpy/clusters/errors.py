"""What cannot be done with a cluster, by class: programs decide by it, people read the sentence."""

from __future__ import annotations

from heronpy.common.errors import HeronError, StateAwayError


class ClusterError(HeronError):
    """What was asked for cannot be done, as things are now."""


class EndpointAwayError(StateAwayError):
    """The control endpoint of one topology's scheduler, by which its state is read from here, does not answer."""


class RequestError(ClusterError):
    """What was asked for is wrong in itself."""


class NotThereError(ClusterError):
    """There is no such topology, or no such checkpoint."""


class PartlyDoneError(ClusterError):
    """Something is left, which the sentence names."""
