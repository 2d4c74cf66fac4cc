"""The error tree of heronpy. Pure.

    HeronError                     base; `str(error)` is one sentence
      ConfigError                  a setting or option is invalid
      TopologyError                the user's topology is invalid
      PackageError                 the user's package cannot be used
      StateError                   the state manager refused an operation
        NodeExistsError / NoNodeError / VersionMismatchError
        NoSpaceError               the disk of the state manager is full
        DamagedStateError          a node cannot be read, now or later
        StateAwayError             the state manager cannot be reached now; also a RetryableError
      WireError                    a frame or message is invalid
        LocalWireError             this process tried to send it
        RemoteWireError            this process received it from a peer
      RpcError                     the peer refuses a request
        RetryableRpcError          for now; also a RetryableError
        FencedRpcError             because the caller was replaced; also a FencedError
        InvalidRpcError            because the request is invalid
        LateRpcError               because it could not finish in time
        AnswerError                the peer's answer cannot be read
      DeadlineError                an awaited event did not happen in time
        LostReplyError             the peer stopped first: the request may or may not have been carried out
      LedgerError                  the ledger of a pipeline refuses a request
        NoPipelineError            because it has no pipeline with this name
        MovedLedgerError           because the pipeline has another partition map
        LedgerAwayError            the ledger cannot be reached now; also a RetryableError
          RemovedLedgerError       because the file of the ledger was removed or replaced
      FencedError                  the caller's epoch or lease is stale: stop, do not retry
        ReplacedError              a process with a higher epoch has replaced it
      RetryableError               a later attempt may succeed
      FatalError                   no later attempt can succeed
        GaveUpError                a task is not restarted, and its topology has failed

Each error builds one sentence that names the object and the fix. It is in lower case unless it begins with a name, and
has no full stop, so that a caller can embed it in another sentence. Programs check the class, never the sentence;
between processes the class is sent as a `Refusal`, see `heronpy.net.rpc`.
"""

from __future__ import annotations


class HeronError(Exception):
    """Base of all errors that heronpy raises on purpose."""


class ConfigError(HeronError):
    """A setting, option or configuration file is invalid."""


class TopologyError(HeronError):
    """The topology that the user described cannot run."""


class PackageError(HeronError):
    """The package that the user submitted cannot be used."""


class StateError(HeronError):
    """The state manager refused an operation."""


class NodeExistsError(StateError):
    """A node to be created already exists."""


class NoNodeError(StateError):
    """A node that must exist is missing."""


class VersionMismatchError(StateError):
    """The node has changed since it was read."""


class NoSpaceError(StateError):
    """The disk of the state manager is full."""


class DamagedStateError(StateError):
    """The content of a node cannot be read, and a retry does not help."""


class WireError(HeronError):
    """A frame or message is malformed or too large."""


class LocalWireError(WireError):
    """This process tried to send a value that cannot be sent."""


class RemoteWireError(WireError):
    """A peer sent data that cannot be accepted."""


class RpcError(HeronError):
    """The peer refuses a request."""


class InvalidRpcError(RpcError):
    """The request is invalid, or its sender does not belong to this topology."""


class LateRpcError(RpcError):
    """The peer has answered that it did not carry out the request before its deadline."""


class AnswerError(RpcError):
    """The peer's answer cannot be read, for example because it is from another release."""


class DeadlineError(HeronError):
    """An awaited event did not happen before its deadline."""


class LostReplyError(DeadlineError):
    """The peer stopped before it answered: the request may or may not have been carried out."""


class FencedError(HeronError):
    """The caller's epoch, lease or permit is stale; it must stop and not retry."""


class FencedRpcError(RpcError, FencedError):
    """The peer refuses the caller, because a newer incarnation of the caller exists."""


class ReplacedError(FencedError):
    """The incarnation `epoch` of process `who` was replaced by the incarnation `newer`."""

    def __init__(self, who: str, epoch: int, newer: int) -> None:
        super().__init__(who, epoch, newer)
        self.who, self.epoch, self.newer = who, epoch, newer

    def __str__(self) -> str:
        return f"{self.who} of epoch {self.epoch} was replaced by epoch {self.newer}; stop the older process"


class RetryableError(HeronError):
    """A later attempt may succeed."""


class RetryableRpcError(RpcError, RetryableError):
    """The peer cannot accept the request at the moment."""


class StateAwayError(StateError, RetryableError):
    """The state manager cannot be reached at the moment."""


class LedgerError(HeronError):
    """The ledger of a pipeline refuses a request, or cannot be opened."""


class NoPipelineError(LedgerError):
    """The ledger has no pipeline with that name."""


class LedgerAwayError(LedgerError, RetryableError):
    """The ledger cannot be reached at the moment; it may or may not have carried out the request."""


class MovedLedgerError(LedgerError):
    """The pipeline's partition map differs from the map that this process uses."""


class RemovedLedgerError(LedgerAwayError):
    """The file of the ledger was removed or replaced while this process used it."""


class FatalError(HeronError):
    """No later attempt can succeed."""


class GaveUpError(FatalError):
    """A task fails permanently, because a restart would not help; the topology fails with the error's message."""
