/** Chooses the page by the address, handles the keyboard, and shows what all pages have. */

import { takesToken, token } from './api.js';
import { whoAmI } from './actions.js';
import { KEYS, install, linkHere } from './keys.js';
import { BatchesPage } from './pages/batches.js';
import { CheckpointsPage } from './pages/checkpoints.js';
import { ConfigPage } from './pages/config.js';
import { DoctorPage } from './pages/doctor.js';
import { ExceptionsPage, LettersPage } from './pages/exceptions.js';
import { JobPage } from './pages/job.js';
import { ListPage } from './pages/list.js';
import { LogsPage } from './pages/logs.js';
import { TaskPage } from './pages/task.js';
import { ComponentPage, TasksPage, TopologyPage } from './pages/topology.js';
import { TracesPage } from './pages/traces.js';
import { Dialog } from './parts.js';
import { parsed, to } from './route.js';
import { Cell, frozen, html, render, useCell, useEffect, useState } from './ui.js';

/** A new page needs a module and a line here. */
const PAGES = {
  '': TopologyPage,
  tasks: TasksPage,
  component: ComponentPage,
  task: TaskPage,
  doctor: DoctorPage,
  checkpoints: CheckpointsPage,
  batches: BatchesPage,
  exceptions: ExceptionsPage,
  letters: LettersPage,
  traces: TracesPage,
  logs: LogsPage,
  config: ConfigPage,
};
/** The key after g, and its page. */
const GO = {
  g: '', d: 'doctor', t: 'tasks', c: 'checkpoints', b: 'batches', e: 'exceptions', x: 'letters', r: 'traces', o: 'logs', s: 'config', l: null,
};

const route = new Cell(parsed(location.hash));
const helping = new Cell(false);
addEventListener('hashchange', () => {
  const [before, now] = [route.value, parsed(location.hash)];
  route.set(now);
  const same = JSON.stringify([before.place, before.page, before.arg]) === JSON.stringify([now.place, now.page, now.arg]);
  if (!same) scrollTo(0, 0);
});

/** @param {string} key @returns {boolean} whether the key leads anywhere */
function go(key) {
  if (!(key in GO)) return false;
  const place = route.value.place ?? parsed(linkHere()?.hash ?? '').place;
  if (GO[key] === null) location.hash = '#/';
  else if (place) location.hash = to(place, GO[key]);
  return true;
}

/** Go one page up: from an argument to its page, then to the topology, then to the list. */
function up() {
  const { place, page, arg } = route.value;
  if (!place || !page) location.hash = '#/';
  else if (arg && (page === 'logs' || page === 'checkpoints')) location.hash = to(place, page);
  else location.hash = to(place);
}

function Help() {
  return html`<${Dialog} title="keys" onClose=${() => helping.set(false)}>
    <table><caption class="unseen">keys</caption><thead class="unseen"><tr><th scope="col">key</th><th scope="col">effect</th></tr></thead>
      <tbody>${KEYS.map(([keys, does]) => html`<tr key=${keys}><th scope="row"><kbd>${keys}</kbd></th><td>${does}</td></tr>`)}</tbody></table>
  <//>`;
}

/** Requests a token if the tracker cannot identify the user. */
function Login({ problem }) {
  const [given, setGiven] = useState('');
  const enter = (event) => {
    event.preventDefault();
    token.set(given.trim());
    location.reload();
  };
  return html`<main><h1>Sign in</h1>
    <p><b>${problem.title}</b>${problem.detail && html`<br />${problem.detail}`}</p>
    ${takesToken && html`<form onSubmit=${enter}><label>token <input type="password" autocomplete="off" value=${given} onInput=${(event) => setGiven(event.target.value)} /></label>
    <button disabled=${!given.trim()}>enter</button></form>
    <p class="quiet">The token is kept for this tab only, until the tab is closed.</p>`}</main>`;
}

function App() {
  const here = useCell(route);
  const still = useCell(frozen);
  const help = useCell(helping);
  const [who, setWho] = useState({ me: null, problem: null });
  useEffect(() => {
    whoAmI().then((me) => setWho({ me, problem: null }), (problem) => setWho({ me: null, problem }));
  }, []);
  useEffect(() => {
    document.title = here.place ? `${here.place.name}${here.page ? ` ${here.page}` : ''} · heron` : here.arg ? `${here.arg} · heron` : 'heron';
  }, [here]);
  const Page = here.place ? PAGES[here.page] : { '': ListPage, job: JobPage }[here.page];
  const refused = who.problem?.status === 401;
  return html`
    <header class="top"><a href="#/" class="brand">heron</a>${still && html`<span class="frozen" role="status">frozen: press Space to resume</span>`}
      <span class="who">${who.me && `${who.me.who}, release ${who.me.release}`}${token.get() && html` <button onClick=${() => { token.set(''); location.reload(); }}>forget the token</button>`}</span>
      <button onClick=${() => helping.set(true)} aria-label="keys">?</button></header>
    ${refused ? html`<${Login} problem=${who.problem} />`
      : Page ? html`<${Page} key=${JSON.stringify([here.place, here.page, here.arg])} route=${here} />`
      : html`<main><h1>Page not found</h1><p><a href="#/">all topologies</a></p></main>`}
    ${help && html`<${Help} />`}`;
}

install(go, up, () => helping.set(true));
const box = document.getElementById('app');
box.replaceChildren();
render(html`<${App} />`, box);
