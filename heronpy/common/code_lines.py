"""Lines of code as they are named in one sentence: `function (file.py:12)`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath

#: Frames of Python and of installed packages, not the user's code.
_INSTALLED = re.compile(r"^<frozen |/(site|dist)-packages/|/lib(64)?/python3")


def is_installed(file: str) -> bool:
    """Whether a file came with Python or with an installed package."""
    return bool(_INSTALLED.search(file))


def line_of(frames: Sequence[tuple[str, int, str]], is_foreign: Callable[[str], bool] = is_installed) -> str:
    """The innermost line of the user's code, and what it calls where that is not theirs; "" without frames.

    A frame is (file, line, function), the innermost comes first.
    """
    if not frames:
        return ""
    own = next((number for number, frame in enumerate(frames) if not is_foreign(frame[0])), 0)
    file, line, function = frames[own]
    called = f", which calls {frames[own - 1][2]}" if own else ""
    return f"{function} ({PurePath(file).name}:{line}){called}"
