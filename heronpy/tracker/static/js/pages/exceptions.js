/** Failures of user code: exceptions, grouped by type and line, and dead letters. */

import { pathOf } from '../api.js';
import { duration, taskName } from '../format.js';
import { TopologyFrame, useTopology } from '../head.js';
import { Filter, Section, Trouble, When, fits, long } from '../parts.js';
import { to } from '../route.js';
import { html, useGet, useState } from '../ui.js';
import { Unreachable } from './logs.js';

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
    ${data && groups.length === 0 && html`<p class="quiet">User code has raised no exceptions${filter ? ' that match the filter' : ''}.</p>`}
    ${groups.map((group) => html`<${Group} key=${`${group.type}|${group.where}|${group.startup}`} place=${place} group=${group} open=${whole} />`)}
    ${data?.discarded > 0 && html`<p class="quiet">${data.discarded} further kinds of exceptions were not kept.</p>`}
  <//>`;
}

// A task that is not restarted again reports a failed start, even if it has run before.
function phase({ type, startup }) {
  return type.endsWith('GaveUpError') ? ', not restarted again' : startup ? ' while starting' : '';
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

const SHOWN = 100;
/** Number of characters of the values that a closed dead letter shows. */
const SHORT = 200;

const valuesOf = ({ payload }, indent) => (typeof payload === 'string' ? payload : JSON.stringify(payload, null, indent));

/** @param {{route: any}} props */
export function LettersPage({ route }) {
  const { place } = route;
  const state = useTopology(place);
  const [filter, setFilter] = useState('');
  const { data, problem } = useGet(pathOf(place, 'letters'), { limit: SHOWN }, 5);
  const letters = (data?.letters ?? []).filter((letter) => fits(filter, letter.component, letter.instance, letter.source, letter.stream, letter.traceback, JSON.stringify(letter.payload)));
  return html`<${TopologyFrame} route=${route} state=${state}><${Section} title="dead letters" aside=${html`<${Filter} value=${filter} onChange=${setFilter} label="filter letters" />`}>
    <${Trouble} problem=${problem} />
    ${!data && !problem && html`<p class="quiet">Loading …</p>`}
    <${Unreachable} what="letters" found=${data?.unreachable} />
    ${data && letters.length === 0 && html`<p class="quiet">There are no dead letters${filter ? ' that match the filter' : ''}.</p>`}
    ${letters.map((letter, number) => html`<details key=${`${letter.at}/${letter.instance}/${number}`} class="exception" data-row>
      <summary><${When} at=${letter.at} /> <b>${letter.component}</b> put aside a tuple of ${letter.source}${letter.stream && letter.stream !== 'default' ? ` (${letter.stream})` : ''} after ${letter.tries} ${letter.tries === 1 ? 'try' : 'tries'}: <code>${valuesOf(letter).slice(0, SHORT)}</code></summary>
      <p>in <a href=${to(place, 'task', letter.instance)}>${taskName(letter.instance)}</a></p>
      <pre tabindex="0" aria-label="values">${long(valuesOf(letter, 1))}</pre>
      <pre tabindex="0" aria-label="traceback">${letter.traceback || 'no traceback'}</pre>
    </details>`)}
    ${data && data.letters.length >= SHOWN && html`<p class="quiet">These are the newest ${SHOWN}; heron dead-letters shows all.</p>`}
  <//><//>`;
}
