"""The key and the window of a result that is computed per key and window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.window import Window

_K_co = TypeVar("_K_co", covariant=True)


@dataclass(frozen=True, init=False, repr=False)
class KeyedWindow(Generic[_K_co]):
    """A key, and the window in which the key's values were folded or joined."""

    _key: _K_co
    _window: Window

    def __init__(self, key: _K_co, window: Window) -> None:
        if not isinstance(window, Window):
            raise StreamletError(f"the window of a KeyedWindow must be a Window, not {type(window).__name__}")
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "_window", window)

    @property
    def key(self) -> _K_co:
        """The key of the folded or joined values."""
        return self._key

    @property
    def window(self) -> Window:
        """The window in which the values arrived."""
        return self._window

    def __repr__(self) -> str:
        return f"KeyedWindow {{key: {self._key}, window: {self._window}}}"
