/** Columns of the tables that several pages show. */

import { bytes, count, duration, grouping, of, rate, share, taskName, text } from './format.js';
import { State } from './parts.js';
import { to } from './route.js';
import { html } from './ui.js';

const link = (place, page, arg, shown) => html`<a href=${to(place, page, arg)}>${shown}</a>`;
const worst = (place, value, instance) => (instance ? html`${value} ${link(place, 'task', instance, taskName(instance))}` : value);
const some = (value) => (value ? html`<b class="alarm">${count(value)}</b>` : count(value));

/** @param {any} place */
export const componentColumns = (place) => [
  { key: 'name', title: 'component', by: (row) => row.name, cell: (row) => link(place, 'component', row.name, row.name) },
  { key: 'kind', title: 'kind', by: (row) => row.kind, cell: (row) => html`<span class="num">${row.kind}</span>` },
  { key: 'up', title: 'up', num: true, by: (row) => row.up - row.tasks, cell: (row) => (row.up < row.tasks ? html`<b class="alarm">${of(row.up, row.tasks)}</b>` : of(row.up, row.tasks)) },
  { key: 'in', title: 'in', num: true, by: (row) => row.executed_per_s, cell: (row) => rate(row.executed_per_s) },
  { key: 'out', title: 'out', num: true, by: (row) => row.emitted_per_s, cell: (row) => rate(row.emitted_per_s) },
  { key: 'busy', title: 'busy', num: true, by: (row) => row.busy, cell: (row) => share(row.busy), help: 'share of time of the mean task, in user code and the work for it' },
  { key: 'busiest', title: 'busiest task', num: true, by: (row) => row.busy_max, cell: (row) => worst(place, share(row.busy_max), row.busiest) },
  { key: 'blocked', title: 'blocked', num: true, by: (row) => row.blocked, cell: (row) => share(row.blocked), help: 'share of time that it waits for room behind it' },
  { key: 'idle', title: 'idle', num: true, by: (row) => row.idle, cell: (row) => share(row.idle) },
  { key: 'queue', title: 'queue', num: true, by: (row) => row.queue_bytes, cell: (row) => bytes(row.queue_bytes) },
  { key: 'fullest', title: 'longest queue', num: true, by: (row) => row.queue_bytes_max, cell: (row) => worst(place, bytes(row.queue_bytes_max), row.fullest) },
  { key: 'pending', title: 'pending', num: true, by: (row) => row.pending, cell: (row) => count(row.pending), help: 'emitted and neither acked nor failed' },
  { key: 'p50', title: 'p50', num: true, by: (row) => row.latency_p50_s, cell: (row) => duration(row.latency_p50_s), help: 'time in user code for one tuple' },
  { key: 'p99', title: 'p99', num: true, by: (row) => row.latency_p99_s, cell: (row) => duration(row.latency_p99_s), help: 'time in user code for one tuple' },
  { key: 'cpu', title: 'CPU', num: true, by: (row) => row.cpu, cell: (row) => count(row.cpu), help: 'cores, all tasks' },
  { key: 'memory', title: 'memory', num: true, by: (row) => row.memory_bytes, cell: (row) => bytes(row.memory_bytes) },
  { key: 'restarts', title: 'restarts', num: true, by: (row) => row.restarts, cell: (row) => some(row.restarts) },
  { key: 'failed', title: 'failed', num: true, by: (row) => row.failed_per_s, cell: (row) => rate(row.failed_per_s) },
  { key: 'letters', title: 'given up', num: true, by: (row) => row.dead_letters, cell: (row) => some(row.dead_letters), help: 'dead letters since submit' },
  { key: 'lost', title: 'lost', num: true, by: (row) => row.lost, cell: (row) => some(row.lost) },
];

/** @param {any} place @param {Map<string, number|null>} rates */
export const edgeColumns = (place, rates) => [
  { key: 'from', title: 'from', by: (row) => row.source, cell: (row) => link(place, 'component', row.source, row.source) },
  { key: 'to', title: 'to', by: (row) => row.target, cell: (row) => link(place, 'component', row.target, row.target) },
  { key: 'stream', title: 'stream', by: (row) => row.stream, cell: (row) => text(row.stream) },
  { key: 'grouping', title: 'grouping', by: grouping, cell: grouping },
  { key: 'rate', title: 'rate', num: true, by: (row) => rates.get(row.id), cell: (row) => rate(rates.get(row.id)) },
];

/** @param {any} place */
export const taskColumns = (place) => [
  { key: 'name', title: 'task', by: (row) => `${row.component}-${String(row.task_id).padStart(9, '0')}`, cell: (row) => html`${row.culprit && html`<b class="alarm" title="holds the spouts back">! </b>`}${link(place, 'task', row.instance_id, taskName(row.instance_id))}` },
  { key: 'state', title: 'state', by: (row) => row.state, cell: (row) => html`<${State} state=${row.state} />${row.error && html` <span class="says">${row.error}</span>`}` },
  { key: 'place', title: 'container', num: true, by: (row) => row.container, cell: (row) => `c${row.container}${row.host ? ` ${row.host}` : ''}` },
  { key: 'in', title: 'in', num: true, by: (row) => row.executed_per_s, cell: (row) => rate(row.executed_per_s) },
  { key: 'out', title: 'out', num: true, by: (row) => row.emitted_per_s, cell: (row) => rate(row.emitted_per_s) },
  { key: 'busy', title: 'busy', num: true, by: (row) => row.busy, cell: (row) => share(row.busy) },
  { key: 'blocked', title: 'blocked', num: true, by: (row) => row.blocked, cell: (row) => share(row.blocked) },
  { key: 'idle', title: 'idle', num: true, by: (row) => row.idle, cell: (row) => share(row.idle) },
  { key: 'queue', title: 'queue', num: true, by: (row) => row.queue_bytes, cell: (row) => bytes(row.queue_bytes) },
  { key: 'p50', title: 'p50', num: true, by: (row) => row.latency_p50_s, cell: (row) => duration(row.latency_p50_s) },
  { key: 'p99', title: 'p99', num: true, by: (row) => row.latency_p99_s, cell: (row) => duration(row.latency_p99_s) },
  { key: 'cpu', title: 'CPU', num: true, by: (row) => row.cpu, cell: (row) => count(row.cpu) },
  { key: 'memory', title: 'memory', num: true, by: (row) => row.memory_bytes, cell: (row) => bytes(row.memory_bytes) },
  { key: 'restarts', title: 'restarts', num: true, by: (row) => row.restarts, cell: (row) => some(row.restarts) },
  { key: 'exit', title: 'last exit', by: (row) => row.exit_reason, cell: (row) => text(row.exit_reason) },
];

/** @param {any} place */
export const processColumns = (place) => [
  { key: 'name', title: 'process', by: (row) => row.name, cell: (row) => link(place, 'logs', row.name, row.name) },
  { key: 'state', title: 'state', by: (row) => row.state, cell: (row) => html`<${State} state=${row.state} />` },
  { key: 'place', title: 'container', num: true, by: (row) => row.container, cell: (row) => `c${row.container}${row.host ? ` ${row.host}` : ''}` },
  { key: 'pid', title: 'pid', num: true, by: (row) => row.pid, cell: (row) => text(row.pid) },
  { key: 'cpu', title: 'CPU time', num: true, by: (row) => row.cpu_s, cell: (row) => duration(row.cpu_s) },
  { key: 'memory', title: 'memory', num: true, by: (row) => row.memory_bytes, cell: (row) => bytes(row.memory_bytes) },
  { key: 'restarts', title: 'restarts', num: true, by: (row) => row.restarts, cell: (row) => some(row.restarts) },
  { key: 'exit', title: 'last exit', by: (row) => row.exit_reason, cell: (row) => (row.exit_reason ? `${row.exit_reason}${row.exit_detail ? `: ${row.exit_detail}` : ''}` : '-') },
];
