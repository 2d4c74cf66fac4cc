"""The API's errors for invalid topologies. Each also derives from the type that Apache heronpy raises.

Programs written for Apache's release catch AssertionError for an invalid spec, and RuntimeError for an
input without a name. The classes also derive from the built-in error that fits: TypeError, ValueError or ImportError.
"""

from __future__ import annotations

from heronpy.common.errors import TopologyError


class SpecTypeError(TopologyError, TypeError, AssertionError):
    """An argument of a spec or of a topology builder has the wrong type."""


class SpecValueError(TopologyError, ValueError, AssertionError):
    """An argument of a spec or of a topology builder has an invalid value."""


class MissingLibraryError(TopologyError, ImportError):
    """A library that user code needs is not installed."""


class UnnamedInputError(TopologyError, ValueError, RuntimeError):
    """An input of a bolt is a component spec without a name."""
