/** Parts of several pages: tables, sentences, states, sparklines. */

import { UNKNOWN, count, duration, text, time } from './format.js';
import { Component, h, html, rarely, useClock, useEffect, useRef, useState } from './ui.js';

/** Colour, sign and word of each rank of urgency. */
const RANKS = [
  ['ok', '✓', 'ok'],
  ['info', '~', 'changing'],
  ['warn', '!', 'slow'],
  ['bad', '!!', 'bad'],
  ['bad', '✗', 'failed'],
];

/** @param {{rank: number}} props */
export function Rank({ rank }) {
  const [style, sign, word] = RANKS[Math.min(rank, RANKS.length - 1)];
  return html`<span class=${`rank ${style}`} role="img" aria-label=${word} title=${word}>${sign}</span>`;
}

const GOOD = new Set(['RUNNING', 'FINISHED', 'IN_SYNC']);
const CHANGING = new Set(['STARTING', 'NEW', 'STOPPED', 'QUEUED', 'STANDBY', 'LEAVING', 'drained', 'SYNCING', 'UNDOING', 'WAITING', 'PAUSED', 'UPDATING', 'FINISHING', 'EXHAUSTED', 'RESTORED', 'KILLING', 'KILLED', 'ENDED']);

/** A state as a badge. @param {{state: string}} props */
export function State({ state }) {
  const style = GOOD.has(state) ? 'ok' : CHANGING.has(state) ? 'info' : 'bad';
  return html`<span class=${`state ${style}`}>${state}</span>`;
}

/** The sentence of the doctor; `below` is shown under the next step. `row`: the keys j and k reach it. @param {{topology: any, below?: any, row?: boolean, children?: any}} props */
export function Sentence({ topology, below, row, children }) {
  const said = topology.sentence ?? (topology.cause || unsaid(topology));
  return html`<div class="sentence" data-row=${row || undefined}>
    <${Rank} rank=${topology.rank} />
    <p><strong>${said}</strong>${topology.next && html`<span class="next"><b>next</b> ${topology.next}</span>`}${below}</p>
    ${children}
  </div>`;
}

/** @param {any} topology */
const unsaid = (topology) =>
  topology.asked_at === null ? `${topology.state}: its topology master has not answered yet` : `${topology.state}: no findings yet`;

/** A problem that the tracker has reported. @param {{problem: any}} props */
export function Trouble({ problem }) {
  if (!problem) return null;
  const nearest = problem.nearest ? `; the nearest name is ${problem.nearest}` : '';
  return html`<p class="trouble" role="alert"><b>${problem.title}${nearest}</b>${problem.detail && html`<span>${problem.detail}</span>`}</p>`;
}

/** The state of a live stream that does not deliver. @param {{state: import('./live_state.js').LiveState}} props */
export function Flow({ state }) {
  const now = useClock(1);
  const silent = state.snapshot?.silent_s ?? 0;
  if (state.status === 'gone') {
    const { ended_at, sentence } = state.snapshot?.topology ?? {};
    return html`<p class="flow warn" role="status">${(ended_at && sentence) || state.gone}${ended_at && html` (<${When} at=${ended_at} />)`}; this page shows the last known state.</p>`;
  }
  if (state.status === 'waiting') {
    const ago = state.since ? ` for ${duration(Math.max(0, Math.round((now - state.since) / 1000)))}` : '';
    return html`<p class="flow bad" role="status">No update${ago}: ${state.problem?.title}${state.problem?.detail && ` (${state.problem.detail})`}. Trying again.</p>`;
  }
  if (silent > 10 && state.snapshot.topology?.state !== 'KILLING') {
    return html`<p class="flow bad" role="status">The topology master has not answered for ${duration(Math.round(silent))}; the figures are older.</p>`;
  }
  return null;
}

/** @typedef {{title: string, num?: boolean, less?: boolean, help?: string, cell: (row: any) => any, by?: (row: any) => any, of?: string[]}} Column `of`: all fields of the row that the cell shows; `less`: left out in a narrow window */

const STEP = 50;

/**
 * A table that sorts by a click on a title. It shows fifty rows at first, because a change of one cell lays out all rows again.
 * @param {{columns: Column[], rows: any[], name: (row: any) => string, caption: string, order?: string, down?: boolean, mark?: (row: any) => string, onHover?: (row: any) => void, empty?: string}} props
 */
export function Table({ columns, rows, name, caption, order = '', down = false, mark, onHover, empty = 'No entries.' }) {
  const [sorting, setSorting] = useState({ key: order, down });
  const [limit, setLimit] = useState(STEP);
  const by = columns.find((column) => column.title === sorting.key)?.by;
  const sorted = by ? [...rows].sort((one, other) => (sorting.down ? -1 : 1) * compared(by(one), by(other))) : rows;
  if (!rows.length) return html`<p class="quiet">${empty}</p>`;
  const title = (column) =>
    column.by
      ? html`<button class="sort" onClick=${() => setSorting({ key: column.title, down: sorting.key === column.title ? !sorting.down : Boolean(column.num) })}>${column.title}<span aria-hidden="true">${sorting.key === column.title ? (sorting.down ? ' ▾' : ' ▴') : ''}</span></button>`
      : column.title;
  const sortOf = (column) => (column.by && sorting.key === column.title ? (sorting.down ? 'descending' : 'ascending') : undefined);
  return html`<div class="scroll" tabindex="0" role="group" aria-label=${caption}>
    <table>
      <caption class="unseen">${caption}</caption>
      <thead><tr>${columns.map((column) => html`<th key=${column.title} scope="col" class=${styleOf(column)} title=${column.help} aria-sort=${sortOf(column)}>${title(column)}</th>`)}</tr></thead>
      <tbody>${sorted.slice(0, limit).map((row) => h(Row, { key: name(row), row, columns, style: mark?.(row) ?? '', onHover }))}</tbody>
    </table>
    ${sorted.length > limit && html`<button onClick=${() => setLimit(limit + STEP)}>show ${Math.min(STEP, sorted.length - limit)} of ${sorted.length - limit} more</button>`}
  </div>`;
}

/** The cells of a row. A cell is rendered again only if one of its fields (`of` of the column) has changed. */
class Cells extends Component {
  render({ row, columns, style, onHover }) {
    const before = this.columns === columns ? this.row : null;
    this.cells = columns.map((column, number) => (before && column.of?.every((field) => before[field] === row[field]) ? this.cells[number] : cell(column, number, row)));
    [this.row, this.columns] = [row, columns];
    return h('tr', {
      'data-row': true,
      class: style,
      ...(onHover && { onMouseEnter: () => onHover(row), onMouseLeave: () => onHover(null), onfocusin: () => onHover(row) }),
    }, this.cells);
  }
}

/** @param {Column} column */
const styleOf = ({ num, less }) => (num ? 'num ' : '') + (less ? 'less' : '');

/** Made without a template, because a page has thousands of cells. @param {Column} column @param {number} number @param {any} row */
const cell = (column, number, row) => (number === 0 ? h('th', { scope: 'row', key: column.title, class: styleOf(column) }, column.cell(row)) : h('td', { key: column.title, class: styleOf(column) }, column.cell(row)));

/** Rendered only if a delta has changed the row, and seldom if the row is out of sight. */
const Row = rarely(Cells, ['columns', 'style'], ['row']);

/** Compares two values; unknown values are the smallest. @param {any} one @param {any} other */
function compared(one, other) {
  if (one === other) return 0;
  if (one === null || one === undefined) return -1;
  if (other === null || other === undefined) return 1;
  return typeof one === 'string' ? one.localeCompare(other, undefined, { numeric: true }) : one - other;
}

/** A line over the last minutes; the text next to it has the figure. @param {{values: (number|null)[], label: string}} props */
export function Spark({ values, label }) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return UNKNOWN;
  const top = Math.max(...known) || 1;
  const step = 80 / Math.max(1, values.length - 1);
  let drawing = '';
  let pen = 'M';
  values.forEach((value, number) => {
    if (value === null) pen = 'M';
    else {
      drawing += `${pen}${(number * step).toFixed(1)} ${(17 - (15 * value) / top).toFixed(1)}`;
      pen = 'L';
    }
  });
  return html`<svg class="spark" viewBox="0 0 80 18" width="80" height="18" role="img" aria-label=${label}><path d=${drawing} /></svg>`;
}

/** Number of characters of a text that are shown initially. */
const LETTERS = 2000;

function Long({ text }) {
  const [whole, setWhole] = useState(false);
  return whole ? text : html`${text.slice(0, LETTERS)}<button onClick=${() => setWhole(true)}>… ${count(text.length - LETTERS)} more characters</button>`;
}

/** A text; a click shows the rest of a long one. @param {string} text */
export const long = (text) => (text.length > 1.1 * LETTERS ? html`<${Long} key=${text} text=${text} />` : text);

/** Name and value pairs. @param {{items: [string, any, string?][], wide?: boolean}} props */
export function Facts({ items, wide }) {
  return html`<dl class=${wide ? 'facts wide' : 'facts'}>${items.map(([name, value, help]) => html`<div key=${name} title=${help}><dt>${name}</dt><dd>${value ?? UNKNOWN}</dd></div>`)}</dl>`;
}

/** A time of day. @param {{at: number|null}} props */
export function When({ at }) {
  return at ? html`<time datetime=${new Date(at * 1000).toISOString()}>${time(at)}</time>` : UNKNOWN;
}

/** The field of a filter. @param {{value: string, onChange: (value: string) => void, label: string}} props */
export function Filter({ value, onChange, label }) {
  return html`<input type="search" data-filter value=${value} placeholder=${`${label}  ( / )`} aria-label=${label} onInput=${(event) => onChange(event.target.value)} />`;
}

/** Whether all words of the filter are in the text. @param {string} filter @param {...any} texts */
export function fits(filter, ...texts) {
  if (!filter) return true;
  const whole = texts.map(text).join(' ').toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => whole.includes(word));
}

/** An open dialog; `buttons` come before the one that closes it. @param {{title: string, onClose: () => void, buttons?: any, children: any}} props */
export function Dialog({ title, onClose, buttons, children }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`<dialog ref=${dialog} aria-label=${title} onClose=${onClose}>
    <h2>${title}</h2>
    ${children}
    <div class="buttons">${buttons}<button onClick=${() => dialog.current.close()}>close</button></div>
  </dialog>`;
}

/** A section with a heading. @param {{title: string, children: any, aside?: any}} props */
export function Section({ title, children, aside }) {
  return html`<section aria-label=${title}><header><h2>${title}</h2>${aside}</header>${children}</section>`;
}
