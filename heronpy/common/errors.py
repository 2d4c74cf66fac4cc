"""The error tree of heronpy. Pure.

    HeronError                     base; `str(error)` is one sentence
      ConfigError                  a setting or option is wrong
      TopologyError                the user's topology is wrong
      PackageError                 the user's package cannot be used
      StateError                   the state manager refused
        NodeExistsError / NoNodeError / VersionMismatchError
        NoSpaceError               its disk is full
        DamagedStateError          a node cannot be read, now or later
        StateAwayError             it cannot be reached now; also a RetryableError
      WireError                    a frame or message is wrong
        LocalWireError             our own fault: we tried to send it
        RemoteWireError            the peer's fault: we received it
      RpcError                     the peer refuses a request
        RetryableRpcError          for now; also a RetryableError
        FencedRpcError             because the caller was replaced; also a FencedError
        InvalidRpcError            because the request is wrong
        LateRpcError because it could not finish in time
        AnswerError                its answer cannot be read
      DeadlineError                something did not happen in time
        LostReplyError             the peer ended first: the request may or may not have been carried out
      LedgerError                  the ledger of a pipeline refuses a request
        NoPipelineError            because it has no pipeline of this name
        MovedLedgerError           because the pipeline has another partition map
        LedgerAwayError            it cannot be reached now; also a RetryableError
          RemovedLedgerError       because its file was removed or replaced
      FencedError                  the caller's epoch or lease is stale: stop, do not retry
        ReplacedError              a process with a higher epoch has its place
      RetryableError               a later attempt may succeed
      FatalError                   no later attempt can succeed
        GaveUpError                a task gives up: it is not started again, and its topology has failed

Each error builds one clear sentence that names the thing and the fix, in lower case unless a name begins it and without
a full stop, so that a caller can make it part of another sentence. Programs decide by the class, never by the
sentence; between processes the class travels as a `Refusal`, see `heronpy.net.rpc`.
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
    """The node was changed since it was read."""


class NoSpaceError(StateError):
    """The disk of the state manager is full."""


class DamagedStateError(StateError):
    """The content of a node cannot be read; trying again does not help (F24)."""


class WireError(HeronError):
    """A frame or message is malformed or too large."""


class LocalWireError(WireError):
    """This process tried to send something that cannot be sent."""


class RemoteWireError(WireError):
    """A peer sent something that cannot be accepted."""


class RpcError(HeronError):
    """The peer refuses a request."""


class InvalidRpcError(RpcError):
    """The request is wrong in itself, or its sender does not belong to this topology."""


class LateRpcError(RpcError):
    """The peer has answered that it did not carry out the request before its deadline."""


class AnswerError(RpcError):
    """The peer has answered with something that cannot be read, such as the answer of another release."""


class DeadlineError(HeronError):
    """Something did not happen before its deadline."""


class LostReplyError(DeadlineError):
    """The peer ended before it answered: the request may or may not have been carried out."""


class FencedError(HeronError):
    """The caller's epoch, lease or permit is stale; it must stop and not retry."""


class FencedRpcError(RpcError, FencedError):
    """The peer knows a newer incarnation of the caller."""


class ReplacedError(FencedError):
    """`who`, of epoch `epoch`, was replaced by an incarnation of epoch `newer`."""

    def __init__(self, who: str, epoch: int, newer: int) -> None:
        super().__init__(who, epoch, newer)
        self.who, self.epoch, self.newer = who, epoch, newer

    def __str__(self) -> str:
        return f"{self.who} of epoch {self.epoch} was replaced by epoch {self.newer}; stop the older process"


class RetryableError(HeronError):
    """A later attempt may succeed."""


class RetryableRpcError(RpcError, RetryableError):
    """The peer cannot take the request at the moment."""


class StateAwayError(StateError, RetryableError):
    """The state manager cannot be reached at the moment."""


class LedgerError(HeronError):
    """The ledger of a pipeline refuses a request, or cannot be opened."""


class NoPipelineError(LedgerError):
    """The ledger has no pipeline of that name."""


class LedgerAwayError(LedgerError, RetryableError):
    """The ledger cannot be reached at the moment; it may or may not have carried out the request."""


class MovedLedgerError(LedgerError):
    """The pipeline has a different partition map than this process uses."""


class RemovedLedgerError(LedgerAwayError):
    """The file of the ledger was removed or replaced while this process used it."""


class FatalError(HeronError):
    """No later attempt can succeed."""


class GaveUpError(FatalError):
    """A restart of the task that raises it cannot help: its topology has failed, with this sentence."""
