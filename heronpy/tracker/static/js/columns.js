/** Columns of the tables that several pages show. */

import { bytes, count, duration, grouping, of, rate, share, taskName, text } from './format.js';
import { State } from './parts.js';
import { to } from './route.js';
import { html } from './ui.js';

const link = (place, page, arg, shown) => html`<a href=${to(place, page, arg)}>${shown}</a>`;
const some = (value) => (value ? html`<b class="alarm">${count(value)}</b>` : count(value));

/** One field of a row. @param {string} key @param {string} title @param {string} field @param {(value: any) => any} shown @param {string} [help] */
const figure = (key, title, field, shown, help) => ({ key, title, num: true, help, of: [field], by: (row) => row[field], cell: (row) => shown(row[field]) });

/** The worst task: its value, and a link to it. */
const worst = (place, key, title, field, instance, shown) => ({
  key, title, num: true, of: [field, instance], by: (row) => row[field],
  cell: (row) => (row[instance] ? html`${shown(row[field])} ${link(place, 'task', row[instance], taskName(row[instance]))}` : shown(row[field])),
});

/** @param {any} place */
export const componentColumns = (place) => [
  { key: 'name', title: 'component', of: ['name'], by: (row) => row.name, cell: (row) => link(place, 'component', row.name, row.name) },
  { key: 'kind', title: 'kind', of: ['kind'], by: (row) => row.kind, cell: (row) => html`<span class="num">${row.kind}</span>` },
  { key: 'up', title: 'up', num: true, of: ['up', 'tasks'], by: (row) => row.up - row.tasks, cell: (row) => (row.up < row.tasks ? html`<b class="alarm">${of(row.up, row.tasks)}</b>` : of(row.up, row.tasks)) },
  figure('in', 'in', 'executed_per_s', rate),
  figure('out', 'out', 'emitted_per_s', rate),
  figure('busy', 'busy', 'busy', share, 'share of time of the mean task, in user code and the work for it'),
  worst(place, 'busiest', 'busiest task', 'busy_max', 'busiest', share),
  figure('blocked', 'blocked', 'blocked', share, 'share of time that it waits for room behind it'),
  figure('idle', 'idle', 'idle', share),
  figure('queue', 'queue', 'queue_bytes', bytes),
  worst(place, 'fullest', 'longest queue', 'queue_bytes_max', 'fullest', bytes),
  figure('pending', 'pending', 'pending', count, 'emitted and neither acked nor failed'),
  figure('p50', 'p50', 'latency_p50_s', duration, 'time in user code for one tuple'),
  figure('p99', 'p99', 'latency_p99_s', duration, 'time in user code for one tuple'),
  figure('cpu', 'CPU', 'cpu', count, 'cores, all tasks'),
  figure('memory', 'memory', 'memory_bytes', bytes),
  figure('restarts', 'restarts', 'restarts', some),
  figure('failed', 'failed', 'failed_per_s', rate),
  figure('letters', 'given up', 'dead_letters', some, 'dead letters since submit'),
  figure('lost', 'lost', 'lost', some),
];

/** Of edges with their rates. @param {any} place */
export const edgeColumns = (place) => [
  { key: 'from', title: 'from', of: ['source'], by: (row) => row.source, cell: (row) => link(place, 'component', row.source, row.source) },
  { key: 'to', title: 'to', of: ['target'], by: (row) => row.target, cell: (row) => link(place, 'component', row.target, row.target) },
  { key: 'stream', title: 'stream', of: ['stream'], by: (row) => row.stream, cell: (row) => text(row.stream) },
  { key: 'grouping', title: 'grouping', of: ['grouping', 'fields'], by: grouping, cell: grouping },
  { key: 'rate', title: 'rate', num: true, of: ['rate'], by: (row) => row.rate, cell: (row) => rate(row.rate) },
];

const STATE = { key: 'state', title: 'state', of: ['state', 'error'], by: (row) => row.state, cell: (row) => html`<${State} state=${row.state} />${row.error && html` <span class="says">${row.error}</span>`}` };
const PLACE = { key: 'place', title: 'container', num: true, of: ['container', 'host'], by: (row) => row.container, cell: (row) => `c${row.container}${row.host ? ` ${row.host}` : ''}` };

/** @param {any} place */
export const taskColumns = (place) => [
  { key: 'name', title: 'task', of: ['instance_id', 'culprit'], by: (row) => `${row.component}-${String(row.task_id).padStart(9, '0')}`, cell: (row) => html`${row.culprit && html`<b class="alarm" title="holds the spouts back">! </b>`}${link(place, 'task', row.instance_id, taskName(row.instance_id))}` },
  STATE,
  PLACE,
  figure('in', 'in', 'executed_per_s', rate),
  figure('out', 'out', 'emitted_per_s', rate),
  figure('busy', 'busy', 'busy', share),
  figure('blocked', 'blocked', 'blocked', share),
  figure('idle', 'idle', 'idle', share),
  figure('queue', 'queue', 'queue_bytes', bytes),
  figure('p50', 'p50', 'latency_p50_s', duration),
  figure('p99', 'p99', 'latency_p99_s', duration),
  figure('cpu', 'CPU', 'cpu', count),
  figure('memory', 'memory', 'memory_bytes', bytes),
  figure('restarts', 'restarts', 'restarts', some),
  { key: 'exit', title: 'last exit', of: ['exit_reason'], by: (row) => row.exit_reason, cell: (row) => text(row.exit_reason) },
];

/** @param {any} place */
export const processColumns = (place) => [
  { key: 'name', title: 'process', of: ['name'], by: (row) => row.name, cell: (row) => link(place, 'logs', row.name, row.name) },
  STATE,
  PLACE,
  figure('pid', 'pid', 'pid', text),
  figure('cpu', 'CPU time', 'cpu_s', duration),
  figure('memory', 'memory', 'memory_bytes', bytes),
  figure('restarts', 'restarts', 'restarts', some),
  { key: 'exit', title: 'last exit', of: ['exit_reason', 'exit_detail'], by: (row) => row.exit_reason, cell: (row) => (row.exit_reason ? `${row.exit_reason}${row.exit_detail ? `: ${row.exit_detail}` : ''}` : '-') },
];
