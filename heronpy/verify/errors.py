"""The error of a verification that cannot be done, or whose fault itself went wrong."""

from __future__ import annotations

from heronpy.common.errors import HeronError


class VerifyError(HeronError):
    """A verification cannot be done, or something besides the records is wrong; the message says what."""
