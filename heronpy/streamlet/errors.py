"""The error of the streamlet API for a computation that cannot be built."""

from __future__ import annotations

from heronpy.common.errors import TopologyError


class StreamletError(TopologyError, RuntimeError):
    """The description of a streamlet is invalid.

    The class derives from RuntimeError, because Apache heronpy raises a RuntimeError and users catch it.
    """
