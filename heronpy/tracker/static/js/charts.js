/** Charts over time, from the timeline: uPlot draws, and a table below has the same figures. */

import { bytes, count, duration, latency, rate, share, taskName, time } from './format.js';
import { Cell, html, rarely, useCell, useDark, useEffect, useLayoutEffect, useMemo, useRef, useState } from './ui.js';

/** Whether uPlot is loaded, which is the last script. */
const drawer = new Cell('uPlot' in window);
addEventListener('load', () => drawer.set('uPlot' in window));

/** The spans for the keys 1 to 4: name and seconds. */
export const SPANS = [['10m', 600], ['1h', 3600], ['3h', 10_800], ['24h', 86_400]];
const LINES_MAX = 8;
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const HEIGHT = 150;

/**
 * A chart. `shown` formats a value; `lines` has the title of a line by its metric (`%` is the component); `top` is the highest
 * possible value; `steps`: the line is drawn in steps.
 * @typedef {{title: string, shown: (value: any) => string, lines: Record<string, string>, top?: number, steps?: boolean}} Kind
 */
const END_TO_END = { title: 'end to end', shown: latency, lines: { end_to_end_p50_s: '% p50', end_to_end_p99_s: '% p99', complete_p50_s: '% acked p50', complete_p99_s: '% acked p99' } };

/** Charts of all components; each title states how the values of tasks are combined. @type {Kind[]} */
export const OF_TOPOLOGY = [
  { title: 'rates, all tasks', shown: rate, lines: { emitted_per_s: '% out', executed_per_s: '% in' } },
  END_TO_END,
  { title: 'busy, the busiest task', shown: share, lines: { busy_max: '%' }, top: 1 },
  { title: 'blocked, the mean task, and spouts held', shown: share, lines: { blocked: '%', held: 'spouts held' }, top: 1 },
  { title: 'queue, the longest one', shown: bytes, lines: { queue_bytes_max: '%' } },
  { title: 'memory, the largest task', shown: bytes, lines: { memory_bytes_max: '%' } },
  { title: 'time per tuple, p99 of all tasks', shown: latency, lines: { latency_p99_s: '%' } },
  { title: 'CPU, cores, all tasks', shown: count, lines: { cpu: '%' } },
];
/** Charts of one component. @type {Kind[]} */
export const OF_COMPONENT = [
  { title: 'rates, all tasks', shown: rate, lines: { emitted_per_s: 'out', executed_per_s: 'in', failed_per_s: 'failed' } },
  { title: 'busy, blocked, idle: the mean task', shown: share, lines: { busy: 'busy', blocked: 'blocked', idle: 'idle', busy_max: 'busiest task' }, top: 1 },
  { title: 'time per tuple, all tasks', shown: latency, lines: { latency_p50_s: 'p50', latency_p99_s: 'p99' } },
  { ...END_TO_END, lines: { end_to_end_p50_s: 'p50', end_to_end_p99_s: 'p99', complete_p50_s: 'acked p50', complete_p99_s: 'acked p99' } },
  { title: 'queue', shown: bytes, lines: { queue_bytes: 'all tasks', queue_bytes_max: 'the longest one' } },
  { title: 'memory', shown: bytes, lines: { memory_bytes: 'all tasks', memory_bytes_max: 'the largest task' } },
  { title: 'CPU, cores, all tasks', shown: count, lines: { cpu: 'CPU' } },
];

/** Charts of all Spark sinks together. @type {Kind[]} */
export const OF_SPARK = [
  { title: 'waiting batches', shown: count, lines: { spark_waiting: 'waiting' } },
  { title: 'lag, the oldest batch', shown: duration, lines: { spark_lag_s: 'lag' } },
  { title: 'time per batch', shown: duration, lines: { spark_batch_s: 'time per batch' } },
  { title: 'batches done', shown: rate, lines: { spark_done: 'done' } },
];

/** Charts of a job. @type {Kind[]} */
export const OF_JOB = [
  { title: 'load', shown: rate, lines: { load_per_s: '%' } },
  { title: 'tasks', shown: count, lines: { tasks: '%' }, steps: true },
  { title: 'lag', shown: duration, lines: { lag_s: 'lag', slo_lag_s: 'promised at most' } },
];

/** Factor by which a hidden line must be higher than a shown line to replace it. */
const CLEARLY = 1.5;

/**
 * @param {Kind} chart @param {any} timeline
 * @param {any[]} nodes of the plan: the place of a component gives its colour in all charts; of a spout, only output is drawn
 * @param {Set<string>} before names of the lines that were shown, so that noise does not replace them
 */
export function linesOf(chart, timeline, nodes, before) {
  const places = new Map(nodes.map((node, place) => [node.name, place]));
  const metrics = Object.keys(chart.lines);
  const both = chart.lines.emitted_per_s?.includes('%');
  const found = timeline.series
    .filter((series) => series.metric in chart.lines && series.values.some((value) => value !== null))
    .filter((series) => !both || (nodes[places.get(series.component)]?.kind === 'spout') === (series.metric === 'emitted_per_s'))
    .map((series) => {
      const title = chart.lines[series.metric];
      const number = metrics.indexOf(series.metric);
      const place = places.get(series.component) ?? nodes.length;
      const look = title.includes('%') || !series.component ? [place, (place >> 1) + (place >> 3) + number] : [number, number >> 1];
      return {
        name: title.replace('%', series.component),
        colour: `s${look[0] % 8}`,
        dash: DASHES[look[1] % 4],
        values: series.values,
        top: most(series.values),
      };
    });
  return { lines: found.length > LINES_MAX ? highest(found, before) : found, all: found.length };
}

/** The highest lines, in their original order, because another order would make another chart. @param {{name: string, top: number}[]} found @param {Set<string>} before */
function highest(found, before) {
  const kept = found.filter((line) => before.has(line.name));
  const least = Math.min(...kept.map((line) => line.top));
  if (kept.length === LINES_MAX && !found.some((line) => !before.has(line.name) && line.top > CLEARLY * least)) return kept;
  const chosen = new Set([...found].sort((one, other) => other.top - one.top).slice(0, LINES_MAX));
  return found.filter((line) => chosen.has(line));
}

/**
 * One chart, or nothing without figures. While it is out of sight, only its table is updated, because drawing takes longest.
 * @param {{chart: Kind, timeline: any, events: any[], nodes: any[], dark: boolean, near: boolean}} props
 */
const Chart = rarely(({ chart, timeline, events, nodes, dark, near }) => {
  const before = useRef(new Set());
  const { lines, all } = useMemo(() => linesOf(chart, timeline, nodes, before.current), [timeline, nodes]);
  const names = lines.map((line) => line.name + line.colour).join('\n');
  before.current = new Set(lines.map((line) => line.name));
  const box = useRef(null);
  const plot = useRef(null);
  const marks = useRef([]);
  const [at, setAt] = useState(null);
  marks.current = events;
  const data = useMemo(() => [timeline.times, ...lines.map((line) => line.values)], [lines]);
  useLayoutEffect(() => {
    if (!box.current || !lines.length) return undefined;
    const made = new uPlot(options(chart, lines, box.current, marks, setAt), data, box.current);
    plot.current = made;
    const watch = new ResizeObserver(([entry]) => made.setSize({ width: Math.floor(entry.contentRect.width), height: HEIGHT }));
    watch.observe(box.current);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [names, dark]);
  useEffect(() => near && plot.current?.setData(data), [data, events, near]);
  if (!lines.length) return null;
  const last = timeline.times.length - 1;
  const position = at ?? last;
  // Events between the previous and the next figure.
  const pointed = at === null ? [] : marked(events, timeline.times[at - 1], timeline.times[at + 1] ?? Infinity);
  return html`<figure class="chart">
    <figcaption>${chart.title}${all > lines.length && html` <span class="quiet">the ${lines.length} highest of ${all}</span>`}<span class="quiet">${pointed.map((event) => ` ${mark(event)}: ${event.text}${event.times > 1 ? ` (${event.times} times)` : ''}`)}</span></figcaption>
    <div ref=${box} role="img" aria-label=${`${chart.title} over time; the table below has the figures`}></div>
    <table class="legend">
      <caption class="unseen">${chart.title}, least, most and value at ${time(timeline.times[position])}</caption>
      <thead><tr><th scope="col"><span class="unseen">line</span></th><th scope="col" class="num">${at === null ? 'last' : time(timeline.times[position])}</th><th scope="col" class="num">least</th><th scope="col" class="num">most</th></tr></thead>
      <tbody>${lines.map((line) => html`<tr key=${line.name}>
        <th scope="row"><svg width="26" height="8" aria-hidden="true" class="line"><path d="M0 4H26" stroke=${`var(--${line.colour})`} stroke-dasharray=${line.dash.join(' ')} /></svg>${line.name}</th>
        <td class="num"><b>${chart.shown(line.values[position])}</b></td>
        <td class="num quiet">${chart.shown(least(line.values))}</td><td class="num quiet">${chart.shown(line.top)}</td>
      </tr>`)}</tbody>
    </table>
  </figure>`;
}, ['chart', 'nodes', 'dark'], ['timeline', 'events']);

const known = (values) => values.filter((value) => value !== null);
const least = (values) => Math.min(...known(values));
const most = (values) => Math.max(...known(values));

/** @param {any} chart @param {any[]} lines @param {HTMLElement} box @param {{current: any[]}} marks @param {(at: number|null) => void} setAt */
function options(chart, lines, box, marks, setAt) {
  // Read once, because reading a style while the page changes is slow. A change of theme makes a new chart.
  const style = getComputedStyle(document.documentElement);
  const colours = new Map();
  const colour = (name) => {
    if (!colours.has(name)) colours.set(name, style.getPropertyValue(name).trim());
    return colours.get(name);
  };
  for (const name of ['--warn', '--info', '--quiet']) colour(name);
  const axis = { stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line'), width: 1 }, font: '11px system-ui' };
  return {
    width: Math.max(200, Math.floor(box.clientWidth)),
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: 'charts' }, drag: { x: false, y: false }, points: { size: 5 } },
    scales: { x: { time: true }, y: { range: (_, low, high) => [0, chart.top ?? (high > 0 ? high * 1.05 : 1)] } },
    axes: [
      { ...axis, size: 28, space: 80, incrs: TICKS, values: (plot, ticks) => ticks.map((tick) => clock(tick, plot.scales.x.max - plot.scales.x.min)) },
      { ...axis, size: 74, ...((chart.shown === bytes || chart.steps) && { incrs: POWERS }), values: (_, ticks) => ticks.map((tick) => chart.shown(tick)) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.name,
        stroke: colour(`--${line.colour}`),
        width: 1.5,
        dash: line.dash,
        ...(chart.steps && { paths: uPlot.paths.stepped({ align: 1 }) }),
        // Computed at each drawing, because a chart that began with two points soon has many.
        points: { show: (plot, series) => known(plot.data[series]).length < 3 },
      })),
    ],
    hooks: {
      drawClear: [(plot) => drawMarks(plot, marks.current, colour)],
      setCursor: [(plot) => setAt(plot.cursor.left >= 0 && plot.cursor.idx !== null ? plot.cursor.idx : null)],
    },
  };
}

/** Round amounts of bytes are powers of two. */
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** Seconds between two ticks; uPlot's own list has no value between one and five minutes. */
const TICKS = [1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600, 7200, 14_400, 43_200];

/** Time of day under a chart. @param {number} at @param {number} span seconds */
function clock(at, span) {
  const text = new Date(at * 1000).toTimeString();
  return span > 300 ? text.slice(0, 5) : text.slice(0, 8);
}

/** The letters that mark events, by their kind. @type {Record<string, string>} */
const MARKS = { backpressure: 'B', restart: 'R', oom: 'M', update: 'U', decision: 'D', restore: 'Z', master: 'T' };
/** The mark of an event; spouts are held only by backpressure without a reason. @param {any} event */
export const mark = (event) => (event.kind === 'backpressure' && event.reason ? 'F' : MARKS[event.kind]);
/** The start of an event: its first occurrence, or its end minus the total duration of its episodes. */
const begin = (event) => Math.min(event.first_at, event.at - (event.lasted_s ?? 0));
/** The highest number that a mark shows. */
const TIMES_MAX = 999;
/** The height of a strip. */
const STRIP = 12;

/** The marked events within a time, in the order of their begin. @param {any[]} events @param {number} from @param {number} to */
const marked = (events, from, to) => events.filter((event) => event.kind in MARKS && event.at >= from && begin(event) <= to).sort((one, other) => begin(one) - begin(other));

/** Equal letters in a row become one letter with their number. @param {string} letters */
export const joined = (letters) => letters.replace(/(.)\1+/g, (run, letter) => letter + run.length);

/** Draws episodes as bands and other events as lines, with a letter at the top, `R2` for two; where there is room, also with the task. */
function drawMarks(plot, events, colour) {
  const { ctx, bbox } = plot;
  const position = (at) => plot.valToPos(at, 'x', true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.font = `${10 * devicePixelRatio}px system-ui`;
  // Drawing the axes has changed the font.
  ctx.textAlign = 'left';
  let letters = '';
  let from;
  marked(events, plot.scales.x.min, plot.scales.x.max).forEach((event, number, all) => {
    const left = Math.max(bbox.left, position(begin(event)));
    ctx.fillStyle = `${colour(event.kind === 'update' || event.kind === 'decision' ? '--info' : '--warn')}33`;
    // A repeated event did not last continuously: it has a line at its end, and a strip from its start.
    const right = position(event.at);
    const lasted = event.lasted_s && event.times < 2;
    ctx.fillRect(left, bbox.top, Math.max(devicePixelRatio, right - left), lasted ? bbox.height : STRIP * devicePixelRatio);
    if (!lasted) ctx.fillRect(right, bbox.top, devicePixelRatio, bbox.height);
    ctx.fillStyle = colour('--quiet');
    const alone = !letters;
    if (alone) from = left;
    letters += mark(event).repeat(Math.min(event.times, TIMES_MAX));
    const next = all[number + 1];
    const room = next ? position(begin(next)) - from : bbox.width;
    if (room < 20 * devicePixelRatio) return;
    const text = `${joined(letters)} ${event.subject && taskName(event.subject)}`;
    ctx.fillText(alone && ctx.measureText(text).width < room ? text : joined(letters), from + 2, bbox.top + 10 * devicePixelRatio);
    letters = '';
  });
  ctx.restore();
}

/**
 * @param {{charts: Kind[], timeline: any, events: any[], nodes: any[]}} props
 */
export function Charts({ charts, timeline, events, nodes }) {
  const dark = useDark();
  if (!useCell(drawer)) return null;
  // A topology that ran for less than a minute has one point.
  if (!timeline.times.length) return html`<p class="quiet">No figures were recorded for this time yet.</p>`;
  return html`<div class="charts">${charts.map((chart) => html`<${Chart} key=${chart.title} chart=${chart} timeline=${timeline} events=${events} nodes=${nodes} dark=${dark} />`)}</div>
    <p class="quiet">Marks: B spouts held, F task full, R restart, M out of memory, U update, D decision, Z restore, T topology master.</p>`;
}

/** The buttons that choose the span. @param {{span: string, keptFrom: number|null, onSpan: (span: string) => void}} props */
export function Spans({ span, keptFrom, onSpan }) {
  return html`<div class="spans" role="group" aria-label="time span">${SPANS.map(([name, seconds], number) => {
    const reaches = reachable(number, keptFrom);
    return html`<button key=${name} aria-pressed=${name === span} disabled=${!reaches && name !== span} title=${reaches ? `key ${number + 1}` : 'figures this old are not kept'} onClick=${() => onSpan(name)}>${duration(seconds)}</button>`;
  })}${span === SPANS.at(-1)[0] && html` <span class="quiet">Prometheus can keep older figures.</span>`}</div>`;
}

/** Whether a span shows more than the next shorter one. @param {number} number @param {number|null} keptFrom */
export const reachable = (number, keptFrom) => number === 0 || (keptFrom !== null && keptFrom < Date.now() / 1000 - SPANS[number - 1][1]);
