/** Exceptions of user code, grouped by type and line, each with one whole traceback. */

import { pathOf } from '../api.js';
import { duration, taskName } from '../format.js';
import { TopologyFrame, useTopology } from '../head.js';
import { Filter, Section, Trouble, When, fits, long } from '../parts.js';
import { to } from '../route.js';
import { html, useGet, useState } from '../ui.js';

const TASKS_SHOWN = 10;

/** `/a/b/c.py:12 in f` as `c.py:12`. @param {string} where */
const shortLine = (where) => where.replace(/ in .*$/s, '').replace(/^.*\//s, '');

/** @param {{place: any, query?: Record<string, any>, whole?: boolean}} props */
export function Exceptions({ place, query = {}, whole = false }) {
  const [filter, setFilter] = useState('');
  const { data, problem } = useGet(pathOf(place, 'exceptions'), query, 5);
  const groups = (data?.groups ?? []).filter((group) => fits(filter, group.type, group.where, ...group.messages, ...group.tasks));
  return html`<${Section} title="exceptions" aside=${whole && html`<${Filter} value=${filter} onChange=${setFilter} label="filter exceptions" />`}>
    <${Trouble} problem=${problem} />
    ${data && groups.length === 0 && html`<p class="quiet">User code has raised nothing${filter ? ' that fits the filter' : ''}.</p>`}
    ${groups.map((group) => html`<${Group} key=${`${group.type}|${group.where}|${group.startup}`} place=${place} group=${group} open=${whole} />`)}
    ${data?.discarded > 0 && html`<p class="quiet">${data.discarded} further kinds of exceptions were not kept.</p>`}
  <//>`;
}

// A task that gives up ends as one that cannot start does, whenever it was.
function phase({ type, startup }) {
  return type.endsWith('GaveUpError') ? ', given up' : startup ? ' while starting' : '';
}

function Group({ place, group, open }) {
  return html`<details class="exception" data-row open=${open}>
    <summary><b>${group.type}</b> ${long(group.messages[0])} <span class="quiet">${group.where && `at ${shortLine(group.where)}, `}${group.count === 1 ? 'once' : `${group.count} times`}${phase(group)}, last <${When} at=${group.last_at} />${group.count > 1 ? `, over ${duration(group.last_at - group.first_at)}` : ''}</span></summary>
    ${group.where && html`<p>at <code>${group.where}</code></p>`}
    <p>in ${group.tasks.slice(0, TASKS_SHOWN).map((task, number) => html`${number ? ', ' : ''}<a href=${to(place, /^container_/.test(task) ? 'task' : 'logs', task)}>${taskName(task)}</a>`)}${group.tasks.length > TASKS_SHOWN ? ` and ${group.tasks.length - TASKS_SHOWN} more` : ''}</p>
    ${group.messages.length > 1 && html`<ul>${group.messages.slice(0, 5).map((message, number) => html`<li key=${number}>${long(message)}</li>`)}</ul>`}
    <pre tabindex="0" aria-label="traceback">${group.traceback || 'no traceback'}</pre>
  </details>`;
}

/** @param {{route: any}} props */
export function ExceptionsPage({ route }) {
  const state = useTopology(route.place);
  return html`<${TopologyFrame} route=${route} state=${state}><${Exceptions} place=${route.place} whole=${true} /><//>`;
}
