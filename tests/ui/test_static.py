"""The files of the pages: how large they are, where they come from, and what they may not contain."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest

from heronpy.tracker.pages import compact, load
from tests.support.command import REPO

STATIC = REPO / "heronpy" / "tracker" / "static"
VENDOR = STATIC / "vendor"
LOADED = (".html", ".js", ".css", ".svg")
OWN = sorted(path for path in STATIC.rglob("*") if path.suffix in LOADED and VENDOR not in path.parents)
MODULES = [path for path in OWN if path.suffix == ".js"]

#: What makes markup or code out of text, keeps a secret for longer than the tab, or speaks to others.
BANNED = (
    r"innerHTML", r"outerHTML", r"insertAdjacentHTML", r"dangerouslySetInnerHTML", r"document\.write", r"srcdoc",
    r"createContextualFragment", r"DOMParser", r"setHTML", r"\beval\(", r"\bFunction\(", r"createPolicy", r"\bcookie",
    r"localStorage", r"indexedDB", r"WebSocket", r"EventSource", r"XMLHttpRequest", r"sendBeacon", r"importScripts",
    r"javascript:", r"\bopen\('", r"style=\"",
)  # fmt: skip


def name_of(path: Path) -> str:
    return str(path.relative_to(STATIC))


def test_the_whole_app_is_at_most_104_kilobytes() -> None:
    served = {name: page for name, page in load().items() if name.endswith(LOADED)}
    sizes = {name: len(gzip.compress(page.content, 9)) for name, page in served.items()}
    assert sum(sizes.values()) <= 104_000, sorted(sizes.items(), key=lambda item: -item[1])


@pytest.mark.parametrize(
    ("text", "served"),
    [
        ("/** a\n * b */\nlet a = 1; // c\n  /* d */ let b = a + +a - -a;\n", "\n\nlet a=1;\nlet b=a+ +a- -a;\n"),
        (
            "const a = 1;\n[b] = c;\nfor (const d of e) f.const;\n\nreturn a;\nin b;",
            "let a=1;\n[b]=c\nfor(let d of e)f.const\n\nreturn a;\nin b;",
        ),
        ("a = '/* no // comment */  \\\\'  +  \"it's  one\" ;", "a='/* no // comment */  \\\\'+\"it's  one\";"),
        ("b = a / c / d; e = /[/ ']  \\/ x/g.test( f )", "b=a/c/d;e=/[/ ']  \\/ x/g.test(f)"),
        ("static #a = async () => await new B(c);", "static #a=async()=>await new B(c);"),
        ("return `a  ${ { b : `${ c } }` }[ d ] }  e` + f", "return`a  ${{b:`${c} }`}[d]}  e`+f"),
        (
            "html`<p  class=${ a }>\n    it's  ${ b } // no comment\n  </p>`",
            "html`<p  class=${a}>\nit's  ${b} // no comment\n<//>`",
        ),
        (
            'html`<th scope="row" class="a b" id="x">"c" ${ `</p> d="e"` }</th><br class="f" />`',
            'html`<th scope=row class="a b" id=x>"c" ${`</p> d="e"`}<//><br class=f />`',
        ),
    ],
    ids=["comments", "lines", "strings", "regular expressions", "words", "templates", "html", "markup"],
)
def test_spaces_that_nothing_depends_on_are_not_served(text: str, served: str) -> None:
    assert compact(text) == served


@pytest.mark.parametrize("text", ["say(`a\n  b`)", "say(`${a}\n  b`)", "html`${say(`\n  b`)}`", "say(`a"])
def test_a_text_whose_indents_may_mean_something_is_not_served(text: str) -> None:
    with pytest.raises(ValueError, match=r"several lines|no end"):
        compact(text)


def test_lines_keep_their_numbers() -> None:
    for name, page in load().items():
        written = (STATIC / name).read_bytes()
        if name.startswith("js/"):
            assert page.content.count(b"\n") == written.count(b"\n") and b"/**" not in page.content, name
        elif name.endswith(".css"):
            assert words_of(page.content) == words_of(written) and len(page.content) < len(written), name
        else:
            assert page.content == written, name


def words_of(style: bytes) -> list[str]:
    """A style sheet without its spaces, and without what may be left out before a brace."""
    return re.sub(r"\s*([{};,:])\s*", r"\1", style.decode()).replace(";}", "}").split()


def test_libraries_are_as_published() -> None:
    rows = [line.split() for line in (VENDOR / "VENDORED").read_text().splitlines() if not line.startswith("#")]
    listed = {row[0]: row for row in rows}
    assert {path.name for path in VENDOR.iterdir()} == {*listed, "VENDORED"}
    for name, (_, package, version, licence, digest, _) in listed.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, f"{name} is not that of {package}"
        assert re.fullmatch(r"\d+\.\d+\.\d+", version) and licence in ("MIT", "Apache-2.0")
    for package in {row[1] for row in rows}:
        assert any(row[1] == package and row[0].endswith("-LICENSE") for row in rows), f"{package} has no licence here"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_makes_no_markup_and_speaks_to_nobody_else(path: Path) -> None:
    text = path.read_text()
    for pattern in BANNED:
        assert not re.search(pattern, text), f"{name_of(path)} has {pattern}"
    addresses = re.findall(r"https?://[\w.]+", text)
    assert not addresses, f"{name_of(path)} names {addresses}"
    for found in re.findall(r"""from '([^']+)'""", text):
        assert found.startswith("."), f"{name_of(path)} imports {found}, which no browser finds"
        assert (path.parent / found).resolve().is_file(), f"{name_of(path)} imports {found}, which is missing"
    assert len(text.splitlines()) <= 300, f"{name_of(path)} is too long"


def test_the_index_has_no_code_and_no_style_of_its_own() -> None:
    text = (STATIC / "index.html").read_text()
    assert all(not body.strip() for body in re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL))
    assert not re.search(r"<style|\sstyle=|\son\w+=", text)
    for address in re.findall(r"(?:src|href)=\"([^\"]+)\"", text):
        assert address.startswith("static/"), f"{address} is not served by the tracker"
        assert (STATIC / address.removeprefix("static/")).is_file()


def test_all_modules_are_asked_for_at_once() -> None:
    """Without it a browser learns of a module only when it has read the one that imports it."""
    text = (STATIC / "index.html").read_text()
    named = re.findall(r'<link rel="modulepreload" href="static/([^"]+)">', text)
    imported = {
        name_of((path.parent / found).resolve())
        for path in MODULES
        for found in re.findall(r"from '([^']+)'", path.read_text())
    }
    assert sorted(named) == sorted(imported)


def test_styles_load_nothing() -> None:
    assert not re.search(r"url\(|@import", (STATIC / "app.css").read_text())


def test_all_of_it_is_served() -> None:
    served = load()
    for path in OWN:
        assert name_of(path) in served
