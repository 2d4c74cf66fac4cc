"""The API's errors for wrong descriptions; each also has the type that Apache heronpy raises there.

Programs written for Apache's release catch AssertionError where a spec is made, and RuntimeError where an
input has no name; the TypeError or ValueError says what is wrong with the argument.
"""

from __future__ import annotations

from heronpy.common.errors import TopologyError


class SpecTypeError(TopologyError, TypeError, AssertionError):
    """An argument of a spec or of a topology builder has the wrong type."""


class SpecValueError(TopologyError, ValueError, AssertionError):
    """An argument of a spec or of a topology builder has a value that cannot be used."""


class MissingLibraryError(TopologyError, ImportError):
    """User code asked for something that needs a library that is not installed."""


class UnnamedInputError(TopologyError, ValueError, RuntimeError):
    """An input of a bolt is a spec without a name."""
