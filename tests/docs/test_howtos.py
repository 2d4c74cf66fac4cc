"""The how-to pages, done as a reader does them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import DOCS, PageRun

PAGES = ("async-bolt", "async-spout", "migrate-from-heron", "notebooks", "write-a-spout")
#: Together they take minutes.
LONG = (
    "batch-runs",
    "batches",
    "compare-runs",
    "debugging",
    "exactly-once-sinks",
    "follow-logs",
    "jobs",
    "packaging",
    "state",
    "testing",
    "units-after",
    "units-output",
    "units-sites",
    "verify",
    "work-units",
)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [*PAGES, *(pytest.param(name, marks=pytest.mark.heavy) for name in LONG)])
def test_a_how_to_does_what_it_says(name: str, home: Path) -> None:
    PageRun(DOCS / "howto" / f"{name}.md", home.parent / "work", home).run()


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_how_to_about_object_stores_does_what_it_says(bucket: str, home: Path, tmp_path: Path) -> None:
    """The reader's server is ours, and what the machine has is not installed again."""
    text = (DOCS / "howto" / "object-stores.md").read_text(encoding="utf-8").replace("s3://my-bucket", bucket)
    page = tmp_path / "object-stores.md"
    page.write_text(text.replace("$ pip install", "$ echo"), encoding="utf-8")
    PageRun(page, home.parent / "work", home).run()


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["spark-sink", "units-to-spark"])
def test_the_how_to_about_spark_does_what_it_says(name: str, home: Path) -> None:
    PageRun(DOCS / "howto" / f"{name}.md", home.parent / "work", home).run()
