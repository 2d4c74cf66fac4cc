/** One component: its figures, tasks, charts, streams and settings. */

import { componentColumns, downMark, edgeColumns, taskColumns } from '../columns.js';
import { text } from '../format.js';
import { TopologyFrame, useTopology } from '../head.js';
import { Facts, Filter, Section, Table, fits } from '../parts.js';
import { ChartsOf, Events, useEvents } from '../past.js';
import { to } from '../route.js';
import { html, useMemo, useState } from '../ui.js';
import { Exceptions } from './exceptions.js';
import { useEdges } from './topology.js';

/** @param {{route: any}} props */
export function ComponentPage({ route }) {
  const { place, arg: name } = route;
  const state = useTopology(place, true);
  const events = useEvents(place, state);
  const [filter, setFilter] = useState('');
  const columns = useMemo(() => ({ tasks: taskColumns(place), edges: edgeColumns(place) }), [state.live]);
  const { plan, load, tasks } = state.snapshot ?? {};
  const node = plan?.nodes.find((one) => one.name === name);
  const row = load?.components.find((one) => one.name === name);
  const edges = useEdges(plan, load);
  const mine = events.filter((event) => event.subject === name || event.subject.includes(`_${name}_`));
  const rows = (tasks?.tasks ?? []).filter((task) => task.component === name && fits(filter, task.instance_id, task.state, task.host, task.error));
  if (plan && !node) {
    return html`<${TopologyFrame} route=${route} state=${state}><p class="trouble" role="alert"><b>${place.name} has no component ${name}</b><span>it has ${plan.nodes.map((one) => one.name).join(', ')}</span></p><//>`;
  }
  const facts = (columns, of) => columns.slice(2).map((column) => [column.title, column.cell(of), column.help]);
  return html`<${TopologyFrame} route=${route} state=${state}>
    <h2 class="title"><a href=${to(place)}>${place.name}</a> / ${name} <span class="quiet">${node?.kind} ${text(node?.class_name)}</span></h2>
    ${row && html`<${Facts} items=${facts(componentColumns(place), row)} />`}
    <${Section} title="tasks" aside=${html`<${Filter} value=${filter} onChange=${setFilter} label="filter tasks" />`}>
      <${Table} columns=${columns.tasks} rows=${rows} name=${(task) => task.task_id} caption=${`tasks of ${name}`} order="busy" down=${true} mark=${downMark} empty="No task." />
    <//>
    <${ChartsOf} route=${route} state=${state} events=${mine} component=${name} />
    <${Exceptions} place=${place} query=${{ component: name }} />
    <${Events} events=${mine} />
    ${node && html`<${Section} title="streams"><${Table} columns=${columns.edges} rows=${edges.filter((edge) => edge.source === name || edge.target === name)} name=${(edge) => edge.id} caption="streams" empty="No stream." /><//>
      <${Section} title="output fields"><${Facts} wide items=${Object.entries(node.streams).map(([stream, fields]) => [stream, fields.join(', ')])} /><//>
      <${Section} title="settings of the component"><${Facts} wide items=${Object.entries(node.config)} /><//>`}
  <//>`;
}
