/** The logs of the processes of a topology, or the log of one process. */

import { pathOf } from '../api.js';
import { figure, when } from '../columns.js';
import { bytes, taskName } from '../format.js';
import { TopologyFrame, useTopology } from '../head.js';
import { LogView, logLine } from '../log_view.js';
import { Filter, Section, Table, Trouble, fits } from '../parts.js';
import { to } from '../route.js';
import { html, useGet, useState } from '../ui.js';

/** @param {any} place */
const columns = (place) => [
  { title: 'process', by: (row) => row.process, cell: (row) => html`<a href=${to(place, /^container_/.test(row.process) ? 'task' : 'logs', row.process)}>${taskName(row.process)}</a>` },
  { title: 'container', num: true, by: (row) => row.container, cell: (row) => `c${row.container}` },
  figure('size', 'bytes', bytes),
  figure('last line', 'changed_at', when),
];

/** @param {{route: any}} props */
export function LogsPage({ route }) {
  const { place, arg: process } = route;
  const state = useTopology(place);
  const [filter, setFilter] = useState('');
  const [asked, setAsked] = useState({ text: '', ignore_case: false });
  const { data, problem } = useGet(process ? null : pathOf(place, 'logs'), {}, 5);
  const rows = (data?.files ?? []).filter((row) => fits(filter, row.process, `c${row.container}`));
  if (process) {
    return html`<${TopologyFrame} route=${route} state=${state}><${Section} title=${`log of ${process}`}>
      <${LogView} key=${process} place=${place} process=${process} follow=${state.status !== 'gone'} /><//><//>`;
  }
  return html`<${TopologyFrame} route=${route} state=${state}><${Section} title="logs" aside=${html`<${Filter} value=${filter} onChange=${setFilter} label="filter processes" />`}>
    <${Trouble} problem=${problem} />
    <form onSubmit=${(event) => { event.preventDefault(); setAsked({ text: event.target.elements.text.value, ignore_case: event.target.elements.ignore_case.checked }); }}><input name="text" type="search" maxlength="200" placeholder="find in all logs" aria-label="find in all logs" /> <label><input name="ignore_case" type="checkbox" /> ignore case</label> <button>find</button></form>
    ${asked.text && html`<${Hits} key=${JSON.stringify(asked)} place=${place} asked=${asked} />`}
    <${Unreachable} what="logs" found=${data?.unreachable} />
    ${data && html`<${Table} columns=${columns(place)} rows=${rows} name=${(row) => row.process} caption="processes that have a log" empty="No log matches the filter." />`}
  <//><//>`;
}

/** Lines that contain a text, newest first, from all processes. @param {{place: any, asked: {text: string, ignore_case: boolean}}} props */
function Hits({ place, asked }) {
  const { data, problem } = useGet(pathOf(place, 'logs', 'search'), asked);
  return html`<div class="log"><${Trouble} problem=${problem} /><${Unreachable} what="logs" found=${data?.unreachable} />
    <p class="quiet" role="status">${data ? `hits: ${data.hits.length} in ${bytes(data.searched_bytes)}${data.stopped && `, stopped ${data.stopped}`}` : !problem && 'searching'}</p>
    <div class="lines" tabindex="0" role="log" aria-label="hits" aria-live="off">${data?.hits.map((hit, index) => logLine(index, hit, when(hit.at), html`<a href=${to(place, 'logs', hit.process)}>${taskName(hit.process)}</a> `))}</div></div>`;
}

/** Containers whose files cannot be read now. @param {{what: string, found: Record<string, string>|undefined}} props */
export function Unreachable({ what, found }) {
  return Object.entries(found ?? {}).map(([container, why]) => html`<p class="trouble" key=${container}><b>the ${what} of container ${container} cannot be read now</b><span>${why}</span></p>`);
}
