"""The how-to pages, done as a reader does them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import DOCS, PageRun

PAGES = (
    "async-bolt", "async-spout", "batches", "debugging", "exactly-once-sinks", "migrate-from-heron", "notebooks", "packaging", "state", "testing", "write-a-spout",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.parametrize("name", [*PAGES, pytest.param("verify", marks=pytest.mark.heavy)])
def test_a_how_to_does_what_it_says(name: str, home: Path) -> None:
    PageRun(DOCS / "howto" / f"{name}.md", home.parent / "work", home).run()


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_how_to_about_spark_does_what_it_says(home: Path) -> None:
    PageRun(DOCS / "howto" / "spark-sink.md", home.parent / "work", home).run()
