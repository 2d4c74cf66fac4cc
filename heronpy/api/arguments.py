"""The program's arguments: `sys.argv` for user code, at the submit and in its tasks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

_used: list[str] | None = None
_original = argparse.ArgumentParser.parse_known_args


def use(argv: Sequence[str], names_topology: bool) -> None:
    """Make these the arguments of this process, once: later changes by the program stay.

    With `names_topology` the first of them is the topology's name, given to `heron submit`; it is hidden from a
    parser that takes no positional argument.
    """
    global _used
    if _used == list(argv):
        return
    _used = list(argv)
    sys.argv = list(argv)
    if names_topology:
        _hide_from_argparse(argv[1])


def _hide_from_argparse(name: str) -> None:
    """Let a program whose argparse parser takes no positional argument ignore the topology's name.

    `heron submit local topo.py NAME --size 3` hands NAME to the program as its first argument, which
    is where Apache's programs expect it; a parser without positional arguments would refuse it.
    """

    def parse_known_args(self: Any, args: Any = None, namespace: Any = None) -> Any:
        takes_words = any(not action.option_strings for action in self._actions)
        if args is None and not takes_words and sys.argv[1:2] == [name]:
            args = sys.argv[2:]
        return _original(self, args, namespace)

    argparse.ArgumentParser.parse_known_args = parse_known_args  # type: ignore[method-assign]
