"""Sentences that say nothing, or the wrong thing: what programs decide must not change with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from heronpy.common.errors import HeronError

AS_IT_IS = "as it is"
#: Every sentence reads as itself, as none, or as one of another kind of error.
WORDINGS = (AS_IT_IS, "", "; try again", "stmgr-1 was replaced by epoch 2; stop it")


def classes(kind: type[HeronError] = HeronError) -> Iterator[type[HeronError]]:
    """A class of errors and all below it."""
    yield kind
    for child in kind.__subclasses__():
        yield from classes(child)


def reword(patch: pytest.MonkeyPatch, words: str) -> None:
    """From now on every error of heronpy says these words."""
    if words != AS_IT_IS:
        for kind in set(classes()):
            patch.setattr(kind, "__str__", lambda _: words)
