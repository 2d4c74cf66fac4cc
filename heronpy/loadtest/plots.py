"""Line and bar plots as SVG text, written directly so that a page needs neither a library nor a network. Pure.

Colours are CSS classes (`s0` ... `s7`, `grid`, `axis`, `shade`), so the page that embeds a plot decides
its look in light and dark mode; `STYLE` is the common part. Every series has its values in `data-`
attributes of the plot, for the page's display under the pointer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 34
COLOURS = 8

STYLE = """
svg.plot { width: 100%; height: auto; display: block; font: 11px system-ui, sans-serif; }
svg.plot text { fill: var(--muted); } svg.plot .title { fill: var(--ink); font-weight: 600; }
svg.plot .grid { stroke: var(--line); stroke-width: 1; } svg.plot .axis { stroke: var(--muted); stroke-width: 1; }
svg.plot .shade { fill: var(--warn); opacity: .16; } svg.plot path { fill: none; stroke-width: 1.6; }
svg.plot .cursor { stroke: var(--muted); stroke-dasharray: 3 3; visibility: hidden; }
""" + "".join(
    f".s{number} {{ stroke: var(--c{number}); }}\n"
    f".f{number} {{ fill: var(--c{number}); background: var(--c{number}); }}\n"
    for number in range(COLOURS)
)


@dataclass(frozen=True, slots=True)
class Lines:
    """A plot of several series over time."""

    title: str
    unit: str
    times: Sequence[float]
    series: Mapping[str, Sequence[float]]
    shaded: Sequence[tuple[float, float]] = ()
    """Marked periods."""
    log: bool = False
    span: tuple[float, float] | None = None
    """First and last second of the axis, so that plots of one run can share it; None: those of `times`."""


def nice_step(span: float, parts: int = 5) -> float:
    """A step of 1, 2 or 5 times a power of ten that divides the span into about `parts` parts."""
    if span <= 0:
        return 1.0
    raw = span / parts
    power = 10.0 ** math.floor(math.log10(raw))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= raw * 0.999)


def short(value: float) -> str:
    """1.2k, 3M, 0.05."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.4g}{letter}"
    return f"{value:.4g}"


def _x(at: float, low: float, high: float) -> float:
    return LEFT + (at - low) / max(high - low, 1e-9) * (WIDTH - LEFT - RIGHT)


class _Scale:
    """Maps values to the height of a plot."""

    def __init__(self, values: Sequence[float], log: bool) -> None:
        positive = [value for value in values if value > 0]
        self.log = log and bool(positive)
        if self.log:
            self.low: float = math.floor(math.log10(min(positive)))
            self.high: float = math.ceil(math.log10(max(positive)) + 1e-9)
            self.high = max(self.high, self.low + 1)
            self.ticks = [10.0**power for power in range(int(self.low), int(self.high) + 1)]
        else:
            step = nice_step(max(values, default=0.0))
            top = max(step, math.ceil(max(values, default=0.0) / step - 1e-9) * step)
            self.low, self.high = 0.0, top
            self.ticks = [step * number for number in range(round(top / step) + 1)]

    def y(self, value: float) -> float:
        place = math.log10(max(value, 10.0**self.low)) if self.log else value
        return HEIGHT - BOTTOM - (place - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def lines(plot: Lines) -> str:
    """The plot as an SVG element."""
    times = plot.times
    low, high = plot.span or ((min(times), max(times)) if times else (0.0, 1.0))
    scale = _Scale([value for values in plot.series.values() for value in values], plot.log)
    parts = [_open(plot.title, "lines", times, plot.series, low, high)]
    for begin, end in plot.shaded:
        left, right = _x(max(begin, low), low, high), _x(min(end, high), low, high)
        parts.append(
            f'<rect class="shade" x="{left:.1f}" y="{TOP}" width="{max(right - left, 1):.1f}"'
            f' height="{HEIGHT - TOP - BOTTOM}"/>'
        )
    parts += _grid(scale)
    step = nice_step(high - low, 8)
    at = math.ceil(low / step) * step
    while at <= high + 1e-9:
        x = _x(at, low, high)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 16}" text-anchor="middle">{at:.6g}</text>')
        at += step
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">seconds since the first emit</text>')
    parts.append(f'<text x="2" y="{HEIGHT - 3}">{escape(plot.unit)}</text>')
    for number, values in enumerate(plot.series.values()):
        points = " ".join(f"{_x(t, low, high):.1f},{scale.y(v):.1f}" for t, v in zip(times, values, strict=True))
        if points:
            parts.append(f'<path class="s{number % COLOURS}" d="M{points.replace(" ", " L")}"/>')
    parts.append(f'<line class="cursor" x1="0" x2="0" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/></svg>')
    return "".join(parts)


def _open(
    title: str, kind: str, times: Sequence[float], series: Mapping[str, Sequence[float]], low: float, high: float
) -> str:
    data = json.dumps(
        {"t": list(times), "s": {name: list(values) for name, values in series.items()}, "low": low, "high": high}
    )
    return (
        f'<svg class="plot {kind}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}"'
        f' data-plot="{escape(data)}">'
    )


def _grid(scale: _Scale) -> list[str]:
    parts = []
    for tick in scale.ticks:
        y = scale.y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    return parts


def legend(names: Sequence[str]) -> str:
    """Names with the colours of their lines."""
    items = "".join(
        f'<li><i class="f{number % COLOURS}"></i>{escape(name)} <b data-name="{escape(name)}"></b></li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar, with its range if it was measured several times."""

    label: str
    value: float
    low: float
    high: float
    colour: int = 0


def bars(title: str, unit: str, items: Sequence[Bar], standalone: bool = False) -> str:
    """Horizontal bars on a logarithmic scale; `standalone` makes a separate file."""
    row, left = 24, 250
    height = TOP + 26 + row * len(items) + 24
    smallest = min((item.low for item in items if item.low > 0), default=1.0)
    low, high = math.floor(math.log10(smallest)), math.log10(max((item.high for item in items), default=1.0)) + 0.25

    def x(value: float) -> float:
        return left + (math.log10(max(value, 10.0**low)) - low) / (high - low) * (WIDTH - left - 60)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot bars"'
        f' viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
    ]
    if standalone:
        parts.append(_STANDALONE)
    parts.append(f'<text class="title" x="4" y="{TOP + 6}">{escape(title)}</text>')
    for power in range(int(low), int(high) + 1):
        at = x(10.0**power)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP + 16}" y2="{height - 22}"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - 8}" text-anchor="middle">{short(10.0**power)}</text>')
    for number, item in enumerate(items):
        y = TOP + 22 + row * number
        parts.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(item.label)}</text>')
        parts.append(
            f'<rect class="f{item.colour}" x="{left}" y="{y}" width="{max(x(item.value) - left, 1):.1f}"'
            f' height="{row - 7}"/>'
        )
        parts.append(
            f'<line class="axis" x1="{x(item.low):.1f}" x2="{x(item.high):.1f}" y1="{y + 8.5}" y2="{y + 8.5}"/>'
        )
        parts.append(f'<text x="{x(item.high) + 6:.1f}" y="{y + 13}">{item.value:.3g}</text>')
    parts.append(f'<text x="4" y="{height - 8}">{escape(unit)}</text></svg>')
    return "".join(parts)


#: Colours for a plot in a document instead of our page.
_STANDALONE = (
    "<style>svg{background:#fff;font:11px system-ui,sans-serif}text{fill:#444}.title{font-weight:600;fill:#111}"
    ".grid{stroke:#ddd}.axis{stroke:#222}.f0{fill:#3366aa}.f1{fill:#bbbbbb}.f2{fill:#cc6633}</style>"
)
