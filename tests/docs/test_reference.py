"""The documentation agrees with the source and with itself: generated pages, links, named tests, keys."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from tests.support.pages import DOCS, REPO

PAGES = sorted([*DOCS.rglob("*.md"), *REPO.glob("*.md")])


def gen_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gen_docs", REPO / "scripts" / "gen_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings make."""
    heads = re.findall(r"(?m)^#+ (.*)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_the_reference_is_what_the_source_says() -> None:
    done = subprocess.run([sys.executable, "scripts/gen_docs.py", "--check"], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_stale_page_is_found_and_written(tmp_path: Path) -> None:
    module = gen_docs()
    module.FOLDER = tmp_path
    assert module.main(["--check"]) == 1
    assert module.main([]) == 0
    assert module.main(["--check"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == set(module.PAGES)


def test_keys_without_effect_are_read_nowhere() -> None:
    module = gen_docs()
    sources = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("heronpy", "stmgr", "instance")
        for path in (REPO / folder).rglob("*.py")
        if path.name not in ("topology_keys.py", "setting_types.py", "component_config.py", "api_constants.py")
    )
    read = set(re.findall(r'["\'](topology\.[a-z.]+)["\']', sources))
    read |= {f"topology.{name.lower().replace('_', '.')}" for name in re.findall(r"\bTOPOLOGY_([A-Z_]+)\b", sources)}
    idle = {key for key in module.KINDS if key.removeprefix("topology.") not in module.EFFECTS}
    defaults = {"topology.debug", "topology.initial.state"}  # filled in for those who read a topology message
    refused = {"topology.stateful.start.clean"}  # beside --restore
    assert not (idle & read) - defaults - refused


def test_keys_that_stand_for_a_setting_have_its_effect() -> None:
    module = gen_docs()
    for key, ours in module.ALIASES.items():
        with_effect, _, without = module.config_page().partition("Accepted without effect")
        assert re.search(rf"(?m)^\| `{re.escape(key)}` .*Sets `{re.escape(ours)}`", with_effect)
        assert without and key not in without


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" in target:
                continue
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                broken.append(f"{page.relative_to(REPO)}: {target}")
    assert not broken


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    missing = [page for page in DOCS.rglob("*.md") if f"({page.relative_to(DOCS)})" not in index]
    assert missing in ([], [DOCS / "README.md"])


def test_the_proofs_that_the_guarantees_name_exist() -> None:
    text = (DOCS / "guarantees.md").read_text(encoding="utf-8")
    proofs = re.findall(r"\[`(test_\w+\.py)::(test_\w+)`\]\(([^)\s]+)\)", text)
    wrong = []
    for file, test, target in proofs:
        path = (DOCS / target).resolve()
        if (
            path.name != file
            or not path.is_file()
            or not re.search(rf"(?m)^(?:async )?def {test}\(", path.read_text("utf-8"))
        ):
            wrong.append(f"{target}: {file}::{test}")
    assert len(proofs) > 50 and not wrong
    assert not re.findall(r"\btest_\w+", re.sub(r"\[`test_\w+\.py::test_\w+`\]\([^)\s]+\)", "", text)), (
        "named without a link"
    )


def test_every_row_of_the_guarantees_has_a_proof() -> None:
    text = (DOCS / "guarantees.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?m)^\|[^\n]* proof \|\n\|[-|]+\n((?:\|.*\n)+)", text)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 30 and not [row for row in rows if "](../tests/" not in row]
