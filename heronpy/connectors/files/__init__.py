"""A sink that writes files of lines, one tuple per line, published exactly once if asked."""

from __future__ import annotations

from heronpy.connectors.files.sink import FileSink

__all__ = ["FileSink"]
