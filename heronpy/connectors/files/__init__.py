"""A sink that writes files with one line per tuple; files are published exactly once under EFFECTIVELY_ONCE."""

from __future__ import annotations

from heronpy.connectors.files.sink import FileSink

__all__ = ["FileSink"]
