"""The site has every page and every public name; `make docs` builds it and checks its links."""

from __future__ import annotations

import importlib.util
import re
from types import SimpleNamespace

from tests.support.pages import DOCS, REPO

spec = importlib.util.spec_from_file_location("site_pages", REPO / "scripts" / "site_pages.py")
assert spec is not None and spec.loader is not None
site_pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(site_pages)


def test_every_public_name_is_on_a_page_of_the_api() -> None:
    for package in {package for package, _, _ in site_pages.API.values()}:
        shown = [
            name for page in site_pages.API if site_pages.API[page][0] == package for name in site_pages.names_of(page)
        ]
        assert sorted(shown) == sorted(site_pages.public(package)), package


def test_every_page_is_in_the_navigation() -> None:
    nav = set(re.findall(r"(?m)^ +- (?:.*: )?(\S+\.md)$", (REPO / "mkdocs.yml").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert nav == pages | set(site_pages.ROOT.values()) | {f"api/{page}.md" for page in site_pages.API}


def test_the_fences_of_all_pages_are_those_that_the_site_knows() -> None:
    """`make docs` refuses others, but the tests do not build the site."""
    for path in [*(REPO / "docs").rglob("*.md"), *(REPO / name for name in site_pages.ROOT)]:
        page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(path), src_uri=path.name))
        text = site_pages.on_page_markdown(path.read_text(encoding="utf-8"), page, None, None)
        for fence in re.findall(r"(?m)^ *```.*$", text):
            assert re.fullmatch(r' *```([a-z]+( title="[^"]+")?)?', fence), (path, fence)
