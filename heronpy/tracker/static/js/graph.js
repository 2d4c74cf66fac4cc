/** The graph of a topology: dagre computes the layout, drawn as SVG. Nodes are links; arrow keys follow the edges. */

import { layout, Graph } from '../vendor/dagre.esm.js';
import { bytes, grouping, rate, share } from './format.js';
import { measure } from './levels.js';
import { to } from './route.js';
import { html, rarely, useMemo, useState } from './ui.js';

const NODE = { width: 186, height: 66 };
/** With more components, only tables are shown. */
const NODES_MAX = 200;
const PX_PER_LETTER = 6.6;

/** @param {string} text @param {number} letters */
const cut = (text, letters) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);

/** @param {any} plan @returns {{nodes: any[], edges: any[], width: number, height: number}} */
function placed(plan) {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: 'LR', nodesep: 26, ranksep: 46, edgesep: 18, marginx: 8, marginy: 8 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of plan.nodes) graph.setNode(node.name, { ...NODE });
  for (const edge of plan.edges) {
    const label = cut(grouping(edge), 22);
    graph.setEdge(edge.source, edge.target, { width: Math.max(62, label.length * PX_PER_LETTER), height: 30, labelpos: 'c' }, edge.id);
  }
  layout(graph);
  const { width, height } = graph.graph();
  return {
    nodes: plan.nodes.map((node) => ({ node, ...graph.node(node.name) })),
    edges: plan.edges.map((edge) => {
      const found = graph.edge(edge.source, edge.target, edge.id);
      return { edge, x: found.x, y: found.y, width: found.width, drawn: line(found.points) };
    }),
    width: Math.ceil(width),
    height: Math.ceil(height),
  };
}

/** A smooth line through the points. @param {{x: number, y: number}[]} points */
function line(points) {
  if (points.length < 3) return points.map((point, number) => `${number ? 'L' : 'M'}${point.x} ${point.y}`).join('');
  let drawn = `M${points[0].x} ${points[0].y}`;
  for (let number = 1; number < points.length - 1; number++) {
    const [here, next] = [points[number], points[number + 1]];
    const last = number === points.length - 2;
    const [x, y] = last ? [next.x, next.y] : [(here.x + next.x) / 2, (here.y + next.y) / 2];
    drawn += `Q${here.x} ${here.y} ${x} ${y}`;
  }
  return drawn;
}

/**
 * @param {{place: any, plan: any, load: any, by: string, marked: string, onMark: (component: string) => void}} props
 */
function Drawing({ place, plan, load, by, marked, onMark }) {
  const shape = useMemo(() => JSON.stringify([plan.nodes.map((node) => node.name), plan.edges.map((edge) => [edge.id, edge.grouping, edge.fields])]), [plan]);
  const drawing = useMemo(() => (plan.nodes.length > NODES_MAX ? null : placed(plan)), [shape]);
  // Tab reaches one node, and arrow keys the others.
  const [stop, setStop] = useState('');
  const first = plan.nodes.some((node) => node.name === stop) ? stop : plan.nodes[0]?.name;
  if (drawing === null) {
    return html`<p class="quiet">The graph has ${plan.nodes.length} components, too many to draw; the tables below list all of them.</p>`;
  }
  const loads = new Map((load?.components ?? []).map((row) => [row.name, row]));
  const rates = new Map((load?.edges ?? []).map((row) => [row.id, row.tuples_per_s]));
  const culprits = new Set((load?.culprits ?? []).map((one) => one.component));
  // Focus is handled here, because an SVG with a handler would be a stop of Tab itself.
  return html`<div class="graph scroll" role="group" aria-label="graph of the topology" onfocusin=${(event) => setStop(nameOf(event.target))}>
    <svg class=${marked ? 'marking' : ''} viewBox=${`0 0 ${drawing.width} ${drawing.height}`} width=${drawing.width} height=${drawing.height}
      role="group" aria-label="components and the streams between them" onKeyDown=${(event) => walk(event, plan)}>
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" /></marker></defs>
      ${drawing.edges.map((one) => html`<${EdgeView} key=${one.edge.id} one=${one} said=${rate(rates.get(one.edge.id))} near=${marked === one.edge.source || marked === one.edge.target} />`)}
      ${drawing.nodes.map((one) => html`<${NodeView} key=${one.node.name} place=${place} one=${one} row=${loads.get(one.node.name)} held=${load?.held} by=${by}
        culprit=${culprits.has(one.node.name)} marked=${marked === one.node.name} stop=${first === one.node.name} onMark=${onMark} />`)}
    </svg>
  </div>`;
}

/** Rendered again only after a change of a figure or a mark. */
export const GraphView = rarely(Drawing, ['plan', 'by', 'marked'], ['load']);

const EdgeView = rarely(({ one, said, near }) => {
  const { edge, x, y, drawn } = one;
  const keyed = edge.grouping === 'FIELDS';
  const stream = edge.stream && edge.stream !== 'default' ? ` ${edge.stream}` : '';
  const label = grouping(edge);
  return html`<g class=${`edge${keyed ? ' keyed' : ''}${near ? ' near' : ''}`} role="img" aria-label=${`${edge.source} to ${edge.target}${stream}: ${label}, ${said}`}>
    <title>${`${edge.source} → ${edge.target}${stream}, ${label}`}</title>
    <path d=${drawn} />
    ${keyed && html`<path class="inner" d=${drawn} />`}
    <path class="tip" d=${drawn} marker-end="url(#arrow)" />
    <rect class="behind" x=${x - one.width / 2} y=${y - 15} width=${one.width} height="30" rx="3" />
    <text x=${x} y=${y - 3} text-anchor="middle">${cut(label, 22)}</text>
    <text class="rate" x=${x} y=${y + 10} text-anchor="middle">${said}</text>
  </g>`;
}, ['one', 'near'], ['said']);

const NodeView = rarely(({ place, one, row, held, by, culprit, marked, stop, onMark }) => {
  const { node } = one;
  const [x, y] = [one.x - NODE.width / 2, one.y - NODE.height / 2];
  const by_ = measure(by);
  const level = row ? by_.component(row) : { level: 0, part: null, word: 'unknown', shown: '-' };
  const down = row ? row.tasks - row.up : 0;
  const spout = node.kind === 'spout';
  const state = down > 0 ? `${down} down` : culprit ? 'holds spouts' : spout && held > 0.05 ? (row?.emitted_per_s === 0 ? 'stopped, held' : `held ${share(held)}`) : '';
  const second = spout ? rate(row?.emitted_per_s) : `${rate(row?.executed_per_s)}, ${bytes(row?.queue_bytes)}`;
  const label = `${node.kind} ${node.name}, ${row?.tasks ?? node.parallelism} tasks, ${by_.title} ${level.shown} ${level.word}, ${second}${state && `, ${state}`}`;
  return html`<a href=${to(place, 'component', node.name)} data-node=${node.name} data-row tabindex=${stop ? 0 : -1} aria-label=${label}
    class=${`node level${level.level}${down > 0 ? ' down' : ''}${culprit ? ' culprit' : ''}${marked ? ' marked' : ''}`}
    onMouseEnter=${() => onMark(node.name)} onMouseLeave=${() => onMark('')} onFocus=${() => onMark(node.name)} onBlur=${() => onMark('')}>
    <title>${label}</title>
    <rect class="box" x=${x} y=${y} width=${NODE.width} height=${NODE.height} rx=${spout ? 16 : 4} />
    <text class="name" x=${x + 12} y=${y + 19}>${cut(node.name, 18)}</text>
    <text x=${x + NODE.width - 12} y=${y + 19} text-anchor="end">×${row?.tasks ?? node.parallelism}</text>
    <text x=${x + 12} y=${y + 35}>${by_.title} ${level.shown}</text>
    <text class=${state ? 'said' : 'word'} x=${x + NODE.width - 12} y=${y + 35} text-anchor="end">${state || (level.level > 2 ? level.word : '')}</text>
    <text class="rate" x=${x + 12} y=${y + 50}>${second}</text>
    <rect class="rail" x=${x + 12} y=${y + 56} width=${NODE.width - 24} height="4" rx="2" />
    ${level.part !== null && html`<rect class="bar" x=${x + 12} y=${y + 56} width=${Math.max(1, (NODE.width - 24) * level.part)} height="4" rx="2" />`}
  </a>`;
}, ['one', 'by', 'culprit', 'marked', 'stop'], ['row', 'held']);

/** @param {any} element in a node, or none */
const nameOf = (element) => element.closest('[data-node]')?.dataset.node;

/**
 * Arrow keys: right and left follow the edges; up and down go through the nodes with the same source, then through all nodes.
 * @param {KeyboardEvent} event @param {any} plan
 */
function walk(event, plan) {
  const here = nameOf(event.target);
  if (!here || !event.key.startsWith('Arrow')) return;
  const after = (name) => plan.edges.filter((edge) => edge.source === name).map((edge) => edge.target);
  const before = (name) => plan.edges.filter((edge) => edge.target === name).map((edge) => edge.source);
  const parents = before(here);
  const all = plan.nodes.map((node) => node.name);
  const siblings = [...new Set(parents.length ? parents.flatMap(after) : all.filter((name) => !before(name).length))];
  const beside = (step) => siblings[siblings.indexOf(here) + step] ?? all[all.indexOf(here) + step];
  const next = { ArrowRight: after(here)[0], ArrowLeft: parents[0], ArrowUp: beside(-1), ArrowDown: beside(1) }[event.key];
  event.preventDefault();
  if (next !== undefined) event.currentTarget.querySelector(`[data-node="${CSS.escape(next)}"]`)?.focus();
}
