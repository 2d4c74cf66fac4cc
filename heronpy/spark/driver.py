"""The interface between the gateway and Spark: a driver in a JVM on this host, or on a Spark Connect server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from heronpy.common.errors import HeronError

if TYPE_CHECKING:
    import pyarrow as pa


class SparkStartError(HeronError):
    """Spark did not start; the message is Spark's."""


class Driver(Protocol):
    """The gateway's connection to Spark. `start` runs in a thread; other methods may be called while it runs."""

    def start(self) -> None:
        """Create a session, and run a first small batch. Errors quote Spark's message."""

    def stop(self) -> None:
        """End Spark abruptly; no data is lost, because all important data is on disk."""

    @property
    def session(self) -> Any:
        """The SparkSession; None until `start` has returned."""

    def new_session(self) -> Any:
        """Return another session with the same driver, but with separate temporary views."""

    def frame(self, session: Any, table: pa.Table) -> Any:
        """Return the rows of a batch as a DataFrame of this session."""

    @property
    def overdue(self) -> SparkStartError | None:
        """The error if Spark has not started before its timeout; otherwise None."""

    def is_lost(self) -> bool:
        """Whether Spark is known to have ended; a cheap check."""

    def is_lost_by(self, error: BaseException) -> bool:
        """Whether this error in a batch occurred because Spark has ended; may wait for a few seconds."""

    def explained(self, error: Exception) -> Exception:
        """Return a clearer error for this error of a batch, or the error itself."""

    @property
    def ui(self) -> str:
        """The URL of Spark's web UI; empty if the UI is off or there is no session."""
