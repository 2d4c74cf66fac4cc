"""The error of the streamlet API: a description of a computation that cannot be built."""

from __future__ import annotations

from heronpy.common.errors import TopologyError


class StreamletError(TopologyError, RuntimeError):
    """A streamlet was described wrongly.

    It is also a RuntimeError, because Apache heronpy raised one and users catch it.
    """
