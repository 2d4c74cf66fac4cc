/** The micro-batches of the Spark sinks. */

import { pathOf } from '../api.js';
import { componentColumn, figure, some } from '../columns.js';
import { count, duration } from '../format.js';
import { TopologyFrame, useTopology } from '../head.js';
import { Section, Table, Trouble } from '../parts.js';
import { ChartsOf, useEvents } from '../past.js';
import { html, useGet } from '../ui.js';

const both = (row, name) => `${duration(row[`${name}_p50_s`])} / ${duration(row[`${name}_p99_s`])}`;

/** @param {any} place */
const columns = (place) => [
  componentColumn(place, 'sink', 'component'),
  figure('committed', 'committed', count),
  figure('run', 'running', count),
  figure('wait, all sinks', 'waiting', count),
  figure('rows', 'rows', count),
  figure('retried', 'retried', some),
  figure('failed', 'failed', some),
  figure('time per batch', 'seconds_per_batch', duration),
  { title: 'waited p50 / p99', num: true, by: (row) => row.wait_p99_s, cell: (row) => both(row, 'wait') },
  { title: 'ran p50 / p99', num: true, by: (row) => row.run_p99_s, cell: (row) => both(row, 'run') },
  { title: 'published p50 / p99', num: true, by: (row) => row.publish_p99_s, cell: (row) => both(row, 'publish') },
  figure('lag', 'lag_s', duration, 'age of the oldest batch without an outcome'),
];

/** @param {{route: any}} props */
export function BatchesPage({ route }) {
  const { place } = route;
  const state = useTopology(place);
  const { events } = useEvents(place, state);
  const { data, problem } = useGet(pathOf(place, 'batches'), {}, 2);
  // The address comes from a report, so only an http address becomes a link.
  const ui = /^https?:\/\//.test(data?.spark_ui ?? '') ? data.spark_ui : null;
  return html`<${TopologyFrame} route=${route} state=${state}><${Section} title="Spark batches">
    <${Trouble} problem=${problem} />
    ${data && html`<${Table} columns=${columns(place)} rows=${data.sinks} name=${(row) => row.component} caption="Spark sinks" empty="The topology has no Spark sink." />`}
    ${ui && html`<p><a href=${ui} rel="noopener noreferrer" target="_blank">Spark's own pages</a></p>`}
  <//>
  ${data?.sinks.length > 0 && html`<${ChartsOf} route=${route} state=${state} events=${events} spark=${true} />`}<//>`;
}
