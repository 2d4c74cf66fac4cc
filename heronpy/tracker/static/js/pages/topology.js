/** A topology, its components and its tasks: graph, containers, charts, events, and tables. */

import { pathOf } from '../api.js';
import { componentColumns, downMark, edgeColumns, lost, over, plain, processColumns, taskColumns } from '../columns.js';
import { Containers } from '../containers.js';
import { bytes, count, duration, rate, share, taskName, text } from '../format.js';
import { GraphView } from '../graph.js';
import { TopologyFrame, useTopology } from '../head.js';
import { MEASURES, measure } from '../levels.js';
import { Facts, Filter, Section, Table, Trouble, fits } from '../parts.js';
import { ChartsOf, Events, useEvents } from '../past.js';
import { replaceQuery, to } from '../route.js';
import { Later, html, useGet, useMemo, useRef, useState } from '../ui.js';
import { Exceptions } from './exceptions.js';
import { Job } from './job.js';

/** @param {{route: any}} props */
export function TopologyPage({ route }) {
  const { place } = route;
  const state = useTopology(place);
  const { events, start } = useEvents(place, state);
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
    ${!topology.ended_at && [['culprits', 'Spouts are held by'], ['avoided', 'Full, so their tuples go to other tasks:'], ['dropping', 'Full, so tuples are discarded:']].map(([name, title]) => load?.[name]?.length > 0 && html`<p class="flow warn" role="status">${title} ${load[name].map((one, number) => html`${number ? ', ' : ''}<${CulpritView} place=${place} one=${one} />`)}</p>`)}
    <${Section} title="graph" aside=${choose}>
      <${GraphView} place=${place} plan=${plan} load=${load} by=${by} marked=${marked} onMark=${setMarked} />
      <${Containers} place=${place} plan=${plan} load=${load} tasks=${tasks?.tasks ?? null} by=${by} marked=${marked} onMark=${setMarked} />
      <p class="quiet">The colour shows the worst task: low, medium (40 %), high (70 %, +), full (90 %, #). Double lines are keyed. A line shows the rate of its source's emits. ✗ is down, ! holds the spouts back.</p>
    <//>
    <${Units} place=${place} />
    <${Later}><${Job} place=${place} /><${ChartsOf} route=${route} state=${state} events=${events} />
    <${Events} events=${events} />
    <${Section} title="components" aside=${html`<${Filter} value=${filter} onChange=${setFilter} label="filter components" />`}>
      <${Table} columns=${columns.components} rows=${(load?.components ?? []).filter((row) => fits(filter, row.name, row.kind))} name=${(row) => row.name} caption="components"
        mark=${mark} onHover=${(row) => setMarked(row?.name ?? '')} empty="No figures yet." />
      ${over(load)}
    <//>
    <${Section} title="streams"><${Table} columns=${columns.edges} rows=${edges} name=${(row) => row.id} caption="streams between components" /><//>
    ${topology?.totals && html`<${Section} title="since submit"><${Totals} totals=${topology.totals} dropped=${load?.dropped} /><//>`}
    ${start?.running && html`<${Section} title=${`start: ${duration(start.took_s)}`}><${Facts} items=${start.phases.map((one) => [one.name, duration(one.took_s), one.what])} /><//>`}<//>
  <//>`;
}

/** The stages of a batch run, or pipelines of work units; nothing without them. @param {{place: any}} props */
function Units({ place }) {
  const { run, table } = useGet(pathOf(place, 'progress'), {}, 5).data ?? {};
  return table?.rows.length > 0 && html`<${Section} title=${run ? `batch run ${run.run}: ${run.state}` : 'work units'}>
    <${Trouble} problem=${run?.cause && { title: run.cause }} />
    <${Table} columns=${table.titles.map((title, at) => plain(title, at, String))} rows=${table.rows} name=${(row) => row[0]} caption="work units" />
  <//>`;
}

/** The reason why there is no plan, which the stream does not have. @param {{place: any}} props */
function NoPlan({ place }) {
  return html`<${Trouble} problem=${useGet(pathOf(place, 'plan'), {}, 5).problem} />`;
}

/** The edges of the plan with their rates; an edge with an unchanged rate is the same object. @param {any} plan @param {any} load */
function useEdges(plan, load) {
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

/** A task, or a link between two stream managers, which has no component. */
function CulpritView({ place, one }) {
  const shown = one.component ? html`<a href=${to(place, 'task', one.name)}>${taskName(one.name)}</a>` : one.name;
  return html`${shown} for ${duration(one.since_s)} (${bytes(one.queued_bytes)} queued)`;
}

function Totals({ totals, dropped = {} }) {
  const least = totals.at_least ? '≥ ' : '';
  return html`<${Facts} items=${[
    ['acked', `${least}${count(totals.acked)}`],
    ['failed', `${least}${count(totals.failed)}`],
    ['not resent', count(totals.not_resent)],
    ['resent, at most', count(totals.replayed)],
    ['dead letters', `${totals.letters_at_least ? '≥ ' : ''}${count(totals.dead_letters)}`],
    ['lost', lost(totals)],
    ['restores', count(totals.restores)],
    ...Object.entries(dropped).map(([name, one]) => [`dropped for ${name}`, count(one)]),
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
      <${Table} columns=${columns.tasks} rows=${rows} name=${(row) => row.task_id} caption="tasks" mark=${downMark} empty=${tasks ? 'No task matches the filter.' : 'No figures yet.'} />
      ${over(tasks)}
    <//>
    <${Section} title="other processes"><${Table} columns=${columns.processes} rows=${tasks?.processes ?? []} name=${(row) => `${row.container}/${row.name}`} caption="other processes" empty="No figures yet." /><//>
  <//>`;
}

/** One component: its figures, tasks, charts, streams and settings. @param {{route: any}} props */
export function ComponentPage({ route }) {
  const { place, arg: name } = route;
  const state = useTopology(place, true);
  const { events } = useEvents(place, state);
  const [filter, setFilter] = useState('');
  const columns = useMemo(() => ({ tasks: taskColumns(place), edges: edgeColumns(place) }), [state.live]);
  const { plan, load, tasks } = state.snapshot ?? {};
  const node = plan?.nodes.find((one) => one.name === name);
  const row = load?.components.find((one) => one.name === name);
  const edges = useEdges(plan, load);
  const mine = events.filter((event) => event.subject === name || event.subject.includes(`_${name}_`));
  const rows = (tasks?.tasks ?? []).filter((task) => task.component === name && fits(filter, task.instance_id, task.state, task.host, task.error));
  if (plan && !node) {
    return html`<${TopologyFrame} route=${route} state=${state}><p class="trouble" role="alert"><b>${place.name} has no component ${name}</b><span>its components are ${plan.nodes.map((one) => one.name).join(', ')}</span></p><//>`;
  }
  return html`<${TopologyFrame} route=${route} state=${state}>
    <h2 class="title"><a href=${to(place)}>${place.name}</a> / ${name} <span class="quiet">${node?.kind} ${text(node?.class_name)}</span></h2>
    ${row && html`<${Facts} items=${componentColumns(place).slice(2).map(({ title, cell, help }) => [title, cell(row), help])} />${over(load)}`}
    <${Section} title="tasks" aside=${html`<${Filter} value=${filter} onChange=${setFilter} label="filter tasks" />`}>
      <${Table} columns=${columns.tasks} rows=${rows} name=${(task) => task.task_id} caption=${`tasks of ${name}`} order="busy" down=${true} mark=${downMark} empty="No task." />
      ${over(tasks)}
    <//>
    <${ChartsOf} route=${route} state=${state} events=${mine} component=${name} />
    <${Exceptions} place=${place} query=${{ component: name }} />
    <${Events} events=${mine} />
    ${node && html`<${Section} title="streams"><${Table} columns=${columns.edges} rows=${edges.filter((edge) => edge.source === name || edge.target === name)} name=${(edge) => edge.id} caption="streams" empty="No stream." /><//>
      <${Section} title="output fields"><${Facts} wide items=${Object.entries(node.streams).map(([stream, fields]) => [stream, fields.join(', ')])} /><//>
      <${Section} title="settings of the component"><${Facts} wide items=${Object.entries(node.config)} /><//>`}
  <//>`;
}
