"""What a pattern could match is not missed, compared with files that are there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.growing.patterns import may_match_below, parse
from heronpy.growing.scan import Scanner

PARTS = st.sampled_from(["a", "b", "*", "a*", "?", "**", "[ab]", "unit=*", "u*", "*t=1", "_*", "unit=1", "day=*"])
BEGINNINGS = ("unit=", "_units")
MADE = ("unit=1/a", "unit=1/b/a", "_units/a/b/a", "a", "x/unit=1/a")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table in each folder down to some depth."""
    top = tmp_path_factory.mktemp("tree")
    for folder in ("a", "b", "a/a", "a/b"):
        for made in MADE:
            path = top / folder / "t" / made
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return top


@given(
    parts=st.lists(PARTS, min_size=1, max_size=6),
    last=st.sampled_from(["a", "*", "b"]),
    folder=st.sampled_from(["a", "b", "a/a", "a/b"]),
)
def test_what_matches_below_a_folder_may_match(tree: Path, parts: list[str], last: str, folder: str) -> None:
    pattern = parse("/".join([str(tree), *parts, last]))
    table = tree / folder / "t"
    below = [entry.path for entry in Scanner([pattern]).look().files if Path(entry.path).is_relative_to(table)]
    made = [path for path in below if path.removeprefix(f"{table}/").startswith(BEGINNINGS)]
    if made:
        assert may_match_below(pattern, str(table), BEGINNINGS)


def test_what_cannot_match_is_told_apart() -> None:
    for text in ("/d/*.log", "/d/*/x", "/d/t/x/*.log", "/d/u/*/*.log", "/d/t/day=*/*.log", "/d/?[x]/*/*.log"):
        assert not may_match_below(parse(text), "/d/t", BEGINNINGS), text
    for text in ("/d/t/*/x", "/*/t/u*/x", "/d/**/x", "/**/t/*/x", "/d/t/unit=7/x", "/d/[t]/[u]*/x", "/d/t/**/**/x"):
        assert may_match_below(parse(text), "/d/t", BEGINNINGS), text
