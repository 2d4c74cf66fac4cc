"""What ends a request: one sentence, and the fix."""

from __future__ import annotations


class Problem(Exception):
    """Ends a call with one sentence."""

    def __init__(
        self,
        status: int,
        type: str,
        title: str,
        detail: str = "",
        nearest: str | None = None,
    ) -> None:
        super().__init__(title)
        self.status, self.type, self.title, self.detail, self.nearest = status, type, title, detail, nearest
