"""Files of lines as a sink: what a topology emits, one tuple a line, published exactly once if asked."""

from __future__ import annotations

from heronpy.connectors.files.sink import FileSink

__all__ = ["FileSink"]
