"""Fixtures of the acceptance tests: the `heron` command in an empty home, clean before and after."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(home: Path) -> Path:
    """A folder for the user's files; not pytest's, which would follow the home's TMPDIR."""
    folder = home.parent / "user"
    folder.mkdir()
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder that user code writes to."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder
