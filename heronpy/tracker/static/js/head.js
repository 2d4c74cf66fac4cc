/** The head of every page of a topology: its state, the sentence of the doctor, and links to other pages. */

import { INSTANCE, duration, of, rate, share, taskName, text } from './format.js';
import { Actions } from './actions.js';
import { liveQuery } from './early.js';
import { want } from './keys.js';
import { Flow, Sentence, State, Trouble } from './parts.js';
import { endToEnd, stopped } from './levels.js';
import { stoppedSpouts } from './past.js';
import { to } from './route.js';
import { html, useLive } from './ui.js';

/** The live figures of a topology. @param {any} place @param {boolean} [needed] */
export const useTopology = (place, needed = false) => useLive(liveQuery(place, needed));

/** Pages of a topology: address, title, and whether the topology has this page. */
export const PAGES = [
  ['', 'overview'],
  ['doctor', 'doctor'],
  ['tasks', 'tasks'],
  ['checkpoints', 'checkpoints', (topology) => topology.mode === 'EFFECTIVELY_ONCE'],
  ['batches', 'Spark batches', (topology) => topology.spark ?? !topology.ended_at],
  ['exceptions', 'exceptions'],
  ['letters', 'dead letters'],
  ['traces', 'traces', (topology) => !topology.ended_at],
  ['logs', 'logs'],
  ['config', 'config'],
];

/** Pages that show more of a finding. @type {Record<string, string[]>} */
const MORE = {
  failed: ['logs'],
  down: ['tasks'],
  crashing: ['letters'],
  losses: ['letters', 'exceptions'],
  'slow task': ['traces'],
  dependency: ['traces'],
  untriaged: ['traces'],
  limit: ['config'],
  spark: ['batches'],
};

/** Commands in advice, and the page that shows the same. @type {Record<string, string>} */
const SAME = { exceptions: 'exceptions', 'dead-letters': 'letters', checkpoints: 'checkpoints', top: 'tasks', status: 'tasks' };

/** The parts of the page of a task that a link can open directly. */
const OF_TASK = ['log', 'stacks', 'profile', 'heap'];

/** Links to the task and component of a finding and to pages with more of it, and buttons for its next step. @param {{place: any, finding: any, state: any}} props */
export function Leads({ place, finding: { verdict, task, component, host, next, names }, state }) {
  const commands = Object.keys(SAME).filter((name) => next?.includes(`heron ${name} `)).map((name) => SAME[name]);
  const more = PAGES.filter(([page]) => commands.includes(page) || MORE[verdict]?.includes(page));
  const of = task || names?.find((name) => INSTANCE.test(name));
  const address = of && to(place, 'task', of);
  const links = [
    of && html`<a href=${address}>${taskName(of)}</a>${host && ` on ${host}`}: ${OF_TASK.map((kind, number) => html`${number ? ', ' : ''}<a href=${address} onClick=${() => want(kind, address)}>${kind}</a>`)}`,
    component && html`component <a href=${to(place, 'component', component)}>${component}</a>`,
    ...more.map(([page, title]) => html`<a href=${to(place, page)}>${title}</a>`),
  ].filter(Boolean);
  return links.length > 0 && html`<span class="next"><b>see</b> ${links.map((link, number) => html`${number ? ' · ' : ''}${link}`)} ${next && html`<${Actions} place=${place} state=${state} next=${next} />`}</span>`;
}

/** The rate of the spouts; says so if all or some of them have stopped. @param {any} topology @param {any} load */
function emitted(topology, load) {
  const which = topology.state === 'RUNNING' ? stoppedSpouts(topology, load) : [];
  const said = stopped(topology) || (which.length > 0 && `${rate(topology.emitted_per_s)}, ${which.join(', ')} stopped`);
  return said ? html`<b class=${topology.calm ? '' : 'alarm'}>${said}</b>` : rate(topology.emitted_per_s);
}

/**
 * @param {{route: import('./route.js').Route, state: any, children: any}} props
 */
export function TopologyFrame({ route, state, children }) {
  const { place } = route;
  const topology = state.snapshot?.topology;
  const pages = PAGES.filter(([, , has]) => !has || !topology || has(topology));
  return html`<main>
    <nav class="crumbs" aria-label="breadcrumb"><a href="#/">topologies</a> / <span>${place.cluster}/${place.role}/${place.environ}</span></nav>
    <header class="head">
      <h1>${topology?.name ?? place.name}</h1>
      ${topology && html`<${State} state=${topology.state} />
        <span>${topology.ended_at ? 'ran' : 'up'} ${duration(topology.uptime_s)}</span><span>${text(topology.mode)}</span><span>packing plan ${text(topology.plan_version)}</span>
        ${topology.ended_at ? html`<span>${topology.tasks} tasks</span>` : html`<span>${of(topology.tasks_up, topology.tasks)} tasks</span><span>${emitted(topology, state.snapshot.load)}</span><span title="from emit to end of traced tuples; ≈: estimated from the queues">p99 ${endToEnd(topology, state.snapshot.load)}</span><span>held ${share(topology.held)}</span>`}
        <${Actions} place=${place} state=${state} />`}
    </header>
    <${Flow} state=${state} />
    ${state.status === 'refused' && html`<${Trouble} problem=${state.problem} />`}
    ${topology ? !topology.ended_at && html`<${Sentence} topology=${topology} row=${route.page === ''} below=${topology.verdict && html`<${Leads} place=${place} finding=${topology} state=${state} />`}>${topology.sentence && route.page !== 'doctor' && html`<a class="evidence" href=${to(place, 'doctor')}>evidence</a>`}<//>` : state.status !== 'refused' && html`<p class="quiet">Loading …</p>`}
    <nav class="pages" aria-label="pages of the topology">${pages.map(([page, title]) => html`<a key=${page} href=${to(place, page)} aria-current=${route.page === page ? 'page' : undefined}>${title}</a>`)}</nav>
    ${children}
  </main>`;
}
