/** The micro-batches of the Spark sinks. */

import { pathOf } from '../api.js';
import { count, duration } from '../format.js';
import { TopologyFrame } from '../head.js';
import { Section, Table, Trouble } from '../parts.js';
import { ChartsOf, useEvents, useSparkRecorder } from '../past.js';
import { to } from '../route.js';
import { html, useGet } from '../ui.js';
import { useTopology } from './topology.js';

const both = (row, name) => `${duration(row[`${name}_p50_s`])} / ${duration(row[`${name}_p99_s`])}`;
const alarm = (value) => (value ? html`<b class="alarm">${count(value)}</b>` : count(value));

/** @param {any} place */
const columns = (place) => [
  { key: 'component', title: 'sink', by: (row) => row.component, cell: (row) => html`<a href=${to(place, 'component', row.component)}>${row.component}</a>` },
  { key: 'committed', title: 'committed', num: true, by: (row) => row.committed, cell: (row) => count(row.committed) },
  { key: 'running', title: 'run', num: true, by: (row) => row.running, cell: (row) => count(row.running) },
  { key: 'waiting', title: 'wait, all sinks', num: true, by: (row) => row.waiting, cell: (row) => count(row.waiting) },
  { key: 'rows', title: 'rows', num: true, by: (row) => row.rows, cell: (row) => count(row.rows) },
  { key: 'retried', title: 'tried again', num: true, by: (row) => row.retried, cell: (row) => alarm(row.retried) },
  { key: 'failed', title: 'failed', num: true, by: (row) => row.failed, cell: (row) => alarm(row.failed) },
  { key: 'each', title: 'a batch takes', num: true, by: (row) => row.seconds_per_batch, cell: (row) => duration(row.seconds_per_batch) },
  { key: 'wait', title: 'waited p50 / p99', num: true, by: (row) => row.wait_p99_s, cell: (row) => both(row, 'wait') },
  { key: 'ran', title: 'ran p50 / p99', num: true, by: (row) => row.run_p99_s, cell: (row) => both(row, 'run') },
  { key: 'published', title: 'published p50 / p99', num: true, by: (row) => row.publish_p99_s, cell: (row) => both(row, 'publish') },
  { key: 'lag', title: 'lag', num: true, by: (row) => row.lag_s, cell: (row) => duration(row.lag_s), help: 'age of the oldest batch without outcome' },
];

/** @param {{route: any}} props */
export function BatchesPage({ route }) {
  const { place } = route;
  const state = useTopology(place);
  const events = useEvents(place, state);
  const { data, problem } = useGet(pathOf(place, 'batches'), {}, 2);
  useSparkRecorder(state, data);
  // The address comes from a report: only what is an address of a page becomes a link.
  const ui = /^https?:\/\//.test(data?.spark_ui ?? '') ? data.spark_ui : null;
  return html`<${TopologyFrame} route=${route} state=${state}><${Section} title="Spark batches">
    <${Trouble} problem=${problem} />
    ${data && html`<${Table} columns=${columns(place)} rows=${data.sinks} name=${(row) => row.component} caption="Spark sinks" empty="The topology has no Spark sink." />`}
    ${ui && html`<p><a href=${ui} rel="noopener noreferrer" target="_blank">Spark's own pages</a></p>`}
  <//>
  ${data?.sinks.length > 0 && html`<${ChartsOf} route=${route} state=${state} events=${events} spark=${true} />`}<//>`;
}
