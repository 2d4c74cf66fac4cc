/** All topologies, the worst first. */

import { figure, lost, plain, when } from '../columns.js';
import { count, duration, latency, of, rate, share, taskName, text } from '../format.js';
import { endToEnd, stopped } from '../levels.js';
import { Filter, Flow, Rank, Section, Spark, State, Table, Trouble, fits } from '../parts.js';
import { to } from '../route.js';
import { html, useGet, useLive, useState } from '../ui.js';
import { Jobs, Pools } from './job.js';

/** A link to the topology, and its cluster, role and environ. @param {any} row @param {string} name in the address */
const named = (row, name) => html`<a href=${to({ ...row, name })}>${row.name}</a><span class="where">${row.cluster}/<wbr />${row.role}/<wbr />${row.environ}</span>`;

/** @param {string} filter @param {any} row */
const wanted = (filter, row) => fits(filter, row.name, row.cluster, row.role, row.environ, row.state, row.verdict, row.sentence);

/** A sum since submit. @param {string} title @param {string} name */
const total = (title, name) => ({ ...figure(title, 'totals', (totals) => count(totals?.[name])), by: (row) => row.totals?.[name] });

const COLUMNS = [
  {
    title: 'topology', by: (row) => row.name,
    cell: (row) => html`<${Rank} rank=${row.rank} /> ${named(row, row.name)}`,
  },
  plain('state', 'state', (state) => html`<${State} state=${state} />`),
  { title: 'doctor', by: (row) => row.rank, num: false, cell: (row) => html`<a href=${to(row, 'doctor')}>${row.sentence ?? (row.cause || row.state)}</a>${row.task && html`<span class="where">see <a href=${to(row, 'task', row.task)}>${taskName(row.task)}</a></span>`}` },
  { title: 'last minutes', cell: (row) => html`<${Spark} values=${row.recent_per_s} label=${`rate of ${row.name} over the last minutes`} />` },
  { ...figure('emitted', 'emitted_per_s', rate), of: undefined, cell: (row) => (stopped(row) ? html`<b class=${row.calm ? '' : 'alarm'} title=${stopped(row)}>stopped</b>` : rate(row.emitted_per_s)) },
  { ...figure('p99', 'latency_p99_s', latency, 'from the emit of a traced tuple to the end of its processing'), of: undefined, cell: (row) => endToEnd(row) },
  figure('held', 'held', share, 'share of the time in which the spouts were held back'),
  { title: 'tasks up', num: true, by: (row) => row.tasks_up, cell: (row) => of(row.tasks_up, row.tasks) },
  figure('up', 'uptime_s', duration),
];

const NAME = COLUMNS[0];
const ENDED = [
  { ...NAME, cell: (row) => named(row, row.id) },
  COLUMNS[1],
  { title: 'doctor', cell: (row) => html`<a href=${to({ ...row, name: row.id }, 'doctor')}>${row.sentence ?? row.cause}</a>` },
  plain('ended', 'ended_at', when),
  figure('ran', 'uptime_s', duration),
  plain('mode', 'mode', (mode) => html`<span class="num">${text(mode)}</span>`),
  figure('tasks', 'tasks', count),
  total('dead letters', 'dead_letters'),
  { ...total('lost', 'lost'), cell: (row) => text(row.totals && lost(row.totals)) },
];

/** @returns {any} */
export function ListPage() {
  const [filter, setFilter] = useState('');
  const state = useLive({});
  // The stream does not list the clusters. This answer does, including the clusters that cannot be read.
  const asked = useGet('topologies', {}, 10);
  const past = useGet('history', {}, 10).data;
  const ended = (past?.topologies ?? []).filter((row) => wanted(filter, row));
  const rows = state.snapshot?.topologies ?? asked.data?.topologies ?? null;
  const worst = (one, other) => other.rank - one.rank || one.name.localeCompare(other.name);
  const shown = (rows ?? []).filter((row) => wanted(filter, row)).sort(worst);
  return html`<main>
    <header class="head"><h1>Topologies</h1><${Filter} value=${filter} onChange=${setFilter} label="filter topologies" /></header>
    <${Flow} state=${state} />
    <${Trouble} problem=${state.status === 'refused' ? state.problem : asked.problem} />
    ${Object.entries(asked.data?.unreachable ?? {}).map(([name, text]) => html`<p class="trouble" role="alert" key=${name}><b>cluster ${name} cannot be read</b><span>${text}</span></p>`)}
    ${rows === null ? html`<p class="quiet">Loading …</p>` : html`<${Table} columns=${COLUMNS} rows=${shown} name=${(row) => row.id} caption="topologies, the worst first"
      empty=${rows.length ? 'No topology matches the filter.' : `No topology runs in ${(asked.data?.clusters ?? []).join(', ') || 'the clusters of this tracker'}; heron submit starts a topology.`} />`}
    <${Jobs} filter=${filter} /><${Pools} />
    ${ended.length > 0 && html`<${Section} title="ended"><${Table} columns=${ENDED} rows=${ended} name=${(row) => row.id} caption="topologies that have ended" /><//>`}
  </main>`;
}
