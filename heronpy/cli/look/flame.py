"""Renders weighted stacks as a flame graph (SVG) and as a file for speedscope.app. Pure."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape

from heronpy.views.evidence import Row

WIDTH, ROW, MARGIN = 1200, 17, 10
#: Minimum width of a box, and the width of a letter.
BOX_MIN, LETTER = 0.3, 6.6


@dataclass(slots=True)
class _Node:
    seconds: float = 0.0
    children: dict[str, _Node] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 1 + max((child.depth for child in self.children.values()), default=0)


def _tree(rows: Iterable[Row]) -> _Node:
    root = _Node()
    for stack, seconds in rows:
        node = root
        node.seconds += seconds
        for name in stack:
            node = node.children.setdefault(name, _Node())
            node.seconds += seconds
    return root


def flame_graph(title: str, rows: Iterable[Row]) -> str:
    """Return an SVG with callers at the bottom. The width of a box is its share of the time; hovering shows details."""
    root = _tree(rows)
    height = (root.depth + 1) * ROW + 2 * MARGIN
    boxes: list[str] = []

    def draw(name: str, node: _Node, left: float, level: int) -> None:
        width = node.seconds / root.seconds * (WIDTH - 2 * MARGIN) if root.seconds else 0.0
        if width < BOX_MIN:
            return
        top = height - MARGIN - (level + 1) * ROW
        about = escape(f"{name}: {node.seconds:.3f} s, {node.seconds / root.seconds:.1%}")
        letters = int(width / LETTER)
        text = escape(name if len(name) <= letters else name[: letters - 1] + "…") if letters > 3 else ""
        boxes.append(
            f'<g><title>{about}</title><rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 1}"'
            f' fill="{_colour(name)}"/><text x="{left + 3:.1f}" y="{top + 12}">{text}</text></g>'
        )
        for child, below in sorted(node.children.items()):
            draw(child, below, left, level + 1)
            left += below.seconds / root.seconds * (WIDTH - 2 * MARGIN)

    draw("all", root, MARGIN, 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">'
        "<style>text{font:11px monospace}rect{rx:2}g:hover rect{stroke:#000}</style>"
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{MARGIN}" y="{MARGIN + 10}">{escape(title)}</text>'
        + "".join(boxes)
        + "</svg>\n"
    )


def _colour(name: str) -> str:
    """Return a warm colour, the same for all lines of a function."""
    value = zlib.crc32(name.partition(" (")[0].encode())
    return f"hsl({value % 50},{70 + value // 50 % 25}%,{62 + value // 1250 % 14}%)"


def speedscope(title: str, rows: Iterable[Row]) -> str:
    """Return a sampled profile as JSON in the format of https://www.speedscope.app/file-format-schema.json."""
    frames: dict[str, int] = {}
    rows = list(rows)
    samples = [[frames.setdefault(name, len(frames)) for name in stack] for stack, _ in rows]
    weights = [round(seconds, 6) for _, seconds in rows]
    profile = {
        "type": "sampled",
        "name": title,
        "unit": "seconds",
        "startValue": 0,
        "endValue": round(sum(weights), 6),
        "samples": samples,
        "weights": weights,
    }
    shared = [_frame(name) for name in frames]
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": title,
            "shared": {"frames": shared},
            "profiles": [profile],
        }
    )


def _frame(name: str) -> dict[str, object]:
    function, _, place = name.rpartition(" (")
    file, colon, line = place.rstrip(")").rpartition(":")
    if not (function and colon and line.isdecimal()):
        return {"name": name}
    return {"name": function, "file": file, "line": int(line)}
