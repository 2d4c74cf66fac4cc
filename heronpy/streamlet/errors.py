"""The error of the streamlet API for a computation that cannot be built."""

from __future__ import annotations

from heronpy.common.errors import TopologyError


class StreamletError(TopologyError, RuntimeError):
    """The description of a streamlet is invalid.

    It is also a RuntimeError, because Apache heronpy raised one and users catch it.
    """
