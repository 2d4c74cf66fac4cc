"""The API's errors for invalid descriptions; each also has the type that Apache heronpy raises.

Programs written for Apache's release catch AssertionError for an invalid spec, and RuntimeError for an
input without a name. The additional TypeError or ValueError describes the argument's problem.
"""

from __future__ import annotations

from heronpy.common.errors import TopologyError


class SpecTypeError(TopologyError, TypeError, AssertionError):
    """An argument of a spec or of a topology builder has the wrong type."""


class SpecValueError(TopologyError, ValueError, AssertionError):
    """An argument of a spec or of a topology builder has a value that cannot be used."""


class MissingLibraryError(TopologyError, ImportError):
    """User code needs a library that is not installed."""


class UnnamedInputError(TopologyError, ValueError, RuntimeError):
    """An input of a bolt is a spec without a name."""
