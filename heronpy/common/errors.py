"""The error tree of heronpy.

    HeronError                     base; `str(error)` is one sentence for people
      ConfigError                  a setting or option is wrong
      TopologyError                the user's topology is wrong
      PackageError                 the user's package cannot be used
      StateError                   the state manager refused
        NodeExistsError / NoNodeError / VersionMismatchError
        StateAwayError             it cannot be reached now; also a RetryableError
      WireError                    a frame or message is wrong
        LocalWireError             our own fault: we tried to send it
        RemoteWireError            the peer's fault: we received it
      RpcError                     the peer answered with an error
      DeadlineError                something did not happen in time
      FencedError                  the caller's epoch or lease is stale: stop, do not retry
      RetryableError               a later attempt may succeed
      FatalError                   no later attempt can succeed

Each error builds one clear sentence that names the thing and the fix.
"""

from __future__ import annotations


class HeronError(Exception):
    """Base of all errors that heronpy raises on purpose."""


class ConfigError(HeronError):
    """A setting, option or configuration file is wrong."""


class TopologyError(HeronError):
    """The topology that the user described cannot run."""


class PackageError(HeronError):
    """The package that the user submitted cannot be used."""


class StateError(HeronError):
    """The state manager refused an operation."""


class NodeExistsError(StateError):
    """A node that should be new exists."""


class NoNodeError(StateError):
    """A node that should exist does not."""


class VersionMismatchError(StateError):
    """Somebody else wrote the node since it was read."""


class NoSpaceError(StateError):
    """The disk of the state manager is full."""


class DamagedStateError(StateError):
    """What a node holds cannot be read; trying again does not help (F24)."""


class WireError(HeronError):
    """A frame or message is malformed or too large."""


class LocalWireError(WireError):
    """We tried to send something that cannot be sent."""


class RemoteWireError(WireError):
    """A peer sent something that cannot be accepted."""


class RpcError(HeronError):
    """The peer answered a request with an error."""


class DeadlineError(HeronError):
    """Something did not happen before its deadline."""


class LostReplyError(DeadlineError):
    """The peer ended before it answered: what was asked for may be done or not."""


class FencedError(HeronError):
    """The caller's epoch, lease or permit is stale; it must stop and not retry."""


class RetryableError(HeronError):
    """A later attempt may succeed."""


class StateAwayError(StateError, RetryableError):
    """The state manager cannot be reached at the moment."""


class FatalError(HeronError):
    """No later attempt can succeed."""
