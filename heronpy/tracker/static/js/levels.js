/** The severity of a figure, by the worst task. Each level has a colour, a word and a bar of this length. */

import { UNKNOWN, bytes, count, duration, latency, rate, share } from './format.js';

/** @typedef {{level: 0|1|2|3|4, part: number|null, word: string, shown: string}} Level  level 0: not known */

const UNKNOWN_LEVEL = { level: 0, part: null, word: 'unknown', shown: UNKNOWN };
const WORDS = ['unknown', 'low', 'medium', 'high', 'full'];

/** @param {number|null|undefined} part 0 to 1 @param {string} shown @returns {Level} */
function ofShare(part, shown) {
  if (part === null || part === undefined) return { ...UNKNOWN_LEVEL, shown };
  const level = part >= 0.9 ? 4 : part >= 0.7 ? 3 : part >= 0.4 ? 2 : 1;
  return { level, part: Math.min(1, part), word: WORDS[level], shown };
}

/** @param {number|null|undefined} number @param {string} what @returns {Level} */
function ofCount(number, what) {
  if (number === null || number === undefined) return UNKNOWN_LEVEL;
  return { level: number > 0 ? 4 : 1, part: number > 0 ? 1 : 0, word: number > 0 ? what : `no ${what}`, shown: count(number) };
}

/** @param {number|null} amount @param {number|null} limit */
const part = (amount, limit) => (amount === null || amount === undefined || !limit ? null : amount / limit);

/** The measures for colours: their title, and the level of a component or of a task (with its component). */
export const MEASURES = {
  busy: {
    title: 'busy',
    component: (row) => ofShare(row.busy_max ?? row.busy, share(row.busy_max ?? row.busy)),
    task: (row) => ofShare(row.busy, share(row.busy)),
  },
  blocked: {
    title: 'blocked',
    component: (row) => ofShare(row.blocked_max ?? row.blocked, share(row.blocked_max ?? row.blocked)),
    task: (row) => ofShare(row.blocked, share(row.blocked)),
  },
  queue: {
    title: 'queue',
    component: (row) => ofShare(part(row.queue_bytes_max, row.queue_bound_bytes), bytes(row.queue_bytes_max)),
    task: (row, of) => ofShare(part(row.queue_bytes, of?.queue_bound_bytes), bytes(row.queue_bytes)),
  },
  memory: {
    title: 'memory',
    component: (row) => ofShare(part(row.memory_bytes_max, row.memory_limit_bytes), bytes(row.memory_bytes_max)),
    task: (row, of) => ofShare(part(row.memory_bytes, of?.memory_limit_bytes), bytes(row.memory_bytes)),
  },
  fails: {
    title: 'fails',
    component: (row) => ofCount(row.failed_per_s === null && !row.dead_letters ? row.dead_letters : (row.failed_per_s ?? 0) + (row.dead_letters ?? 0), 'fails'),
    task: (row) => ofCount(row.failed_per_s, 'fails'),
  },
  restarts: {
    title: 'restarts',
    component: (row) => ofCount(row.restarts, 'restarts'),
    task: (row) => ofCount(row.restarts, 'restarts'),
  },
};

/** The words if the spouts have stopped: they emitted in the last minutes, or are held back, and emit nothing; else ''. @param {any} topology */
export function stopped({ emitted_per_s, recent_per_s, state, held }) {
  if (emitted_per_s !== 0 || state !== 'RUNNING') return '';
  const before = Math.max(0, ...recent_per_s);
  return before ? `stopped: 0/s, up to ${rate(before)} before` : held > 0.5 ? 'stopped: 0/s' : '';
}

/**
 * The p99 from emit to end. If no traced tuple has ended recently, the p99 is estimated from the queues: a new tuple waits as long as
 * the queues take at the present rates. If nothing moves, all queued tuples are older than a window in which nothing was emitted.
 * @param {any} topology @param {any} [load]
 */
export function endToEnd(topology, load) {
  if (topology.latency_p99_s !== null || topology.ended_at) return latency(topology.latency_p99_s);
  const queued = load?.components.filter((row) => row.queue_tuples > 0) ?? [];
  const takes = queued.reduce((sum, row) => sum + row.queue_tuples / row.executed_per_s, 0);
  if (takes >= 1 && takes < Infinity) return `≈ ${duration(takes)}`;
  if (queued.length && topology.emitted_per_s === 0 && load.window_s) return `> ${duration(load.window_s)}`;
  return takes >= 1 || topology.held > 0.05 ? 'none ended' : UNKNOWN;
}

/** @param {string} name @returns {typeof MEASURES.busy & {name: string}} */
export function measure(name) {
  const found = name in MEASURES ? name : 'busy';
  return { name: found, ...MEASURES[found] };
}
