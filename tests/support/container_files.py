"""Executors that answer for the files of a folder, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heronpy.clusters.masters import Master
from heronpy.executor.file_service import ContainerFiles


def serve_files(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on each executor of any topology has the files of this folder that are of its container."""

    async def ask_executor(self: Master, container: int, request: Any, timeout_s: float = 5.0) -> Any:
        return ContainerFiles(folder, container).answer(request)

    monkeypatch.setattr(Master, "ask_executor", ask_executor)
