/** Settings with their origins. */

import { pathOf } from '../api.js';
import { plain } from '../columns.js';
import { text } from '../format.js';
import { TopologyFrame, useTopology } from '../head.js';
import { Facts, Filter, Section, Table, Trouble, fits, long } from '../parts.js';
import { html, useGet, useState } from '../ui.js';

const COLUMNS = [
  plain('setting', 'key', text),
  plain('component', 'component', String),
  { title: 'value', by: (row) => row.value, cell: (row) => html`<span class=${row.redacted ? 'quiet value' : 'value'}>${long(text(row.value))}${row.redacted && ' (hidden: it may be a secret)'}</span>` },
  { title: 'origin', by: (row) => row.origin, cell: (row) => (row.origin === 'default' ? html`<span class="quiet">default</span>` : html`<b>${row.origin}</b>`) },
];

/** @param {{route: any}} props */
export function ConfigPage({ route }) {
  const { place } = route;
  const state = useTopology(place);
  const [filter, setFilter] = useState(route.query.q ?? '');
  const [changed, setChanged] = useState(false);
  const { data, problem } = useGet(pathOf(place, 'config'), {}, 0);
  const rows = (data?.settings ?? []).filter((row) => (!changed || row.origin !== 'default') && fits(filter, row.key, row.component, row.value, row.origin));
  const tools = html`<label><input type="checkbox" checked=${changed} onChange=${(event) => setChanged(event.target.checked)} /> without defaults</label><${Filter} value=${filter} onChange=${setFilter} label="filter settings" />`;
  return html`<${TopologyFrame} route=${route} state=${state}><${Section} title="config" aside=${tools}>
    <${Trouble} problem=${problem} />
    ${data && html`<${Facts} wide items=${[['package', text(data.package)], ['python', text(data.python)], ['release', text(data.release)]]} />
      <${Table} columns=${COLUMNS} rows=${rows} name=${(row) => `${row.component}/${row.key}`} caption="settings" order="setting" empty="No setting matches the filter." />`}
  <//><//>`;
}
