/** A topology: graph, containers, charts, events, and tables of what they show. */

import { pathOf } from '../api.js';
import { componentColumns, downMark, edgeColumns, lost, processColumns, taskColumns } from '../columns.js';
import { Containers } from '../containers.js';
import { bytes, count, duration, taskName } from '../format.js';
import { GraphView } from '../graph.js';
import { TopologyFrame, useTopology } from '../head.js';
import { MEASURES, measure } from '../levels.js';
import { Facts, Filter, Section, Table, Trouble, fits } from '../parts.js';
import { ChartsOf, Events, useEvents } from '../past.js';
import { replaceQuery, to } from '../route.js';
import { Later, html, useGet, useMemo, useRef, useState } from '../ui.js';

/** @param {{route: any}} props */
export function TopologyPage({ route }) {
  const { place } = route;
  const state = useTopology(place);
  const events = useEvents(place, state);
  const [marked, setMarked] = useState('');
  const [filter, setFilter] = useState('');
  const { plan, load, topology, tasks } = state.snapshot ?? {};
  const by = measure(route.query.by ?? 'busy').name;
  const edges = useEdges(plan, load);
  const columns = useMemo(() => ({ components: componentColumns(place), edges: edgeColumns(place) }), [state.live]);
  const mark = (row) => (row.name === marked ? 'marked' : '');
  if (!plan) return html`<${TopologyFrame} route=${route} state=${state}>${state.snapshot && html`<${NoPlan} place=${place} />`}<${Events} events=${events} /><//>`;
  const choose = html`<label>colour by <select value=${by} onChange=${(event) => replaceQuery(route, { by: event.target.value === 'busy' ? '' : event.target.value })}>
    ${Object.entries(MEASURES).map(([name, one]) => html`<option key=${name} value=${name}>${one.title}</option>`)}</select></label>`;
  return html`<${TopologyFrame} route=${route} state=${state}>
    ${!topology.ended_at && load?.culprits.length > 0 && html`<p class="flow warn" role="status">Spouts are held by ${load.culprits.map((one, number) => html`${number ? ', ' : ''}<${CulpritView} place=${place} one=${one} tasks=${tasks} />`)}</p>`}
    <${Section} title="graph" aside=${choose}>
      <${GraphView} place=${place} plan=${plan} load=${load} by=${by} marked=${marked} onMark=${setMarked} />
      <${Containers} place=${place} plan=${plan} load=${load} tasks=${tasks?.tasks ?? null} by=${by} marked=${marked} onMark=${setMarked} />
      <p class="quiet">A component has the colour of its worst task: low, medium (40 %), high (70 %, +), full (90 %, #). Double lines are keyed; the rate of a line is what its source emits. ✗ is down, ! holds the spouts back.</p>
    <//>
    <${Later}><${ChartsOf} route=${route} state=${state} events=${events} />
    <${Events} events=${events} />
    <${Section} title="components" aside=${html`<${Filter} value=${filter} onChange=${setFilter} label="filter components" />`}>
      <${Table} columns=${columns.components} rows=${(load?.components ?? []).filter((row) => fits(filter, row.name, row.kind))} name=${(row) => row.name} caption="components"
        mark=${mark} onHover=${(row) => setMarked(row?.name ?? '')} empty="No figures yet." />
    <//>
    <${Section} title="streams"><${Table} columns=${columns.edges} rows=${edges} name=${(row) => row.id} caption="streams between components" /><//>
    ${topology?.totals && html`<${Section} title="since submit"><${Totals} totals=${topology.totals} /><//>`}<//>
  <//>`;
}

/** Why there is no plan, if that is known: the stream leaves out what cannot be read. @param {{place: any}} props */
function NoPlan({ place }) {
  return html`<${Trouble} problem=${useGet(pathOf(place, 'plan'), {}, 5).problem} />`;
}

/** The edges of the plan with their rates; one whose rate is as before is the same object. @param {any} plan @param {any} load */
export function useEdges(plan, load) {
  const before = useRef(new Map());
  return useMemo(() => {
    const rates = new Map((load?.edges ?? []).map((row) => [row.id, row.tuples_per_s]));
    const rows = (plan?.edges ?? []).map((edge) => {
      const [rate, old] = [rates.get(edge.id), before.current.get(edge.id)];
      return old && old.edge === edge && old.rate === rate ? old : { ...edge, edge, rate };
    });
    before.current = new Map(rows.map((row) => [row.id, row]));
    return rows;
  }, [plan?.edges, load?.edges]);
}

function CulpritView({ place, one, tasks }) {
  const instance = (tasks?.tasks ?? []).find((task) => task.task_id === one.task_id)?.instance_id ?? (/^container_/.test(one.name) ? one.name : null);
  const shown = instance ? html`<a href=${to(place, 'task', instance)}>${taskName(instance)}</a>` : one.component ? html`<a href=${to(place, 'component', one.component)}>${one.name}</a>` : one.name;
  return html`${shown} for ${duration(one.since_s)} (${bytes(one.queued_bytes)} queued)`;
}

function Totals({ totals }) {
  const least = totals.at_least ? '≥ ' : '';
  return html`<${Facts} items=${[
    ['acked', `${least}${count(totals.acked)}`],
    ['failed', `${least}${count(totals.failed)}`],
    ['not sent again', count(totals.not_resent)],
    ['sent again, at most', count(totals.replayed)],
    ['dead letters', `${totals.letters_at_least ? '≥ ' : ''}${count(totals.dead_letters)}`],
    ['lost', lost(totals)],
    ['restores', count(totals.restores)],
  ]} />`;
}

/** All tasks and the other processes. @param {{route: any}} props */
export function TasksPage({ route }) {
  const { place } = route;
  const state = useTopology(place, true);
  const [filter, setFilter] = useState('');
  const columns = useMemo(() => ({ tasks: taskColumns(place), processes: processColumns(place) }), [state.live]);
  const tasks = state.snapshot?.tasks;
  const rows = (tasks?.tasks ?? []).filter((row) => fits(filter, taskName(row.instance_id), row.state, row.host, row.error, row.exit_reason, `c${row.container}`));
  return html`<${TopologyFrame} route=${route} state=${state}>
    <${Section} title="tasks" aside=${html`<${Filter} value=${filter} onChange=${setFilter} label="filter tasks" />`}>
      <${Table} columns=${columns.tasks} rows=${rows} name=${(row) => row.task_id} caption="tasks" mark=${downMark} empty=${tasks ? 'No task fits the filter.' : 'No figures yet.'} />
    <//>
    <${Section} title="other processes"><${Table} columns=${columns.processes} rows=${tasks?.processes ?? []} name=${(row) => `${row.container}/${row.name}`} caption="other processes" empty="No figures yet." /><//>
  <//>`;
}
