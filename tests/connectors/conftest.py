"""Fixtures of the tests with whole topologies."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def user(home: Path) -> Path:
    """A folder for the user's files; not pytest's, which would follow the home's TMPDIR."""
    folder = home.parent / "user"
    folder.mkdir()
    return folder
