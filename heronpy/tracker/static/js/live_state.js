/** The messages of a live stream, and the state after each. Pure. */

/**
 * @typedef {{event: string, id: string, data: string}} Message
 */

/** Makes messages of text that arrives in pieces; comments (`: ping`) are left out. */
export class Parser {
  #rest = '';

  /** @param {string} chunk @returns {Message[]} */
  feed(chunk) {
    this.#rest += chunk;
    const blocks = this.#rest.split('\n\n');
    this.#rest = blocks.pop() ?? '';
    return blocks.map(parsed).filter((message) => message.data !== '');
  }
}

/** @param {string} block @returns {Message} */
function parsed(block) {
  const message = { event: 'message', id: '', data: '' };
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':');
    if (colon <= 0) continue;
    const name = line.slice(0, colon);
    if (name in message) message[name] = line.slice(colon + 1).replace(/^ /, '');
  }
  return message;
}

/** The paths in a snapshot of the tables of a delta. */
const TABLES = {
  topologies: ['topologies'],
  components: ['load', 'components'],
  edges: ['load', 'edges'],
  tasks: ['tasks', 'tasks'],
  processes: ['tasks', 'processes'],
};
const PARTS = new Set(['load', 'tasks']);

/**
 * The snapshot after a delta. Unchanged rows are the same objects, so that their views are not rendered again.
 * @param {Record<string, any>} snapshot @param {{fields?: Record<string, any>, tables?: Record<string, any>}} delta
 */
export function applied(snapshot, delta) {
  const next = { ...snapshot };
  for (const part of ['topology', 'load', 'tasks']) if (next[part]) next[part] = { ...next[part] };
  for (const [path, value] of Object.entries(delta.fields ?? {})) {
    const [part, name] = path.split('.', 2);
    if (name !== undefined && PARTS.has(part)) next[part][name] = value;
    else if (path === 'silent_s') next.silent_s = value;
    else next.topology[path] = value;
  }
  for (const [table, columns] of Object.entries(delta.tables ?? {})) {
    const path = TABLES[table];
    if (path === undefined) continue;
    const holder = path.length === 2 ? next[path[0]] : next;
    const rows = [...holder[path.at(-1)]];
    const copied = new Set();
    for (const [column, [numbers, values]] of Object.entries(columns)) {
      values.forEach((value, position) => {
        const row = numbers === null ? position : numbers[position];
        if (!copied.has(row)) rows[row] = { ...rows[row] };
        copied.add(row);
        rows[row][column] = value;
      });
    }
    holder[path.at(-1)] = rows;
  }
  return next;
}

const EVENTS_MAX = 500;

/**
 * @typedef {{
 *   snapshot: Record<string, any>|null, events: any[], gone: string,
 *   status: 'opening'|'live'|'waiting'|'hidden'|'gone'|'refused', problem: any, since: number,
 * }} LiveState  `since`: when the status began, ms
 */

/** @returns {LiveState} */
export const initial = () => ({ snapshot: null, events: [], gone: '', status: 'opening', problem: null, since: 0 });

/** @param {LiveState} state @param {Message} message @returns {LiveState} */
export function after(state, message) {
  const body = JSON.parse(message.data);
  if (message.event === 'snapshot') return { ...state, snapshot: body };
  if (message.event === 'delta') {
    return state.snapshot ? { ...state, snapshot: applied(state.snapshot, body) } : state;
  }
  if (message.event === 'event') return { ...state, events: merged(state.events, body.events) };
  if (message.event === 'gone') return { ...state, gone: body.text };
  return state;
}

/** Events by number, the newest last; a repetition has a new number and replaces the event that it repeats. @param {any[]} old @param {any[]} more */
export function merged(old, more) {
  const found = new Map();
  for (const event of [...old, ...more]) {
    const origin = [event.kind, event.subject, event.reason, event.first_at].join('|');
    if (!(found.get(origin)?.number > event.number)) found.set(origin, event);
  }
  return [...found.values()].sort((one, other) => one.number - other.number).slice(-EVENTS_MAX);
}
