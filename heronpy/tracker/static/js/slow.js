/** Slow tuples: the calls of process() above heron.instance.slow_ms, with their values. */

import { pathOf } from './api.js';
import { duration } from './format.js';
import { Section, Table, Trouble, When } from './parts.js';
import { html, useGet } from './ui.js';

const COLUMNS = [
  { key: 'took_s', title: 'took', num: true, cell: (row) => duration(row.took_s), by: (row) => row.took_s },
  { key: 'at', title: 'at', cell: (row) => html`<${When} at=${row.at} />`, by: (row) => row.at },
  { key: 'source', title: 'from', cell: (row) => html`${row.source} <span class="quiet">task ${row.source_task}</span>`, by: (row) => row.source },
  { key: 'value', title: 'value', cell: valueOf, by: (row) => row.value },
];

function valueOf(row) {
  if (row.value === null) return html`<span class="quiet">not known: one of ${row.tuples} tuples</span>`;
  return html`<code>${row.value}</code>${row.tuples > 1 && html` <span class="quiet">the first of ${row.tuples} in one call</span>`}`;
}

/** @param {{place: any, query: Record<string, any>}} props */
export function Slow({ place, query }) {
  const { data, problem } = useGet(pathOf(place, 'slow'), query, 5);
  const rows = (data?.tuples ?? []).map((row, number) => ({ ...row, number }));
  return html`<${Section} title="slow tuples">
    <${Trouble} problem=${problem} />
    ${data && html`<${Table} columns=${COLUMNS} rows=${rows} name=${(row) => row.number} caption="the slowest tuples of the last hour" empty="No call of process() took longer than heron.instance.slow_ms." />`}
  <//>`;
}
