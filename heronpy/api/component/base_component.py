"""The base of every spout and bolt: the link to the runtime."""

from __future__ import annotations

import logging
from typing import Any


class BaseComponent:
    """A spout or bolt. It delegates all calls to the runtime object that constructed it."""

    def __init__(self, delegate: Any) -> None:
        """Override `initialize` instead of this method: the runtime constructs `cls(delegate=...)`."""
        self.delegate = delegate
        self.logger: logging.Logger = delegate.logger

    def log(self, message: str, level: str | None = None) -> None:
        """Log `message`; `level` is trace, debug, info (default), warn or error."""
        self.delegate.log(message, level)

    def report_error(self, error: Exception) -> None:
        """Report an error in `heron exceptions` and in the log; the task continues.

        Use it for errors that the component can handle. For any other error raise an exception, which restarts the
        task.
        """
        self.delegate.report_error(error)
