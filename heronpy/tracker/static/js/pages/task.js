/** One task: figures, log, exceptions. */

import { taskColumns } from '../columns.js';
import { Evidence } from '../evidence.js';
import { duration, taskName, text } from '../format.js';
import { TopologyFrame } from '../head.js';
import { LogView } from '../log_view.js';
import { Facts, Section } from '../parts.js';
import { Events, useEvents } from '../past.js';
import { to } from '../route.js';
import { Slow } from '../slow.js';
import { html } from '../ui.js';
import { Exceptions } from './exceptions.js';
import { useTopology } from './topology.js';

/** @param {{route: any}} props */
export function TaskPage({ route }) {
  const { place, arg: instance } = route;
  const state = useTopology(place, true);
  const events = useEvents(place, state).filter((event) => event.subject === instance);
  const found = /^container_\d+_(.+)_(\d+)$/.exec(instance);
  const component = found?.[1] ?? '';
  const number = Number(found?.[2] ?? 0);
  // After an update or restart elsewhere the task has another container, so another name.
  const row = (state.snapshot?.tasks?.tasks ?? []).find((one) => one.instance_id === instance);
  const moved = (state.snapshot?.tasks?.tasks ?? []).find((one) => one.task_id === number && one.instance_id !== instance);
  const facts = row && [
    ...taskColumns(place).slice(1).map((column) => [column.title, column.cell(row), column.help]),
    ['pid', text(row.pid)],
    ['pending', text(row.pending)],
    ['last turn of its loop', row.silent_s === null ? '-' : `${duration(row.silent_s)} ago`],
    ['said at its last exit', text(row.exit_detail)],
  ];
  return html`<${TopologyFrame} route=${route} state=${state}>
    <h2 class="title"><a href=${to(place, 'component', component)}>${component || '-'}</a> / ${taskName(instance)} <span class="quiet">${instance}</span></h2>
    ${facts && html`<${Facts} items=${facts} />`}
    ${!row && state.snapshot?.tasks && html`<p class="flow warn" role="status">The topology has no task ${instance} now.${moved && html` Its task ${number} is <a href=${to(place, 'task', moved.instance_id)}>${moved.instance_id}</a>.`}</p>`}
    ${row && html`<${Evidence} key=${instance} place=${place} process=${instance} />`}
    <${Section} title="log"><${LogView} key=${instance} place=${place} process=${instance} follow=${state.status !== 'gone'} /><//>
    <${Exceptions} place=${place} query=${{ component, task: number || undefined }} />
    ${row && !state.snapshot.topology?.ended_at && state.status !== 'gone' && html`<${Slow} key=${instance} place=${place} query=${{ component, task: number || undefined }} />`}
    <${Events} events=${events} />
    <p><a href=${`${to(place, 'config')}?q=${encodeURIComponent(component)}`}>settings of ${component || 'the topology'}</a></p>
  <//>`;
}
