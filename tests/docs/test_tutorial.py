"""The tutorial, done as a reader does it: its files are written, its commands run, their output compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import DOCS, PageRun


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tutorial_does_what_it_says(home: Path) -> None:
    PageRun(DOCS / "tutorial.md", home.parent / "work", home).run()
