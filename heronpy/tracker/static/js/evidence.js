/** The current activity of a process: stacks, a flame graph, or objects by type, taken after a click on a button. */

import { useMay } from './actions.js';
import { get, pathOf, post } from './api.js';
import { figure, plain } from './columns.js';
import { bytes, count, duration, share, taskName, text, time } from './format.js';
import { onPage } from './keys.js';
import { Section, Table, Trouble } from './parts.js';
import { html, useEffect, useMemo, useRef, useState } from './ui.js';

const WIDTH = 1200;
const ROW = 17;

/** @param {{place: any, process: string, cpu: number|null}} props `cpu`: cores that the process has used in the last seconds */
export function Evidence({ place, process, cpu }) {
  const used = useRef(cpu);
  used.current = cpu;
  const allowed = useMay();
  const [{ kind, found, problem }, set] = useState({});
  const box = useRef(null);
  const take = async (kind) => {
    const pause = kind === 'heap';
    if (pause && !confirm(`${process} stops for up to 2 s while its objects are counted.`)) return;
    const path = pathOf(place, 'tasks', process, kind);
    set({ kind });
    try {
      let found = await post(path, { pause });
      while (found.under_way) {
        await new Promise((done) => setTimeout(done, 500));
        found = await get(path);
      }
      set({ found: { ...found, cpu: used.current } });
    } catch (problem) {
      set({ problem });
    }
  };
  useEffect(() => {
    if (!allowed) return undefined;
    onPage.take = (asked) => kind || take(asked);
    if (onPage.wanted && !kind) {
      const { wanted } = onPage;
      onPage.wanted = '';
      take(wanted);
    }
    return () => {
      onPage.take = null;
    };
  });
  // The arrow keys scroll the answer.
  useEffect(() => box.current?.querySelector('[tabindex]')?.focus(), [found]);
  return allowed && html`<${Section} title="current activity" aside=${html`<span class="spans">${['stacks', 'profile', 'heap'].map((one) => html`<button key=${one} disabled=${kind} title=${`key ${one[0]}`} onClick=${() => take(one)}>${one}</button>`)}</span>`}>
    ${kind && html`<p role="status">collecting ${kind} …</p>`}
    <${Trouble} problem=${problem} />
    <div ref=${box}>
      ${found && html`<h3>${found.kind} of ${taskName(process)} at ${time(found.at)}</h3>`}
      ${found?.stacks && html`<div class="exception"><pre tabindex="0" aria-label="stacks">${found.stacks}</pre></div>`}
      ${found?.profile && html`<${Flame} profile=${found.profile} takes=${found.takes_s} cpu=${found.cpu} />`}
      ${found?.heap && html`<${Heap} heap=${found.heap} />`}
    </div>
  <//>`;
}

/** A table of rows by name, sorted by the column `order`, the largest first. */
const table = (caption, rows, order, ...columns) => html`<${Table} caption=${caption} rows=${rows} order=${order} down=${true} name=${(row) => row.name} columns=${[plain(caption, 'name', text), ...columns.map((column) => figure(...column))]} />`;

/** Callers are above. The width of a box is its share of time, its colour the share of the function itself. @param {{profile: any, takes: number, cpu: number|null}} props */
function Flame({ profile, takes, cpu }) {
  const [boxes, rows] = useMemo(() => laidOut(profile), [profile]);
  const said = (seconds) => share(seconds / profile.seconds);
  return html`<p>The process used <b>${count(cpu)} of a core</b>. Shown are the ${duration(profile.seconds)} of ${duration(takes)} in which its threads ran or were ready to run, sampled by ${profile.sampler}. ${profile.note}</p>
    <div class="graph scroll" role="region" tabindex="0" aria-label="flame graph"><svg width=${WIDTH} height=${ROW * (1 + Math.max(0, ...boxes.map((box) => box.level)))}>
      ${boxes.map(({ name, seconds, own, left, level, width }) => html`<g class=${`node level${Math.ceil((4 * own) / seconds)}`} transform=${`translate(${left} ${level * ROW})`}>
        <title>${`${name}: ${said(seconds)}`}</title><rect class="box" width=${width} height=${ROW} /><text class="word" x="3" y="12">${name.slice(0, Math.max(0, width - 6) / 7)}</text></g>`)}
    </svg></div>
    ${table('function', rows, 'itself', ['itself', 'own', said], ['including calls', 'seconds', said])}`;
}

/** The boxes of the graph, and a row for each function. */
function laidOut({ frames, stacks, seconds: all }) {
  const rows = new Map();
  const root = new Map();
  for (const { stack, seconds } of stacks) {
    const names = stack.map((number) => frames[number]);
    const add = (to, name, own) => {
      if (!to.has(name)) to.set(name, { name, seconds: 0, own: 0, below: new Map() });
      const one = to.get(name);
      one.seconds += seconds;
      one.own += own && seconds;
      return one.below;
    };
    names.reduce((below, name, depth) => add(below, name, depth === names.length - 1), root);
    new Set(names).forEach((name) => add(rows, name, name === names.at(-1)));
  }
  const boxes = [];
  const draw = (below, left, level) => {
    for (const one of below.values()) {
      const width = (one.seconds / all) * WIDTH;
      if (width < 2) continue;
      boxes.push({ ...one, left, level, width });
      draw(one.below, left, level + 1);
      left += width;
    }
  };
  draw(root, 0, 0);
  return [boxes, [...rows.values()]];
}

/** @param {{heap: any}} props */
function Heap({ heap }) {
  return html`<p>${count(heap.objects)} objects use ${bytes(heap.bytes)} of ${bytes(heap.memory_bytes)}; code and C extensions use the remainder. The process stopped for ${duration(heap.paused_s)}.${heap.share < 1 && ` Estimated from ${share(heap.share)} of the objects.`}</p>
    ${table('type', heap.types, 'bytes', ['objects', 'count', count], ['bytes', 'bytes', bytes])}`;
}
