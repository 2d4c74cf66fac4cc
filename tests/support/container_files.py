"""Simulates executors that serve the files of a folder, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heronpy.clusters.masters import Master
from heronpy.executor.file_service import ContainerFiles


def serve_files(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make the executors of all topologies serve their container's files from this folder."""

    async def ask_executor(self: Master, container: int, request: Any, timeout_s: float = 5.0) -> Any:
        return ContainerFiles(folder, container).answer(request)

    monkeypatch.setattr(Master, "ask_executor", ask_executor)
