"""Loads the page files from one folder. The files are read once, and served with an ETag.

Comments, spaces and needless markup in our own modules, and spaces in our style sheet, are not sent: they make up a
fifth of the bytes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

INDEX = "index.html"
FILE_MAX_BYTES = 4 << 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*(/[A-Za-z0-9_][A-Za-z0-9_.@-]*){0,4}")
#: Libraries, served as published.
VENDOR = "vendor/"
#: No text of a page depends on indentation: a browser shows it as one space.
_INDENT = re.compile(r"^ +", re.MULTILINE)
#: Parts of a module that are not code.
_NO_CODE = re.compile(
    r"(?P<comment>//[^\n]*|/\*(?:(?!\*/).)*\*/)"
    r"|'(?:\\.|[^'\\\n])*'"
    r'|"(?:\\.|[^"\\\n])*"',
    re.DOTALL,
)
#: A regular expression, and the characters after which a slash begins one; after an operand, a slash divides.
_REGULAR = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/")
_BEFORE_REGULAR = frozenset("(,=:[!&|?{};\n")
#: The text of a template up to its end or to an expression in it.
_TEMPLATE = re.compile(r"[`}](?:\\.|\$(?!\{)|[^`\\$])*(?P<end>`|\$\{)", re.DOTALL)
#: In a template of `html`: the name of an end tag, and the quotes of a value of one word. Neither is needed.
_END, _QUOTES = re.compile(r"</[a-z0-9]+>"), re.compile(r'(?<=[a-z]=)"([\w-]+)"(?=[ \n/>])')
#: Code up to a character that may begin another part, or end the expression.
_CODE = re.compile(r"[^'\"`/{} ]+| +|.", re.DOTALL)
#: A semicolon before a line that begins with a word: the line end suffices, because no statement of these modules is
#: empty.
_LINE_ENDS = re.compile(r";(?=\n+(?!in\b|instanceof\b)[A-Za-z_$])")
#: These modules never assign to such a name again, which their type tests check; `let` is shorter.
_CONST = re.compile(r"(?<![\w$.#])const(?![\w$:])")
#: Needless space in a style sheet; a space before a colon may belong to a selector, so it is kept.
_STYLE_SPACE = re.compile(r"\s*([{};,])\s*|(?<=:)\s+")
_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A page file, ready to be served."""

    content: bytes
    media: str
    etag: str


def load(folder: Traversable | None = None) -> dict[str, Page]:
    """Map from path to file, for all files in the folder that can be served."""
    found: dict[str, Page] = {}
    _load(folder if folder is not None else files("heronpy.tracker").joinpath("static"), "", found)
    return found


def _load(folder: Traversable, prefix: str, found: dict[str, Page]) -> None:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        path = prefix + entry.name
        suffix = "." + entry.name.rpartition(".")[2]
        if entry.is_dir():
            _load(entry, path + "/", found)
        elif _NAME.fullmatch(path) and suffix in _MEDIA:
            content = entry.read_bytes()
            if suffix == ".js" and not path.startswith(VENDOR):
                content = compact(content.decode()).encode()
            elif suffix == ".css" and not path.startswith(VENDOR):
                content = _STYLE_SPACE.sub(r"\1", content.decode()).replace(";}", "}").encode()
            if len(content) <= FILE_MAX_BYTES:
                etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
                found[path] = Page(content, _MEDIA[suffix], etag)


def compact(text: str) -> str:
    """Return a module without comments and without needless spaces and markup; its lines keep their numbers.

    Raises ValueError if a template has no end, or if it has several lines but is not `html`, so that its indents may be
    significant.
    """
    text = _INDENT.sub("", text)
    kept: list[str] = []
    #: For each open template, the open braces of its current expression, and whether it is `html`.
    open_in: list[tuple[int, bool]] = []
    place = 0
    last, spaced = "", False

    def keep(part: str) -> None:
        nonlocal last, spaced
        if spaced and ((_is_word(last) and _is_word(part[0])) or (last == part[0] and last in "+-")):
            kept.append(" ")
        kept.append(part)
        last, spaced = part[-1], False

    while place < len(text):
        goes_on = text[place] == "}" and bool(open_in) and not open_in[-1][0]
        if text[place] == "`" or goes_on:
            found = _TEMPLATE.match(text, place)
            if found is None:
                raise ValueError("a template has no end")
            _, is_html = open_in.pop() if goes_on else (0, bool(kept) and kept[-1].endswith("html"))
            if "\n" in found[0] and not is_html:
                raise ValueError(f"a text has several lines: {found[0][:80]}")
            if found["end"] == "${":
                open_in.append((0, is_html))
            keep(_QUOTES.sub(r"\1", _END.sub("<//>", found[0])) if is_html else found[0])
        elif found := _NO_CODE.match(text, place):
            if found["comment"] is None:
                keep(found[0])
            elif lines := found[0].count("\n"):
                keep("\n" * lines)
        elif last in _BEFORE_REGULAR and (found := _REGULAR.match(text, place)):
            keep(found[0])
        else:
            found = _CODE.match(text, place)
            assert found is not None
            if found[0][0] == " ":
                spaced = True
            else:
                if open_in and found[0] in "{}":
                    braces, is_html = open_in[-1]
                    open_in[-1] = braces + (1 if found[0] == "{" else -1), is_html
                keep(_CONST.sub("let", _LINE_ENDS.sub("", found[0])))
        place = found.end()
    return "".join(kept)


def _is_word(letter: str) -> bool:
    return letter.isalnum() or letter in "_$#"
