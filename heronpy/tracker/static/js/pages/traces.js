/** Traces: the time of sampled tuples in each hop, and the calls of the slowest tuples. */

import { pathOf } from '../api.js';
import { figure, taskColumn } from '../columns.js';
import { count, duration, taskName } from '../format.js';
import { TopologyFrame, useTopology } from '../head.js';
import { Facts, Section, Table, Trouble, When } from '../parts.js';
import { replaceQuery, to } from '../route.js';
import { html, useGet } from '../ui.js';

const SHOWN = 30;
/** The letter of each hop in its bar, and its meaning. */
const HOPS = {
  batch: ['b', "in the sender's buffer"],
  queue: ['q', 'waits for credit'],
  wire: ['w', 'to the next stream manager'],
  'in-queue': ['i', 'until the call begins'],
  process: ['P', 'in user code'],
  ack: ['a', 'until the spout receives the ack'],
};
const ENDS = { held: 'held here, or filtered out', joined: 'not followed: it shared a frame with another traced tuple', acked: 'acked', failed: 'failed' };
const LONGER = [0, 10, 100, 1000, 10000];

const hopColumns = [
  { title: 'from, to', by: (row) => `${row.source} ${row.target}`, cell: (row) => html`${row.source || 'spout'} → ${row.target}` },
  { title: 'hop', by: (row) => row.hop, cell: (row) => html`<span title=${HOPS[row.hop]?.[1]}>${row.hop}${row.error_s > 0 && ` ± ${duration(row.error_s)}`}</span>` },
  figure('traced', 'count', count),
  figure('p50', 'p50_s', duration),
  figure('p99', 'p99_s', duration),
  figure('max', 'max_s', duration),
];

const spanColumns = (place) => [
  taskColumn(place),
  figure('begins', 'start_s', duration),
  ...Object.keys(HOPS).map((hop) => ({ title: hop, num: true, by: (row) => sumOf(row, hop), cell: (row) => duration(sumOf(row, hop)), help: HOPS[hop][1] })),
  { title: 'then', by: (row) => row.end, cell: (row) => [ENDS[row.end], wireNote(row)].filter(Boolean).join('; ') || '-' },
];

/** A note if the times between hosts of a call are not exact. @param {any} row */
const wireNote = (row) => row.exact ? '' : `the wire between hosts is ${row.error_s === null ? 'unknown' : `± ${duration(row.error_s)}`}`;

/** Seconds of a hop, which may have several parts; null without a part. */
function sumOf(span, hop) {
  const parts = span.parts.filter((part) => part.hop === hop);
  return parts.length ? parts.reduce((sum, part) => sum + part.took_s, 0) : null;
}

const endOf = (span) => span.start_s + span.parts.reduce((sum, part) => sum + part.took_s, 0);

/** A bar for each part of each call on one time line; the table below has the same figures. */
function Waterfall({ trace }) {
  const [width, names, row] = [1000, 180, 22];
  const total = Math.max(...trace.spans.map(endOf)) || 1;
  const long = (seconds) => (seconds / total) * (width - names);
  return html`<svg class="waterfall" viewBox=${`0 0 ${width} ${row * trace.spans.length}`} role="img" aria-label=${`the calls of the trace over ${duration(total)}; the table below has the same figures`}>
    ${trace.spans.map((span, number) => {
      let from = span.start_s;
      const name = html`<text class="name" x=${names - 8} y=${number * row + row - 7} text-anchor="end">${taskName(span.instance_id).slice(-24)}</text>`;
      return html`<g key=${span.number}>${name}${span.parts.map((part, index) => {
        const left = names + long(from);
        from += part.took_s;
        const wide = Math.max(1, long(part.took_s));
        return html`<g key=${index}><rect class=${`hop ${part.hop}`} x=${left} y=${number * row + 2} width=${wide} height=${row - 4}><title>${`${taskName(span.instance_id)}: ${part.hop} ${duration(part.took_s)}`}</title></rect>
          ${wide > 14 && html`<text x=${left + 4} y=${number * row + row - 7}>${HOPS[part.hop]?.[0] ?? '?'}</text>`}</g>`;
      })}</g>`;
    })}
  </svg>`;
}

function TraceView({ place, trace, open }) {
  return html`<details class="exception" data-row open=${open}>
    <summary><b>${duration(trace.took_s)}</b> <${When} at=${trace.at} /> <span class="quiet">${trace.spans.length} calls, trace ${trace.id}</span></summary>
    <${Waterfall} trace=${trace} />
    <p class="quiet">${Object.entries(HOPS).map(([hop, [letter, help]], number) => html`${number ? ', ' : ''}<b>${letter}</b> ${hop}: ${help}`)}</p>
    <${Table} columns=${spanColumns(place)} rows=${trace.spans} name=${(span) => span.number} caption=${`calls of trace ${trace.id}`} />
  </details>`;
}

/** @param {{route: any}} props */
export function TracesPage({ route }) {
  const { place, query } = route;
  const state = useTopology(place);
  const least = Number(query.min_ms ?? 0) || 0;
  const { data, problem } = useGet(pathOf(place, 'traces'), { limit: SHOWN, min_ms: least || undefined }, 5);
  const choose = html`<label>at least <select value=${String(least)} onChange=${(event) => replaceQuery(route, { min_ms: event.target.value === '0' ? '' : event.target.value })}>
    ${[...new Set([...LONGER, least])].sort((one, other) => one - other).map((each) => html`<option key=${each} value=${String(each)}>${each ? duration(each / 1000) : 'any time'}</option>`)}</select></label>`;
  return html`<${TopologyFrame} route=${route} state=${state}>
    <${Section} title="traces" aside=${choose}>
      <${Trouble} problem=${problem} />
      ${data && html`<${Facts} items=${[['tuples', count(data.matching)], ['p50', duration(data.p50_s), 'from next_tuple to the end of the last call'], ['p99', duration(data.p99_s), 'from next_tuple to the end of the last call'], ['kept', count(data.kept)], ['in progress', count(data.under_way), 'not finished: their durations are lower bounds'], ...(data.discarded ? [['calls given up', count(data.discarded)]] : [])]} />`}
      ${data && data.matching === 0 && html`<p class="quiet">No traced tuple${least ? ' took that long' : ' has been fully processed yet'}; heron.trace.per_s sets the rate of traces, and heron trace temporarily raises it.</p>`}
    <//>
    ${data && data.hops.length > 0 && html`<${Section} title="hops"><${Table} columns=${hopColumns} rows=${data.hops} name=${(row) => `${row.source}>${row.target}/${row.hop}`} caption="hops of all traces" /><//>`}
    ${data && data.traces.length > 0 && html`<${Section} title="the slowest">${data.traces.map((trace, number) => html`<${TraceView} key=${trace.id} place=${place} trace=${trace} open=${number === 0} />`)}<//>`}
  <//>`;
}
