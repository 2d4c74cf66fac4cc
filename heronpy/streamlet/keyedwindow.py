"""The key and window to which a windowed result per key belongs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heronpy.streamlet.window import Window


@dataclass(frozen=True, slots=True)
class KeyedWindow:
    """A key together with the window in which its values were folded or joined."""

    key: Any
    window: Window
