/** Changes of a topology: a dialog first shows the effect of a change; each request names the version of the plan. */

import { get, pathOf, post, problemOf } from './api.js';
import { taskName } from './format.js';
import { Dialog, Trouble } from './parts.js';
import { html, useEffect, useRef, useState } from './ui.js';

/** `when`: the action is possible; `choose`: the user's choice; `typed`: the user types the name; `says`: a part of the command in advice. */
const ACTIONS = [
  { name: 'deactivate', title: 'pause', when: (topology) => topology.state !== 'PAUSED' },
  { name: 'activate', title: 'activate', when: (topology) => topology.state === 'PAUSED' },
  { name: 'restart', title: 'restart', choose: 'component', says: 'heron restart ' },
  { name: 'update', title: 'update', choose: 'parallelism', says: '--component-parallelism ' },
  { name: 'savepoint', title: 'savepoint', when: (topology) => topology.mode === 'EFFECTIVELY_ONCE' },
  { name: 'kill', title: 'kill', typed: true },
];

/** @type {Promise<any>|null} */
let me = null;

/** The user's name and rights at the tracker; requested once. */
export function whoAmI() {
  me ??= get('me').catch((problem) => {
    me = null;
    throw problem;
  });
  return me;
}

/** Whether the user may see and change everything. */
export function useMay() {
  const [may, setMay] = useState(false);
  useEffect(() => {
    whoAmI().then((found) => setMay(found.scope === 'all'), () => {});
  }, []);
  return may;
}

/** Buttons for all possible actions; with `next` only those of the commands in this advice. @param {{place: any, state: any, next?: string}} props */
export function Actions({ place, state, next }) {
  const { topology, plan } = state.snapshot ?? {};
  const may = useMay();
  const [open, setOpen] = useState(null);
  if (!topology || topology.ended_at || state.status === 'gone') return null;
  const allowed = ACTIONS.filter((action) => may && (next ? next.includes(action.says) : !action.when || action.when(topology)));
  return html`<span class=${next ? '' : 'actions'}>${allowed.map((action) => html`<button key=${action.name} onClick=${() => setOpen(action)}>${action.title} …</button>`)}
    ${open && html`<${Ask} key=${open.name} place=${place} action=${open} plan=${plan} next=${next} onClose=${() => setOpen(null)} />`}</span>`;
}

const RESTORE = { name: 'restore', title: 'restore' };

/** Go back to one checkpoint. @param {{place: any, plan: any, number: number}} props */
export function Restore({ place, plan, number }) {
  const may = useMay();
  const [open, setOpen] = useState(false);
  if (!may) return null;
  return html`<button onClick=${() => setOpen(true)} aria-label=${`restore checkpoint ${number}`}>restore …</button>
    ${open && html`<${Ask} place=${place} action=${{ ...RESTORE, body: { checkpoint: number }, about: `, checkpoint ${number}` }} plan=${plan} onClose=${() => setOpen(false)} />`}`;
}

/** A dialog that begins with the values in the advice `next`. @param {{place: any, action: any, plan: any, next?: string, onClose: () => void}} props */
function Ask({ place, action, plan, next = '', onClose }) {
  const [, task, of] = /heron restart .* (container_\d+_.+_(\d+))/.exec(next) ?? [];
  const [component, setComponent] = useState(task ?? '');
  const [counts, setCounts] = useState(Object.fromEntries([...next.matchAll(/-parallelism (\S+):(\d+)/g)].map(([, name, count]) => [name, +count])));
  const [typed, setTyped] = useState('');
  const [result, setResult] = useState({ found: null, problem: null, busy: false });
  // Keep the version that was seen first: if another user changes the plan, the tracker then refuses this change.
  const version = useRef(plan?.version);
  const body = () => {
    if (action.choose === 'component') return component === task ? { task: +of } : component ? { component } : {};
    if (action.choose === 'parallelism') return { parallelism: counts };
    return action.body ?? {};
  };
  const key = JSON.stringify(body());
  const running = useRef(false);
  const run = async (dryRun) => {
    // The second click of a double click comes before the button is disabled.
    if (running.current) return;
    running.current = true;
    setResult({ found: null, problem: null, busy: true });
    try {
      const headers = version.current === undefined ? {} : { 'If-Match': `"${version.current}"` };
      const found = await post(pathOf(place, 'actions', action.name), { ...body(), dry_run: dryRun }, headers);
      version.current ??= found.plan_version ?? undefined;
      setResult({ found: { ...found, key }, problem: null, busy: false });
    } catch (problem) {
      setResult({ found: null, problem: problemOf(problem), busy: false });
    }
    running.current = false;
  };
  const shown = result.found;
  const tried = shown?.dry_run && shown.key === key;
  const done = shown && !shown.dry_run;
  const ready = tried && (!action.typed || typed === place.name) && !result.busy;
  const buttons = !done && html`<button onClick=${() => run(true)} disabled=${result.busy}>preview</button>
    <button class="do" onClick=${() => run(false)} disabled=${!ready}>${result.busy ? 'working …' : action.title}</button>`;
  return html`<${Dialog} title=${`${action.title} ${place.name}${action.about ?? ''}`} onClose=${onClose} buttons=${buttons}>
    ${!done && action.choose === 'component' && html`<label>part <select value=${component} onChange=${(event) => setComponent(event.target.value)}>
      ${task && html`<option value=${task}>${taskName(task)}</option>`}<option value="">the whole topology</option>${(plan?.nodes ?? []).map((node) => html`<option key=${node.name} value=${node.name}>${node.name}</option>`)}</select></label>`}
    ${!done && action.choose === 'parallelism' && html`<${Counts} plan=${plan} counts=${counts} onCounts=${setCounts} />`}
    ${shown && html`<p role="status"><b>${shown.text}</b></p>${shown.changes.length > 0 && html`<ul class="changes">${shown.changes.map((change, number) => html`<li key=${number}>${change.text}</li>`)}</ul>`}`}
    <${Trouble} problem=${result.problem} />
    ${tried && action.typed && html`<label>type ${place.name} to confirm <input value=${typed} onInput=${(event) => setTyped(event.target.value)} autocomplete="off" /></label>`}
  <//>`;
}

/** @param {{plan: any, counts: Record<string, number>, onCounts: (counts: Record<string, number>) => void}} props */
function Counts({ plan, counts, onCounts }) {
  const change = (name, was, value) => {
    const { [name]: _, ...rest } = counts;
    onCounts(value === was || !(value > 0) ? rest : { ...rest, [name]: value });
  };
  return html`<div class="counts">${(plan?.nodes ?? []).map((node) => html`<label key=${node.name}>${node.name}
    <input type="number" min="1" max="10000" value=${counts[node.name] ?? node.parallelism} onInput=${(event) => change(node.name, node.parallelism, event.target.valueAsNumber)} /></label>`)}</div>`;
}
