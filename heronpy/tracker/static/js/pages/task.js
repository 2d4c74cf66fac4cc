/** One task: figures, log, exceptions. */

import { pathOf } from '../api.js';
import { figure, plain, taskColumns, when } from '../columns.js';
import { Evidence } from '../evidence.js';
import { INSTANCE, duration, taskName, text } from '../format.js';
import { TopologyFrame, useTopology } from '../head.js';
import { onPage } from '../keys.js';
import { LogView } from '../log_view.js';
import { Facts, Section, Table, Trouble } from '../parts.js';
import { Events, useEvents } from '../past.js';
import { to } from '../route.js';
import { html, useEffect, useGet } from '../ui.js';
import { Exceptions } from './exceptions.js';

/** @param {{route: any}} props */
export function TaskPage({ route }) {
  const { place, arg: instance } = route;
  const state = useTopology(place, true);
  const events = useEvents(place, state).events.filter((event) => event.subject === instance);
  // A request that this page could not fulfil is not passed on to the page of the next task.
  useEffect(() => () => {
    onPage.wanted = '';
  }, []);
  const found = INSTANCE.exec(instance);
  const component = found?.[1] ?? '';
  const number = Number(found?.[2] ?? 0);
  // After an update, or a restart on another host, the task has another container, so the name differs.
  const row = (state.snapshot?.tasks?.tasks ?? []).find((one) => one.instance_id === instance);
  const moved = (state.snapshot?.tasks?.tasks ?? []).find((one) => one.task_id === number && one.instance_id !== instance);
  const facts = row && [
    ...taskColumns(place).slice(1).map((column) => [column.title, column.cell(row), column.help]),
    ['pid', text(row.pid)],
    ['pending', text(row.pending)],
    ['last turn of the loop', row.silent_s === null ? '-' : `${duration(row.silent_s)} ago`],
    ['output at the last exit', text(row.exit_detail)],
  ];
  return html`<${TopologyFrame} route=${route} state=${state}>
    <h2 class="title"><a href=${to(place, 'component', component)}>${component || '-'}</a> / ${taskName(instance)} <span class="quiet">${instance}</span></h2>
    ${facts && html`<${Facts} items=${facts} />`}
    ${!row && state.snapshot?.tasks && html`<p class="flow warn" role="status">The topology has no task ${instance} now.${moved && html` Its task ${number} is <a href=${to(place, 'task', moved.instance_id)}>${moved.instance_id}</a>.`}</p>`}
    ${row && !state.snapshot.topology?.ended_at && html`<${Evidence} key=${instance} place=${place} process=${instance} cpu=${row.cpu} />`}
    <${Section} title="log"><${LogView} key=${instance} place=${place} process=${instance} follow=${state.status !== 'gone'} /><//>
    <${Exceptions} place=${place} query=${{ component, task: number || undefined }} />
    ${row && !state.snapshot.topology?.ended_at && state.status !== 'gone' && html`<${Slow} key=${instance} place=${place} query=${{ component, task: number || undefined }} />`}
    <${Events} events=${events} />
    <p><a href=${`${to(place, 'config')}?q=${encodeURIComponent(component)}`}>settings of ${component || 'the topology'}</a></p>
  <//>`;
}

/** Columns of slow tuples: calls to process() that took longer than heron.instance.slow_ms, with their values. */
const SLOW = [
  figure('took', 'took_s', duration),
  plain('at', 'at', when),
  { title: 'from', cell: (row) => html`${row.source} <span class="quiet">task ${row.source_task}</span>`, by: (row) => row.source },
  { title: 'value', cell: valueOf, by: (row) => row.value },
];

function valueOf(row) {
  if (row.value === null) return html`<span class="quiet">unknown: one of ${row.tuples} tuples</span>`;
  return html`<code>${row.value}</code>${row.tuples > 1 && html` <span class="quiet">the first of ${row.tuples} in one call</span>`}`;
}

/** @param {{place: any, query: Record<string, any>}} props */
function Slow({ place, query }) {
  const { data, problem } = useGet(pathOf(place, 'slow'), query, 5);
  const rows = (data?.tuples ?? []).map((row, number) => ({ ...row, number }));
  return html`<${Section} title="slow tuples">
    <${Trouble} problem=${problem} />
    ${data && html`<${Table} columns=${SLOW} rows=${rows} name=${(row) => row.number} caption="the slowest tuples of the last hour" empty="No call to process() took longer than heron.instance.slow_ms." />`}
  <//>`;
}
