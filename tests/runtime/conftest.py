"""Fixtures of the tests with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def out(home: Path) -> Path:
    """A folder that user code writes to."""
    folder = home.parent / "out"
    folder.mkdir()
    return folder
