"""The interface between the gateway and Spark, for a driver in a JVM of this host or on a Spark Connect server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from heronpy.common.errors import HeronError

if TYPE_CHECKING:
    import pyarrow as pa


class SparkStartError(HeronError):
    """Spark refused to start; the text is Spark's."""


class Driver(Protocol):
    """The gateway's Spark. `start` runs in a thread; other methods may be called during it."""

    def start(self) -> None:
        """Create a session, and run a first small batch. Errors quote Spark's text."""

    def stop(self) -> None:
        """End Spark; all important data is on disk, so an orderly end is not needed."""

    @property
    def session(self) -> Any:
        """The SparkSession; None until `start` has returned."""

    def new_session(self) -> Any:
        """Return another session of the same Spark, with separate temporary views."""

    def frame(self, session: Any, table: pa.Table) -> Any:
        """Return the rows of a batch as a DataFrame of this session."""

    @property
    def overdue(self) -> SparkStartError | None:
        """Return why Spark is given up after a start that took too long; None while there is time left."""

    def is_lost(self) -> bool:
        """Whether Spark is known to have ended; a cheap check."""

    def is_lost_by(self, error: BaseException) -> bool:
        """Whether Spark has ended, after this error in a batch; it may wait a few seconds."""

    def explained(self, error: Exception) -> Exception:
        """Return the error of a batch, or a clearer error."""

    @property
    def ui(self) -> str:
        """Address of Spark's own pages; empty when they are off or there is no session."""
