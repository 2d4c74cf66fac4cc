"""Hooks of mkdocs.yml: pages outside of docs/, and the reference of the Python API. `make docs` runs MkDocs with them.

Pages of the repository's root become pages of the site. Links to other files of the repository lose their target, because the
site does not have these files. The API reference has every public name of the packages in `API`.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[1]
DOCS = REPO / "docs"
#: Map from file in the repository's root to page name on the site.
ROOT = {
    "README.md": "about.md", "ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changes.md",
}  # fmt: skip
#: Pages of the API: package, subject, names; without names, the page has all names of the package.
API: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "topologies": ("heronpy", "Classes that describe a topology: its components, streams and groupings.", (
        "TopologyBuilder", "Topology", "HeronComponentSpec", "GlobalStreamId", "Stream", "Grouping", "ICustomGrouping",
        "TopologyReliabilityMode",
    )),
    "spouts-and-bolts": ("heronpy", "The classes that a program extends, and what they receive.", (
        "Spout", "AsyncSpout", "SplitSpout", "Split", "To", "Backlog", "Bolt", "BasicBolt", "AsyncBolt", "Batch", "SlidingWindowBolt", "TumblingWindowBolt",
        "WindowContext", "Tuple", "TupleHelper", "TopologyContext", "NotReadyError",
    )),
    "state": ("heronpy", "State that survives a restart, and sinks that publish exactly once.", (
        "StatefulComponent", "TwoPhaseStatefulComponent", "State", "HashMapState", "KeyedState", "PartitionedState",
    )),
    "running": ("heronpy", "Topologies from a notebook or a program, and hooks of the runtime.", (
        "submit", "status", "RunningTopology", "ResultWarning", "ITaskHook", "IHeronSerializer",
    )),
    "streamlets": ("heronpy.streamlet", "The functional API: a topology as a chain of operations.", ()),
    "simulator": ("heronpy.simulator", "A topology inside a test, without processes.", ()),
    "work-units": ("heronpy.ingest", "Growing log files into tables, each line once.", ()),
    "files": ("heronpy.connectors.files", "A sink of files that publishes exactly once.", ()),
    "spark": ("heronpy.connectors.spark", "A sink that passes micro-batches to PySpark.", ()),
}  # fmt: skip
#: The first line of a fence with the name of its file, such as "python counts.py".
TITLE = re.compile(r"(?m)^( *```[a-z]+) (\S+)$")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def public(package: str) -> list[str]:
    return [name for name in importlib.import_module(package).__all__ if not name.startswith("_")]


def names_of(page: str) -> list[str]:
    package, _, chosen = API[page]
    return list(chosen) or public(package)


def api_page(page: str) -> str:
    package, about, _ = API[page]
    parts = [f"# {page.replace('-', ' ').capitalize()}", about]
    for name in names_of(page):
        value = getattr(importlib.import_module(package), name)
        parts += [
            f"## {name}",
            f"```python\nfrom {package} import {name}\n```",
            f"::: {value.__module__}.{value.__qualname__}",
        ]
    return "\n\n".join(parts) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File  # installed by the extra `docs`; the tests do not need it

    for source, name in ROOT.items():
        files.append(File.generated(config, name, abs_src_path=str(REPO / source)))
    for page in API:
        files.append(File.generated(config, f"api/{page}.md", content=api_page(page)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Replace links to files by links to pages of the site; remove links that have no page."""
    source = Path(page.file.abs_src_path) if page.file.abs_src_path else DOCS / page.file.src_uri

    def found(match: re.Match[str]) -> str:
        image, text, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        path = Path(os.path.normpath(source.parent / target))
        if path.is_relative_to(DOCS):
            name = str(path.relative_to(DOCS))
        elif path.parent == REPO and path.name in ROOT:
            name = ROOT[path.name]
        else:
            return text
        return f"{image}[{text}]({os.path.relpath(name, Path(page.file.src_uri).parent)}{anchor})"

    parts = re.split(r"(?ms)(^ *```.*?^ *```$)", markdown)
    return "".join(
        TITLE.sub(r'\1 title="\2"', part, count=1) if part.lstrip().startswith("```") else LINK.sub(found, part)
        for part in parts
    )


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Refuse a page with a fence of code that was not recognised."""
    if "```" in html:
        from mkdocs.exceptions import PluginError

        raise PluginError(
            f"{page.file.src_uri}: a fence of code is not recognised, near {html[html.index('```') :][:60]!r}"
        )
    return html
