"""The errors: their tree as documented, and the style of their sentences."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.common import errors
from heronpy.common.errors import HeronError

ROOT = Path(__file__).parents[2]
ROOMS = ("heronpy", "instance", "stmgr", "topologies")
#: Names that a sentence may begin with, besides those with a second capital such as SparkSink and JAVA_HOME.
NAMES = {"Config", "Simulator", "Pulsar", "Spark", "Python", "Java"}


def documented() -> dict[str, set[str]]:
    """Class to its bases, as the docstring of the module shows them."""
    tree: dict[str, set[str]] = {}
    above: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.fullmatch(r"( {4,})(\w+Error(?: / \w+Error)*)(?: {2,}(.*))?", line)
        if found is None:
            continue
        indent = len(found[1])
        also = re.findall(r"also an? (\w+Error)", found[3] or "")
        for name in found[2].split(" / "):
            tree[name] = {*also, *([above[indent - 2]] if indent > 4 else ["Exception"])}
            above[indent] = name
    return tree


def test_the_tree_in_the_docstring_is_that_of_the_classes() -> None:
    classes = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert documented() == {kind.__name__: {base.__name__ for base in kind.__bases__} for kind in classes}


def sources() -> Iterator[tuple[Path, list[ast.AST]]]:
    """Each file of the product, and the nodes of its tree."""
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        if not path.name.endswith("_pb2.py"):
            yield path, list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def our_errors(modules: list[tuple[Path, list[ast.AST]]]) -> set[str]:
    """The names of all classes below HeronError, and of the command's Failure."""
    classes = [node for _, nodes in modules for node in nodes if isinstance(node, ast.ClassDef)]
    found = {HeronError.__name__, "Failure"}
    while more := {kind.name for kind in classes if {name_of(base) for base in kind.bases} & found} - found:
        found |= more
    return found


def texts(node: ast.expr) -> Iterator[tuple[str, str]]:
    """How each text that an expression can be begins and ends; empty where that is a value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value, node.value
    elif isinstance(node, ast.JoinedStr):
        pieces = [part.value if isinstance(part, ast.Constant) else "" for part in node.values]
        yield str(pieces[0]), str(pieces[-1])
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)
    elif isinstance(node, ast.BinOp):
        for begin, _ in texts(node.left):
            yield begin, ""
        for _, end in texts(node.right):
            yield "", end


def wrong_style(begin: str, end: str) -> str | None:
    """What is wrong with a sentence of an error, if anything is."""
    word = re.match(r"[A-Z]\w*", begin)
    if word and word[0] not in NAMES and not re.search("[A-Z]", word[0][1:]):
        return f"begins with {word[0]!r}: only a name has a capital there"
    if end.endswith(".") and not end.endswith("..."):
        return "ends with a full stop: it may become part of another sentence"
    return None


@pytest.mark.parametrize(
    ("begin", "end", "fine"),
    [
        ("topology 'x' is gone", "is gone", True),
        ("SparkSink needs a folder", "a folder", True),
        ("Topology 'x' is gone", "is gone", False),
        ("no such file", "no such file.", False),
        ("take '-' or '.'", "take '-' or '.'", True),
        ("", "", True),
    ],
)
def test_the_style_is_judged(begin: str, end: str, fine: bool) -> None:
    assert (wrong_style(begin, end) is None) is fine


def test_the_sentences_of_errors_have_one_style() -> None:
    """Lower case unless a name begins it, and no full stop, so that a caller can put it into a sentence of its own."""
    modules = list(sources())
    ours = our_errors(modules)
    found, seen = [], 0
    for path, nodes in modules:
        raised = {id(node.exc) for node in nodes if isinstance(node, ast.Raise)}
        for node in nodes:
            if isinstance(node, ast.Call) and node.args and (name_of(node.func) in ours or id(node) in raised):
                for begin, end in texts(node.args[0]):
                    seen += 1
                    wrong = wrong_style(begin, end)
                    if wrong:
                        found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {wrong}")
    assert not found and seen > 300
