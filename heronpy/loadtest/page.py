"""One self-contained HTML page about one result document. Pure."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

from heronpy.loadtest import plots, steps
from heronpy.loadtest.plots import Lines
from heronpy.loadtest.results import compare, label_of, shown

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
ul.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 14px; margin: 6px 0 0;
  padding: 0; font-size: 12px; }
ul.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; }
.headline { font-size: 18px; margin: 10px 0 12px; } .headline b { margin-right: 6px; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 0 0 16px; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 8px 16px; }
.tiles b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; } .tiles span { color: var(--muted); }
ul.checks { list-style: none; margin: 0; padding: 0; }
"""

_SCRIPT = (
    """
for (const svg of document.querySelectorAll('svg.lines')) {
  const plot = JSON.parse(svg.dataset.plot), cursor = svg.querySelector('.cursor');
  const values = svg.parentElement.querySelectorAll('b[data-name]');
  svg.addEventListener('pointermove', event => {
    if (!plot.t.length) return;
    const box = svg.getBoundingClientRect(), left = LEFT, width = WIDTH - LEFT - RIGHT;
    const x = (event.clientX - box.left) / box.width * WIDTH;
    const at = plot.low + (x - left) / width * (plot.high - plot.low);
    let best = 0;
    plot.t.forEach((t, i) => { if (Math.abs(t - at) < Math.abs(plot.t[best] - at)) best = i; });
    const cx = left + (plot.t[best] - plot.low) / Math.max(plot.high - plot.low, 1e-9) * width;
    cursor.setAttribute('x1', cx); cursor.setAttribute('x2', cx); cursor.style.visibility = 'visible';
    for (const b of values)
      b.textContent = Number(plot.s[b.dataset.name][best]).toLocaleString('en', {maximumSignificantDigits: 4});
  });
  svg.addEventListener('pointerleave', () => {
    cursor.style.visibility = 'hidden';
    for (const b of values) b.textContent = '';
  });
}
""".replace("WIDTH", str(plots.WIDTH))
    .replace("LEFT", str(plots.LEFT))
    .replace("RIGHT", str(plots.RIGHT))
)


def render(result: dict[str, Any], before: dict[str, Any] | None = None) -> str:
    """The page; `before` adds a column with an earlier result."""
    title = f"Load test: {result['profile']}"
    calibration = result["calibration"]
    host = result["host"]
    head = (
        f"<h1>{escape(title)}</h1><p class='muted'>{escape(result['about'])}</p>{_headline(result)}"
        f"<p class='muted'>heronpy {escape(result['heronpy'])}, Python {escape(result['python'])},"
        f" {host['cores']} cores, {escape(host['cpu'])}"
        f", {escape(result['date'])}<br>{escape(_options(result['options']))}<br>"
        f"<span class='{'noisy' if calibration['noisy'] else ''}'>{escape(calibration['text'])}</span>,"
        f" calibration loop {calibration['loop_s_per_million']:.4f} CPU-s per million</p>"
    )
    runs = [run for run in result["runs"] if "series" in run]
    body = _steps(result) + _checks(result) + _figures(result, before)
    if runs:
        body += f"<div class='plots'>{_plots(runs[-1], result['unit'])}</div>{_roles(runs[-1])}"
        body += _histograms(runs[-1])
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{_CSS}{plots.STYLE}</style></head>"
        f"<body>{head}{body}<script>{_SCRIPT}</script></body></html>"
    )


#: Figures of the tiles under the headline, if the result has them; each with a short label.
_KEY_FIGURES = (
    ("rate", "rate"),
    ("latency_p50_ms", "latency, median"),
    ("latency_p99_ms", "latency, 99 %"),
    ("cpu_s_per_million", "CPU-s per million"),
    ("cpu_cores", "cores used"),
    ("uss_bytes", "memory"),
    ("first_tuple_s", "submit to first tuple"),
    ("kill_s", "kill"),
    ("pack_s", "packing plan"),
    ("state_bytes", "saved state"),
    ("restore_s", "restore"),
)
_TILES_MAX = 6


def _headline(result: dict[str, Any]) -> str:
    """What was measured, whether it is reliable, and the main figures."""
    checks = [check for run in result["runs"] for check in run["checks"]]
    wrong = sorted({check["name"] for check in checks if not check["ok"]})
    runs = len(result["runs"])
    times = f" in {runs} runs" if runs > 1 else ""
    counts = next((check["text"] for check in checks if check["name"] == "counts"), "")
    said = "; ".join(
        part
        for part in (
            f"{len(checks) - sum(not check['ok'] for check in checks)} of {len(checks)} checks hold{times}",
            f"not: {', '.join(wrong)}" if wrong else "",
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
    items = "".join(
        f"<li><b class='{'ok' if check['ok'] else 'failed'}'>{'ok' if check['ok'] else 'FAILED'}</b>"
        f" {escape(check['name'])}: {escape(check['text'])}</li>"
        for run in result["runs"]
        for check in run["checks"]
    )
    goals = "".join(
        f"<li><b class='{'ok' if goal['met'] else 'noisy'}'>{'met' if goal['met'] else 'missed'}</b>"
        f" {escape(goal['text'])}</li>"
        for goal in result.get("goals", ())
    )
    aimed = f"<h2>Aimed at</h2><ul class='checks'>{goals}</ul>" if goals else ""
    return f"<section><h2>Checks</h2><ul class='checks'>{items}</ul>{aimed}</section>"


def _figures(result: dict[str, Any], before: dict[str, Any] | None) -> str:
    earlier = {change.figure.name: change for change in compare(result, before)} if before is not None else {}
    several = len(result["runs"]) > 1
    columns = ["figure", "median" if several else "value", *(["smallest", "largest"] if several else [])]
    columns += ["before", "ratio"] if earlier else []
    rows = []
    for name, row in result["summary"].items():
        cells = [label_of(name), shown(name, row["median"])]
        if several:
            cells += [shown(name, row["min"]), shown(name, row["max"])]
        if earlier:
            change = earlier.get(name)
            ratio = f"{change.ratio:.3f}" if change is not None and change.ratio is not None else "-"
            cells += [shown(name, change.before) if change is not None else "-", ratio]
        rows.append(cells)
    return f"<section style='margin-top:16px'><h2>Figures</h2>{_table(columns, rows)}</section>"


def _steps(result: dict[str, Any]) -> str:
    """The table of `rates`; nothing for other results."""
    if "steps" not in result["runs"][-1]:
        return ""
    notes = "".join(f"<p class='muted'>{escape(note)}</p>" for note in steps.notes_of(result))
    return (
        f"<section style='margin-bottom:16px'><h2>Cost by rate</h2>{_table(*steps.table_of(result))}{notes}</section>"
    )


def _table(columns: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _plots(run: dict[str, Any], unit: str) -> str:
    series = run["series"]
    shaded = [(episode["from"], episode["to"]) for episode in series["backpressure"]]
    queues = series["queues"]
    megabytes = {role: [value / 2**20 for value in values] for role, values in series["memory"]["values"].items()}
    made = [
        Lines("Rate at the sinks", f"{unit}/s", series["rate"]["t"], {"rate": series["rate"]["values"]}, shaded),
        _cpu(series["cpu"], shaded),
        Lines("Queues: tuples that wait", "tuples", queues["t"], queues["values"], shaded),
        Lines(
            "Bytes that wait in the stream managers",
            "bytes",
            queues["t"],
            {"queued bytes": queues["queued_bytes"]},
            shaded,
        ),
        Lines("Memory by role, unshared", "MB", series["memory"]["t"], megabytes, shaded),
    ]
    if series["latency"]["t"]:
        made.insert(
            1,
            Lines(
                "End-to-end latency",
                "ms, logarithmic",
                series["latency"]["t"],
                series["latency"]["values"],
                shaded,
                log=True,
            ),
        )
    if any(queues["pending"]):
        made.append(Lines("Tuples not acked yet", "tuples", queues["t"], {"pending": queues["pending"]}, shaded))
    # One time axis for all plots, so that simultaneous events line up.
    times = [at for plot in made for at in plot.times]
    made = [replace(plot, span=(min([0.0, *times]), max(times, default=1.0))) for plot in made]
    cards = "".join(
        f"<section><h2>{escape(plot.title)}</h2>{plots.lines(plot)}{plots.legend(list(plot.series))}</section>"
        for plot in made
    )
    return cards + _episodes(run)


def _cpu(cpu: dict[str, Any], shaded: list[tuple[float, float]]) -> Lines:
    """A line per busy process; per role if there are too many to distinguish."""
    busy = {name: values for name, values in cpu["processes"].items() if max(values, default=0.0) >= 0.05}
    if len(busy) <= plots.COLOURS:
        return Lines("CPU per process (without idle ones)", "cores", cpu["t"], busy, shaded)
    return Lines("CPU by role", "cores", cpu["t"], cpu["values"], shaded)


def _episodes(run: dict[str, Any]) -> str:
    """Backpressure: who, when, how long."""
    found = run["series"]["backpressure"]
    if not found:
        text = f"None was seen; spouts were held back for {run['clamped_s']:.2f} s in all."
        return f"<section><h2>Backpressure</h2><p class='muted'>{text}</p></section>"
    rows = [[item["culprit"], f"{item['from']:.1f} s", f"{item['to'] - item['from']:.1f} s"] for item in found[:50]]
    return f"<section><h2>Backpressure (shaded in the plots)</h2>{_table(['culprit', 'from', 'for'], rows)}</section>"


def _roles(run: dict[str, Any]) -> str:
    rows = []
    for role, cpu in run["figures"]["cpu"].items():
        memory = run["memory"].get(role, {"processes": 0, "uss": 0, "pss": 0})
        sizes = [f"{memory[key] / 2**20:,.1f} MB" for key in ("uss", "pss")]
        rows.append([role, str(memory["processes"]), f"{cpu['seconds']:.2f}", f"{cpu['per_million']:.4f}", *sizes])
    columns = ["role", "processes", "CPU-s", "CPU-s per million", "own memory", "with shared"]
    return f"<section><h2>Processes</h2>{_table(columns, rows)}</section>"


def _histograms(run: dict[str, Any]) -> str:
    columns = ["", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "mean", "longest", "tuples"]
    names = ("p50", "p90", "p99", "p99.9", "p99.99", "mean", "max")
    titles = {"end_to_end": "end to end", "until_acked": "until acked"}
    rows = [
        [titles[key], *(f"{found[name]:.3f} ms" for name in names), f"{found['count']:,}"]
        for key, found in run["latency"].items()
    ]
    if not rows:
        return ""
    return (
        "<section style='margin-top:16px'><h2>Latency</h2>"
        "<p class='muted'>From the intended send time of each tuple, all of the run.</p>"
        f"{_table(columns, rows)}</section>"
    )
