"""Renders a result document as one self-contained HTML page.

uPlot, which the tracker also uses, draws each plot from its `data-plot`; the page needs no network.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from heronpy.loadtest import rates, scenes
from heronpy.loadtest.results import compare, shown, table_of_figures, table_of_roles

UPLOT = Path(__file__).parents[1] / "tracker" / "static" / "vendor" / "uPlot.iife.min.js"
COLOURS = 8

_CSS = """
:root { --ink: #16181d; --muted: #6b7280; --line: #e5e7eb; --paper: #ffffff; --card: #f8f9fb; --warn: #d97706;
  --good: #15803d; --bad: #b91c1c; --c0: #2563eb; --c1: #dc7c12; --c2: #0f9d76; --c3: #c026d3; --c4: #64748b;
  --c5: #e11d48; --c6: #0891b2; --c7: #7c5e10; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --muted: #9aa3af; --line: #2d323b; --paper: #14161a;
  --card: #1b1e24; --good: #4ade80; --bad: #f87171; --c0: #60a5fa; --c1: #fbbf24; --c2: #34d399; --c3: #e879f9;
  --c4: #94a3b8; --c5: #fb7185; --c6: #22d3ee; --c7: #d6b656; } }
* { box-sizing: border-box; } body { margin: 0 auto; max-width: 1360px; padding: 24px; color: var(--ink);
  background: var(--paper); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 2px; } h2 { font-size: 16px; margin: 0 0 8px; } p { margin: 0 0 12px; }
.muted { color: var(--muted); } .noisy { color: var(--warn); } .ok { color: var(--good); }
.failed { color: var(--bad); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr));
  gap: 16px; margin: 20px 0; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 14px 16px; min-width: 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { text-align: right; padding: 3px 8px; border-bottom: 1px solid var(--line); } th { font-weight: 600; }
th:first-child, td:first-child { text-align: left; } .scroll { overflow-x: auto; }
.plot { position: relative; } .plot canvas { display: block; } .u-wrap { position: relative; user-select: none; }
.u-over, .u-under, .u-axis, .u-select, .u-cursor-x, .u-cursor-y, .u-cursor-pt { position: absolute; }
.u-cursor-x, .u-cursor-y, .u-cursor-pt { left: 0; top: 0; pointer-events: none; } .u-cursor-y, .u-off { display: none; }
.u-cursor-x { height: 100%; border-right: 1px dashed var(--muted); } .u-cursor-pt { border-radius: 50%; }
.u-legend { width: auto; font-size: 12px; } .u-legend tr { display: inline-block; margin-right: 14px; }
.u-legend th, .u-legend td { display: inline-block; border: 0; padding: 2px; font-weight: 400; }
.u-legend th > * { display: inline-block; } .u-marker { width: 10px; height: 10px; margin-right: 5px; }
.u-legend td { font-weight: 600; }
.headline { font-size: 18px; margin: 10px 0 12px; } .headline b { margin-right: 6px; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 0 0 16px; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px 16px; }
.tiles b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; } .tiles span { color: var(--muted); }
ul.checks { list-style: none; margin: 0; padding: 0; }
"""

_SCRIPT = """
const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name).trim();
const rounded = {maximumSignificantDigits: 4, notation: 'compact'};
const number = value => value == null ? '' : value.toLocaleString('en', rounded);
const axis = {stroke: colour('--muted'), grid: {stroke: colour('--line')}, ticks: {stroke: colour('--line')},
  font: '11px system-ui', labelFont: '11px system-ui', labelSize: 16};
const decades = (_, place, low, high) =>
  Array.from({length: Math.round(Math.log10(high / low)) + 1}, (_, times) => low * 10 ** times);
for (const box of document.querySelectorAll('.plot')) {
  const plot = JSON.parse(box.dataset.plot), rows = Object.entries(plot.series);
  const shade = drawn => {
    drawn.ctx.fillStyle = colour('--warn') + '29';
    for (const [from, to] of plot.shaded) {
      const left = drawn.valToPos(Math.max(from, plot.span[0]), 'x', true), right = drawn.valToPos(to, 'x', true);
      drawn.ctx.fillRect(left, drawn.bbox.top, Math.max(1, right - left), drawn.bbox.height);
    }
  };
  const made = new uPlot({
    width: box.clientWidth, height: 260, cursor: {sync: {key: 'run'}, drag: {x: false, y: false}},
    scales: {x: {time: false, range: plot.span},
      y: plot.log ? {distr: 3} : {range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1]}},
    axes: [{...axis, size: 30, label: 'seconds since the first emit'},
      {...axis, size: 54, label: plot.unit, values: (_, at) => at.map(number), ...(plot.log && {splits: decades})}],
    series: [{label: 's', value: (_, at) => number(at)}, ...rows.map(([label], place) => (
      {label, stroke: colour(`--c${place % COLOURS}`), width: 1.6, value: (_, value) => number(value)}))],
    hooks: {drawClear: [shade]},
  }, [plot.times, ...rows.map(([, values]) => values.map(value => plot.log && value <= 0 ? null : value))], box);
  new ResizeObserver(([entry]) => made.setSize({width: Math.floor(entry.contentRect.width), height: 260})).observe(box);
}
""".replace("COLOURS", str(COLOURS))


def render(result: dict[str, Any], before: dict[str, Any] | None = None) -> str:
    """Return the page; `before` adds a column with an earlier result."""
    title = f"Load test: {result['profile']}"
    calibration = result["calibration"]
    host = result["host"]
    head = (
        f"<h1>{escape(title)}</h1><p class='muted'>{escape(result['about'])}</p>{_headline(result)}"
        f"<p class='muted'>heronpy {escape(result['heronpy'])}, Python {escape(result['python'])},"
        f" {host['cores']} cores, {escape(host['cpu'])}"
        f", {escape(result['date'])}<br>{escape(_options(result['options']))}<br>"
        f"<span class='{'noisy' if calibration['noisy'] else ''}'>{escape(calibration['text'])}</span>,"
        f" calibration loop {calibration['loop_s_per_million']:.4f} CPU-s per million rounds</p>"
    )
    runs = [run for run in result["runs"] if "series" in run]
    body = _steps(result) + _checks(result) + _figures(result, before)
    if runs:
        body += f"<div class='plots'>{_plots(runs[-1], result['unit'])}</div>"
        body += f"<section><h2>Processes</h2>{_table(*table_of_roles(runs[-1]))}</section>{_histograms(runs[-1])}"
        body += f"<script>{UPLOT.read_text(encoding='utf-8')}{_SCRIPT}</script>"
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_CSS}</style></head>"
        f"<body>{head}{body}</body></html>"
    )


#: Figures for the tiles below the headline, each with a short label; figures missing from the result are omitted.
_KEY_FIGURES = (
    ("rate", "rate"),
    ("latency_p50_ms", "latency, median"),
    ("latency_p99_ms", "latency, p99"),
    ("cpu_s_per_million", "CPU-s per million records"),
    ("cpu_cores", "cores used"),
    ("uss_bytes", "memory"),
    ("first_tuple_s", "time from submit to first tuple"),
    ("kill_s", "duration of heron kill"),
    ("pack_s", "time to compute the packing plan"),
    ("state_bytes", "saved state"),
    ("restore_s", "duration of a restore"),
)
_TILES_MAX = 6


def _headline(result: dict[str, Any]) -> str:
    """Return the verdict, the numbers of checks and runs, a note about noise, and tiles with the main figures."""
    checks = [check for run in result["runs"] for check in run["checks"]]
    wrong = sorted({check["name"] for check in checks if not check["ok"]})
    runs = len(result["runs"])
    times = f" in {runs} runs" if runs > 1 else ""
    counts = next((check["text"] for check in checks if check["name"] == "counts"), "")
    said = "; ".join(
        part
        for part in (
            f"{len(checks) - sum(not check['ok'] for check in checks)} of {len(checks)} checks passed{times}",
            f"failed: {', '.join(wrong)}" if wrong else "",
            counts if runs == 1 else "",
            "on a noisy machine" if result["calibration"]["noisy"] else "",
        )
        if part
    )
    verdict = f"<b class='{'failed' if wrong else 'ok'}'>{'FAILED' if wrong else 'PASSED'}</b>"
    known = [(name, label) for name, label in _KEY_FIGURES if name in result["summary"]]
    tiles = "".join(
        f"<div><b>{escape(shown(name, result['summary'][name]['median']))}</b><span>{escape(label)}</span></div>"
        for name, label in known[:_TILES_MAX]
    )
    return f"<p class='headline'>{verdict}{escape(said)}</p><div class='tiles'>{tiles}</div>"


def _options(options: dict[str, Any]) -> str:
    parts = []
    for key, value in options.items():
        if key == "parameters":
            parts += [f"{name} {inner}" for name, inner in value.items() if inner not in (0, 0.0, False)]
        elif value not in ({}, "", 0, 0.0):
            parts.append(f"{key} {value}")
    return ", ".join(parts)


def _checks(result: dict[str, Any]) -> str:
    def shown_as(good: str, bad: str, colour: str, found: list[tuple[bool, str]]) -> str:
        items = "".join(
            f"<li><b class='{'ok' if ok else colour}'>{good if ok else bad}</b> {escape(text)}</li>"
            for ok, text in found
        )
        return f"<ul class='checks'>{items}</ul>"

    checks = [(check["ok"], f"{check['name']}: {check['text']}") for run in result["runs"] for check in run["checks"]]
    goals = [(goal["met"], goal["text"]) for goal in result.get("goals", ())]
    aimed = f"<h2>Goals</h2>{shown_as('met', 'missed', 'noisy', goals)}" if goals else ""
    return f"<section><h2>Checks</h2>{shown_as('ok', 'FAILED', 'failed', checks)}{aimed}</section>"


def _figures(result: dict[str, Any], before: dict[str, Any] | None) -> str:
    head, rows = table_of_figures(result)
    if before is not None:
        head += ["before", "ratio"]
        earlier = {change.figure.name: change for change in compare(result, before)}
        for name, row in zip(result["summary"], rows, strict=True):
            change = earlier.get(name)
            row.append(shown(name, change.before) if change is not None else "-")
            row.append(f"{change.ratio:.3f}" if change is not None and change.ratio is not None else "-")
    return f"<section style='margin-top:16px'><h2>Figures</h2>{_table(head, rows)}</section>"


def _steps(result: dict[str, Any]) -> str:
    """Return the table of `rates` or of scenes; "" for other results."""
    if "scenes" in result["runs"][-1]:
        return f"<section style='margin-bottom:16px'><h2>Scenes</h2>{_table(*scenes.table_of(result))}</section>"
    if "steps" not in result["runs"][-1]:
        return ""
    notes = "".join(f"<p class='muted'>{escape(note)}</p>" for note in rates.notes_of(result))
    return (
        f"<section style='margin-bottom:16px'><h2>Cost by rate</h2>{_table(*rates.table_of(result))}{notes}</section>"
    )


def _table(columns: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _plots(run: dict[str, Any], unit: str) -> str:
    series = run["series"]
    shaded = [(episode["from"], episode["to"]) for episode in series["backpressure"]]
    # One time axis for all plots, so that simultaneous events line up.
    times = [at for found in series.values() if isinstance(found, dict) for at in found["t"]]
    span = (min([0.0, *times]), max(times, default=1.0))

    def plot(title: str, unit: str, of: str, values: dict[str, Any], log: bool = False) -> str:
        drawn = {
            "unit": unit, "times": series[of]["t"], "series": values, "span": span, "shaded": shaded, "log": log
        }  # fmt: skip
        title = escape(title)
        return (
            f"<section><h2>{title}</h2><div class='plot' role='img' aria-label='{title}'"
            f" data-plot='{escape(json.dumps(drawn))}'></div></section>"
        )

    cpu, queues, late = series["cpu"], series["queues"], series["latency"]
    # Draw a line per busy process, or per role if there are too many processes to distinguish.
    busy = {name: values for name, values in cpu["processes"].items() if max(values, default=0.0) >= 0.05}
    by_process = len(busy) <= COLOURS
    megabytes = {role: [value / 2**20 for value in values] for role, values in series["memory"]["values"].items()}
    cards = [
        plot("Rate at the sinks", f"{unit}/s", "rate", {"rate": series["rate"]["values"]}),
        plot("End-to-end latency", "ms, logarithmic", "latency", late["values"], log=True) if late["t"] else "",
        plot("CPU per busy process", "cores", "cpu", busy)
        if by_process
        else plot("CPU by role", "cores", "cpu", cpu["values"]),
        plot("Queued tuples", "tuples", "queues", queues["values"]),
        plot("Queued bytes in stream managers", "bytes", "queues", {"queued bytes": queues["queued_bytes"]}),
        plot("Memory by role, private", "MB", "memory", megabytes),
        plot("Pending tuples", "tuples", "queues", {"pending": queues["pending"]}) if any(queues["pending"]) else "",
    ]
    return "".join(cards) + _episodes(run)


def _episodes(run: dict[str, Any]) -> str:
    """Return the list of backpressure episodes with culprit, time and duration."""
    found = run["series"]["backpressure"]
    if not found:
        text = f"No sample shows backpressure; spouts were held back for {run['clamped_s']:.2f} s in total."
        return f"<section><h2>Backpressure</h2><p class='muted'>{text}</p></section>"
    rows = [[item["culprit"], f"{item['from']:.1f} s", f"{item['to'] - item['from']:.1f} s"] for item in found[:50]]
    columns = ["culprit", "start", "duration"]
    return f"<section><h2>Backpressure (shaded in the plots)</h2>{_table(columns, rows)}</section>"


def _histograms(run: dict[str, Any]) -> str:
    columns = ["", "p50", "p90", "p99", "p99.9", "p99.99", "mean", "maximum", "tuples"]
    names = ("p50", "p90", "p99", "p99.9", "p99.99", "mean", "max")
    titles = {"end_to_end": "end to end", "until_acked": "time to ack"}
    rows = [
        [titles[key], *(f"{found[name]:.3f} ms" for name in names), f"{found['count']:,}"]
        for key, found in run["latency"].items()
    ]
    if not rows:
        return ""
    return (
        "<section style='margin-top:16px'><h2>Latency</h2>"
        "<p class='muted'>Measured from the intended send time of each tuple, over the whole run.</p>"
        f"{_table(columns, rows)}</section>"
    )
