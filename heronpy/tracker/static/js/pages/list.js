/** All topologies, the worst first. */

import { count, duration, of, rate, share, text } from '../format.js';
import { Filter, Flow, Rank, Section, Spark, State, Table, Trouble, When, fits } from '../parts.js';
import { to } from '../route.js';
import { html, useGet, useLive, useState } from '../ui.js';

const place = ({ cluster, role, environ, name }) => ({ cluster, role, environ, name });

const COLUMNS = [
  {
    key: 'name', title: 'topology', by: (row) => row.name,
    cell: (row) => html`<${Rank} rank=${row.rank} /> <a href=${to(place(row))}>${row.name}</a><span class="where">${row.cluster}/${row.role}/${row.environ}</span>`,
  },
  { key: 'state', title: 'state', by: (row) => row.state, cell: (row) => html`<${State} state=${row.state} />` },
  { key: 'says', title: 'doctor', by: (row) => row.rank, num: false, cell: (row) => html`<span class="says">${row.sentence ?? row.cause ?? ''}</span>` },
  { key: 'spark', title: 'last minutes', cell: (row) => html`<${Spark} values=${row.recent_per_s} label=${`rate of ${row.name} over the last minutes`} />` },
  { key: 'rate', title: 'emitted', num: true, by: (row) => row.emitted_per_s, cell: (row) => rate(row.emitted_per_s) },
  { key: 'p99', title: 'p99', num: true, by: (row) => row.latency_p99_s, cell: (row) => duration(row.latency_p99_s), help: 'from the emit of a tuple to the end of its processing' },
  { key: 'held', title: 'held', num: true, by: (row) => row.held, cell: (row) => share(row.held), help: 'share of the time in which the spouts were held back' },
  { key: 'tasks', title: 'tasks up', num: true, by: (row) => row.tasks_up, cell: (row) => of(row.tasks_up, row.tasks) },
  { key: 'up', title: 'up', num: true, by: (row) => row.uptime_s, cell: (row) => duration(row.uptime_s) },
];

const NAME = COLUMNS[0];
const ENDED = [
  { ...NAME, cell: (row) => html`<a href=${to({ ...row, name: row.id })}>${row.name}</a><span class="where">${row.cluster}/${row.role}/${row.environ}</span>` },
  COLUMNS[1],
  { key: 'at', title: 'ended', by: (row) => row.ended_at, cell: (row) => html`<${When} at=${row.ended_at} />` },
  { key: 'ran', title: 'ran', num: true, by: (row) => row.uptime_s, cell: (row) => duration(row.uptime_s) },
  { key: 'mode', title: 'mode', by: (row) => row.mode, cell: (row) => text(row.mode) },
  { key: 'tasks', title: 'tasks', num: true, by: (row) => row.tasks, cell: (row) => count(row.tasks) },
  { key: 'letters', title: 'given up', num: true, by: (row) => row.totals?.dead_letters, cell: (row) => count(row.totals?.dead_letters) },
  { key: 'lost', title: 'lost', num: true, by: (row) => row.totals?.lost, cell: (row) => count(row.totals?.lost) },
];

/** @returns {any} */
export function ListPage() {
  const [filter, setFilter] = useState('');
  const state = useLive({});
  // The stream says nothing of clusters, and only this says which cannot be read.
  const asked = useGet('topologies', {}, 10);
  const past = useGet('history', {}, 10).data;
  const ended = (past?.topologies ?? []).filter((row) => fits(filter, row.name, row.cluster, row.role, row.environ, row.state));
  const rows = state.snapshot?.topologies ?? asked.data?.topologies ?? null;
  const worst = (one, other) => other.rank - one.rank || one.name.localeCompare(other.name);
  const shown = (rows ?? []).filter((row) => fits(filter, row.name, row.cluster, row.role, row.environ, row.state, row.verdict, row.sentence)).sort(worst);
  return html`<main>
    <header class="head"><h1>Topologies</h1><${Filter} value=${filter} onChange=${setFilter} label="filter topologies" /></header>
    <${Flow} state=${state} />
    <${Trouble} problem=${state.status === 'refused' ? state.problem : asked.problem} />
    ${Object.entries(asked.data?.unreachable ?? {}).map(([name, text]) => html`<p class="trouble" role="alert" key=${name}><b>cluster ${name} cannot be read</b><span>${text}</span></p>`)}
    ${rows === null ? html`<p class="quiet">Asking the tracker …</p>` : html`<${Table} columns=${COLUMNS} rows=${shown} name=${(row) => row.id} caption="topologies, the worst first"
      empty=${rows.length ? 'No topology fits the filter.' : `Nothing runs in ${(asked.data?.clusters ?? []).join(', ') || 'the clusters of this tracker'}; heron submit starts a topology.`} />`}
    ${past?.trouble && html`<p class="trouble" role="alert"><b>${past.trouble}</b></p>`}
    ${ended.length > 0 && html`<${Section} title="ended"><${Table} columns=${ENDED} rows=${ended} name=${(row) => row.id} caption="topologies that have ended" /><//>`}
  </main>`;
}
