"""Every verb hands its flags to the function that does its work, which has them as its parameters."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import click
import pytest

from heronpy.cli.main import heron

#: Collected into `common`.
COMMON = {"config_path", "config_property", "verbose"}


def leaves(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        found = group.get_command(ctx, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from leaves(found, (*words, name))
        else:
            yield " ".join((*words, name)), found


def calls_with_flags(function: Any) -> Iterator[tuple[Any, int, set[str]]]:
    """What is called with **flags: it, the number of its positional and the names of its further arguments."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    homes = {name.name: n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for name in n.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and any(keyword.arg is None for keyword in node.keywords):
            assert isinstance(node.func, ast.Name)
            called = getattr(importlib.import_module(str(homes[node.func.id])), node.func.id)
            yield called, len(node.args), {keyword.arg for keyword in node.keywords if keyword.arg}


LEAVES = dict(leaves(heron))


@pytest.mark.parametrize("words", LEAVES)
def test_the_flags_fit_the_work(words: str) -> None:
    command = LEAVES[words]
    flags = {str(param.name) for param in command.params}
    if COMMON <= flags:
        flags = flags - COMMON | {"common"}
    if {"what", "component"} <= flags and words != "restart":
        flags -= {"what"}  # collected into `component`
    function = inspect.unwrap(command.callback)  # type: ignore[arg-type]
    own = {name for name, one in inspect.signature(function).parameters.items() if one.kind is not one.VAR_KEYWORD}
    assert own - {"ctx"} <= flags
    for called, positional, named in calls_with_flags(function):
        inspect.signature(called).bind(*[None] * positional, **dict.fromkeys(flags - own | named))
