"""The error of a load test or a verification."""

from __future__ import annotations

from heronpy.common.errors import HeronError


class LabError(HeronError):
    """A load test or verification cannot run, or has found a problem other than wrong counts."""
