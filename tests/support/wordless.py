"""Replaces error texts by meaningless or misleading ones, to check that programs do not depend on the texts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from heronpy.common.errors import HeronError

AS_IT_IS = "as it is"
#: Texts of errors: the original, an empty text, a fragment, and the text of another kind of error.
WORDINGS = (AS_IT_IS, "", "; try again", "stmgr-1 was replaced by epoch 2; stop it")


def classes(kind: type[HeronError] = HeronError) -> Iterator[type[HeronError]]:
    """Yield an error class and all its subclasses."""
    yield kind
    for child in kind.__subclasses__():
        yield from classes(child)


def reword(patch: pytest.MonkeyPatch, words: str) -> None:
    """Give every error of heronpy this text from now on."""
    if words != AS_IT_IS:
        for kind in set(classes()):
            patch.setattr(kind, "__str__", lambda _: words)
