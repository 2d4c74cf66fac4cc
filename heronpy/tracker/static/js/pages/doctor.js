/** All findings of the doctor, and the figures of each task on which they are based. */

import { pathOf } from '../api.js';
import { figure, some, taskColumn } from '../columns.js';
import { bytes, count, duration, rate, share } from '../format.js';
import { Leads, TopologyFrame, useTopology } from '../head.js';
import { Filter, Section, Table, Trouble, fits } from '../parts.js';
import { html, useGet, useState } from '../ui.js';

/** Verdicts of rank 3 and above, which are failures, as in the head of every page. */
const FAILURES = ['failed', 'down', 'hung', 'memory', 'crashing', 'losses', 'stopped'];

/** @param {any} place */
const columns = (place) => [
  taskColumn(place),
  { title: 'up', cell: (row) => (row.up ? 'up' : html`<b class="alarm">✗ down</b>`) },
  figure('in', 'executed_per_s', rate),
  figure('out', 'emitted_per_s', rate),
  figure('busy', 'busy', share),
  figure('CPU', 'cpu', count),
  figure('queue', 'queue_bytes', bytes),
  figure('queue time', 'lag_s', duration, 'time to process the queue at the current rate'),
  figure('silent', 'silent_s', duration, 'time since the last turn of the loop'),
  figure('memory', 'memory_bytes', bytes),
  figure('restarts', 'restarts', some),
];

/** @param {{place: any, finding: any, leads: boolean, state: any}} props */
function FindingView({ place, finding, leads, state }) {
  return html`<article class="exception" data-row tabindex="-1" aria-label=${finding.verdict}>
    <p><span class=${`rank ${finding.calm ? 'ok' : FAILURES.includes(finding.verdict) ? 'bad' : finding.verdict === 'machine' ? 'info' : 'warn'}`}>${finding.calm ? '✓' : leads ? '!' : '·'} ${finding.verdict}</span> ${leads ? html`<strong>${finding.sentence}</strong>` : finding.sentence}</p>
    ${finding.next && html`<p class="next"><b>next</b> ${finding.next}</p>`}
    <${Leads} place=${place} finding=${finding} state=${state} />
  </article>`;
}

/** @param {{route: any}} props */
export function DoctorPage({ route }) {
  const { place } = route;
  const state = useTopology(place, true);
  const [filter, setFilter] = useState('');
  const { data, problem } = useGet(pathOf(place, 'doctor'), {}, state.snapshot?.topology?.ended_at ? 0 : 5);
  const now = new Map((state.snapshot?.tasks?.tasks ?? []).map((row) => [row.instance_id, row]));
  const rows = (data?.tasks ?? []).filter((row) => fits(filter, row.instance_id)).map((row) => ({ ...row, memory_bytes: now.get(row.instance_id)?.memory_bytes, restarts: now.get(row.instance_id)?.restarts }));
  return html`<${TopologyFrame} route=${route} state=${state}>
    <${Section} title="findings">
      <${Trouble} problem=${problem} />
      ${data?.findings.map((finding, number) => html`<${FindingView} key=${number} place=${place} finding=${finding} leads=${number === 0} state=${state} />`)}
      ${data?.not_known && html`<p class="quiet">${data.not_known[0].toUpperCase()}${data.not_known.slice(1)}.</p>`}
      ${data && data.window_s > 0 && html`<p class="quiet">Over the last ${duration(data.window_s)}: ${rate(data.emitted_per_s)} emitted, spouts held ${share(data.held)} of the time${data.ended_at ? ' that is known' : ''}.${data.events_known ? '' : ' Past restarts and changes are unknown.'}</p>`}
    <//>
    ${data && !data.ended_at && html`<${Section} title="observations of each task" aside=${html`<${Filter} value=${filter} onChange=${setFilter} label="filter tasks" />`}>
      <${Table} columns=${columns(place)} rows=${rows} name=${(row) => row.instance_id} caption="tasks" order="busy" down=${true} mark=${(row) => (row.up ? '' : 'down')} empty="No task." /><//>`}
  <//>`;
}
