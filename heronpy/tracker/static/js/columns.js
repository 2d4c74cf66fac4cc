/** Columns of the tables that several pages show. */

import { bytes, count, duration, grouping, latency, of, rate, share, taskName, text } from './format.js';
import { State, When } from './parts.js';
import { to } from './route.js';
import { html } from './ui.js';

export const link = (place, page, arg, shown) => html`<a href=${to(place, page, arg)}>${shown}</a>`;
/** A count that should be 0. @param {number|null} value */
export const some = (value) => (value ? html`<b class="alarm">${count(value)}</b>` : count(value));

/** The column of a figure: one field of a row. @param {string} title @param {string} field @param {(value: any) => any} shown @param {string} [help] */
export const figure = (title, field, shown, help) => ({ title, num: true, help, of: [field], by: (row) => row[field], cell: (row) => shown(row[field]) });

/** The column of words: one field of a row. @param {string} title @param {string} field @param {(value: any) => any} shown */
export const plain = (title, field, shown) => ({ ...figure(title, field, shown), num: false });

/** A column that narrow windows leave out, because the page of the row has it, too. @param {any} column */
const less = (column) => ({ ...column, less: true });

/** The lost tuples that tasks have counted, and the sentence if more are lost in unknown number. @param {any} totals */
export const lost = ({ lost, lost_text }) => (/unknown/.test(lost_text) ? `${count(lost)} and ${lost_text}` : lost_text);

/** @param {number|null} at */
export const when = (at) => html`<${When} at=${at} />`;

/** A column with a link to a task. @param {any} place */
export const taskColumn = (place) => plain('task', 'instance_id', (instance) => link(place, 'task', instance, taskName(instance)));

/** A column with a link to a component. @param {any} place @param {string} title @param {string} field */
export const componentColumn = (place, title, field) => plain(title, field, (name) => link(place, 'component', name, name));

/** A column with the value of the worst task, and a link to the task. */
const worst = (place, title, field, instance, shown) => ({
  title, num: true, of: [field, instance], by: (row) => row[field],
  cell: (row) => (row[instance] ? html`${shown(row[field])} ${link(place, 'task', row[instance], taskName(row[instance]))}` : shown(row[field])),
});

/** Frames that a spout sends, or that a bolt receives. */
const FRAMES = [figure('frames', 'frames_per_s', rate), figure('per frame', 'tuples_per_frame', count)].map(less);

const IN_CODE = 'time in user code for one tuple';
/** The p99 may be only a lower bound: for a time above the highest bucket, or for a call that has not ended. */
const TIMES = [
  figure('p50', 'latency_p50_s', latency, IN_CODE),
  {
    ...figure('p99', 'latency_p99_s', latency, IN_CODE), of: undefined,
    cell: ({ latency_p99_s, latency_at_least, silent_s }) =>
      latency_p99_s === null && silent_s >= 10 ? `> ${duration(silent_s)}` : (latency_at_least ? '> ' : '') + (latency_at_least ? duration : latency)(latency_p99_s),
  },
];

/** @param {any} place */
export const componentColumns = (place) => [
  componentColumn(place, 'component', 'name'),
  plain('kind', 'kind', (kind) => html`<span class="num">${kind}</span>`),
  { title: 'up', num: true, of: ['up', 'tasks'], by: (row) => row.up - row.tasks, cell: (row) => (row.up < row.tasks ? html`<b class="alarm">${of(row.up, row.tasks)}</b>` : of(row.up, row.tasks)) },
  figure('in', 'executed_per_s', rate),
  figure('out', 'emitted_per_s', rate),
  less(figure('busy', 'busy', share, 'mean share of time in user code and in the runtime for it')),
  worst(place, 'busiest task', 'busy_max', 'busiest', share),
  figure('blocked', 'blocked', share, 'share of time waiting for room downstream'),
  less(figure('idle', 'idle', share)),
  less(figure('queue', 'queue_bytes', bytes)),
  worst(place, 'longest queue', 'queue_bytes_max', 'fullest', bytes),
  less(figure('pending', 'pending', count, 'neither acked nor failed')),
  less(figure('backlog', 'backlog_tuples', count)),
  ...TIMES,
  figure('CPU', 'cpu', count, 'cores'),
  figure('memory', 'memory_bytes', bytes),
  figure('restarts', 'restarts', some),
  figure('failed', 'failed_per_s', rate),
  ...FRAMES,
  figure('dead letters', 'dead_letters', some, 'since submit'),
  figure('lost', 'lost', some, 'counted by its tasks'),
];

/** The time window of the figures in a part of the snapshot; tasks have another one than components. @param {any} part */
export const over = (part) => part?.window_s > 0 && html`<p class="quiet">Over the last ${duration(Math.round(part.window_s))}.</p>`;

/** Columns of edges with their rates. @param {any} place */
export const edgeColumns = (place) => [
  componentColumn(place, 'from', 'source'),
  componentColumn(place, 'to', 'target'),
  plain('stream', 'stream', text),
  { title: 'grouping', of: ['grouping', 'fields'], by: grouping, cell: grouping },
  figure('emitted', 'rate', rate, 'tuples that the source emits, and that the target has queued or processes'),
];

const STATE = { title: 'state', of: ['state', 'error'], by: (row) => row.state, cell: (row) => html`<${State} state=${row.state} />${row.error && html` <span class="quiet">${row.error}</span>`}` };
const PLACE = { title: 'container', num: true, of: ['container', 'host'], by: (row) => row.container, cell: (row) => `c${row.container}${row.host ? ` ${row.host}` : ''}` };

/** The style of the row of a task; a task that has ended with its topology is not down. */
export const downMark = ({ up, state }) => (up || state === 'ENDED' ? '' : 'down');

/** @param {any} place */
export const taskColumns = (place) => [
  { title: 'task', of: ['instance_id', 'culprit'], by: (row) => `${row.component}-${String(row.task_id).padStart(9, '0')}`, cell: (row) => html`${row.culprit && html`<b class="alarm" title="holds the spouts back">! </b>`}${link(place, 'task', row.instance_id, taskName(row.instance_id))}` },
  STATE,
  PLACE,
  figure('in', 'executed_per_s', rate),
  figure('out', 'emitted_per_s', rate),
  figure('busy', 'busy', share),
  figure('blocked', 'blocked', share),
  figure('idle', 'idle', share),
  figure('queue', 'queue_bytes', bytes),
  ...TIMES,
  figure('CPU', 'cpu', count),
  ...FRAMES,
  figure('memory', 'memory_bytes', bytes),
  figure('restarts', 'restarts', some),
  plain('last exit', 'exit_reason', text),
];

/** @param {any} place */
export const processColumns = (place) => [
  plain('process', 'name', (name) => link(place, 'logs', name, name)),
  STATE,
  PLACE,
  figure('pid', 'pid', text),
  figure('CPU time', 'cpu_s', duration),
  figure('memory', 'memory_bytes', bytes),
  figure('restarts', 'restarts', some),
  { title: 'last exit', of: ['exit_reason', 'exit_detail'], by: (row) => row.exit_reason, cell: (row) => (row.exit_reason ? `${row.exit_reason}${row.exit_detail ? `: ${row.exit_detail}` : ''}` : '-') },
];
