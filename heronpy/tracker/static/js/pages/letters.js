/** Dead letters: the tuples that were given up, with their values. */

import { pathOf } from '../api.js';
import { taskName } from '../format.js';
import { TopologyFrame, useTopology } from '../head.js';
import { Filter, Section, Trouble, When, fits, long } from '../parts.js';
import { to } from '../route.js';
import { html, useGet, useState } from '../ui.js';
import { Unreachable } from './logs.js';

const SHOWN = 100;
/** Letters of its values that are seen without opening it. */
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
    ${!data && !problem && html`<p class="quiet">Asking …</p>`}
    <${Unreachable} what="letters" found=${data?.unreachable} />
    ${data && letters.length === 0 && html`<p class="quiet">No tuple was given up${filter ? ' that fits the filter' : ''}.</p>`}
    ${letters.map((letter, number) => html`<details key=${`${letter.at}/${letter.instance}/${number}`} class="exception" data-row>
      <summary><${When} at=${letter.at} /> <b>${letter.component}</b> gave up a tuple of ${letter.source}${letter.stream && letter.stream !== 'default' ? ` (${letter.stream})` : ''} after ${letter.tries} ${letter.tries === 1 ? 'try' : 'tries'}: <code>${valuesOf(letter).slice(0, SHORT)}</code></summary>
      <p>in <a href=${to(place, 'task', letter.instance)}>${taskName(letter.instance)}</a></p>
      <pre tabindex="0" aria-label="values">${long(valuesOf(letter, 1))}</pre>
      <pre tabindex="0" aria-label="traceback">${letter.traceback || 'no traceback'}</pre>
    </details>`)}
    ${data && data.letters.length >= SHOWN && html`<p class="quiet">These are the newest ${SHOWN}; heron dead-letters shows all.</p>`}
  <//><//>`;
}
