/** Charts and events of a topology or of one component. */

import { pathOf } from './api.js';
import { Charts, OF_COMPONENT, OF_SPARK, OF_TOPOLOGY, SPANS, Spans, reachable } from './charts.js';
import { duration, taskName } from './format.js';
import { onPage } from './keys.js';
import { merged } from './live_state.js';
import { Section, Trouble, When } from './parts.js';
import { replaceQuery } from './route.js';
import { METRICS, RECENT_S, Samples, joined } from './series.js';
import { html, rarely, useEffect, useGet, useMemo } from './ui.js';

const POINTS = 300;
/** Samples of the last minutes in one answer: one or two pixels for each on a chart. */
const SAMPLES = 200;
const SHOWN = 40;
/** Seconds between two drawings of charts: four pixels of ten minutes. */
const DRAWN_S = 6;
/** The samples of the current topology, which its pages share. */
const recent = new Samples();
const NO_NODES = [];
/** The spouts that have been seen to emit, by topology and name. */
const emitting = new Set();

/** The spouts that have emitted since the pages were opened, and emit nothing now. @param {any} topology @param {any} load */
export function stoppedSpouts({ id }, load) {
  const spouts = load?.components.filter((row) => row.kind === 'spout') ?? [];
  for (const { name, emitted_per_s } of spouts) if (emitted_per_s > 0) emitting.add(id + name);
  return spouts.filter(({ name, emitted_per_s }) => emitted_per_s === 0 && emitting.has(id + name)).map(({ name }) => name);
}

/** Samples since the last answer, at first those of the last minutes. @param {any} place @param {string} id @param {boolean} wanted */
function useSamples(place, id, wanted) {
  recent.of(id);
  const { data } = useGet(wanted ? pathOf(place, 'timeline') : null, () => ({ since: recent.of(id) || -RECENT_S, points: SAMPLES, metric: METRICS, samples: 1 }), DRAWN_S);
  useMemo(() => data && recent.take(id, data), [data]);
  return data;
}

/** All known events, the newest last, and the start of the topology. @param {any} place @param {any} state */
export function useEvents(place, state) {
  // Requested again after each opening of the stream, which has only later events, and after the end of the start.
  const asked = useGet(pathOf(place, 'events'), { limit: 300 }, 0);
  const status = state.status;
  useEffect(() => {
    if (status === 'live') asked.again();
  }, [status, state.snapshot?.topology?.state]);
  return { start: asked.data?.start, events: useMemo(() => merged(asked.data?.events ?? [], state.events), [asked.data, state.events]) };
}

/** @param {{route: any, state: any, events: any[], component?: string, spark?: boolean}} props */
export function ChartsOf({ route, state, events, component = '', spark = false }) {
  const span = SPANS.some(([name]) => name === route.query.span) ? route.query.span : '10m';
  const seconds = SPANS.find(([name]) => name === span)[1];
  const query = { since: -seconds, points: POINTS, metric: METRICS, ...((component || spark) && { component: component ? [component, ''] : [''] }) };
  const ended = state.status === 'gone';
  const asked = useGet(pathOf(route.place, 'timeline'), query, ended ? 0 : 30);
  const load = state.snapshot?.load;
  const topology = state.snapshot?.topology;
  const began = Math.round((topology?.ended_at ?? load?.at ?? 0) - (topology?.uptime_s ?? 0));
  const keptFrom = asked.data?.kept_from ?? null;
  const choose = (name) => replaceQuery(route, { span: name === '10m' ? '' : name });
  useEffect(() => {
    onPage.span = (number) => reachable(number, keptFrom) && choose(SPANS[number][0]);
    return () => {
      onPage.span = null;
    };
  });
  return html`<${Section} title="charts" aside=${html`<${Spans} span=${span} keptFrom=${keptFrom} onSpan=${choose} />`}>
    <${Drawn} place=${route.place} id=${topology?.id ?? ''} live=${topology && !ended && !topology.ended_at} data=${asked.data} problem=${asked.problem} seconds=${seconds} component=${component} spark=${spark} events=${events} held=${load?.culprits} nodes=${state.snapshot?.plan?.nodes ?? NO_NODES} began=${began} />
  <//>`;
}

/** A present episode of backpressure, as an event. @param {any} culprit @param {number} at */
export const lasting = ({ name, since_s }, at) => ({ kind: 'backpressure', subject: name, at, first_at: at, lasted_s: since_s, times: 1, text: `the spouts are held because of ${taskName(name)}` });

/** Charts of the kept timeline and, while they are in sight, of the newest samples. Out of sight they are seldom updated. */
const Drawn = rarely(({ place, id, live, data, problem, seconds, component, spark, events, held, nodes, began, near }) => {
  const told = useSamples(place, id, near && live && seconds <= RECENT_S);
  const charts = spark ? OF_SPARK : component ? OF_COMPONENT : OF_TOPOLOGY;
  const timeline = useMemo(() => joined(data, recent, seconds, component, began, charts.flatMap((chart) => Object.keys(chart.lines))), [data, told, seconds, component]);
  // An episode becomes an event when it is over.
  const marks = useMemo(() => {
    const mine = (held ?? []).filter((one) => !component || one.component === component);
    return [...events, ...mine.map((one) => lasting(one, timeline.times.at(-1)))];
  }, [events, timeline]);
  return html`<div>
    ${!timeline.times.length && html`<${Trouble} problem=${problem} />`}
    <${Charts} charts=${charts} timeline=${timeline} events=${marks} nodes=${nodes} />
  </div>`;
}, ['id', 'live', 'problem', 'seconds', 'component', 'spark', 'nodes'], ['data', 'events', 'began']);

/** The events, the newest first. @param {{events: any[]}} props */
export const Events = rarely(({ events }) => {
  const newest = events.slice(-SHOWN).reverse();
  return html`<${Section} title="events">
    ${newest.length === 0 ? html`<p class="quiet">No events yet.</p>` : html`<ol class="events" tabindex="0" aria-label="events, the newest first">${newest.map((event) => html`<li key=${event.number} class=${event.warning ? 'warn' : ''}>
      <${When} at=${event.at} /> <span class="kind">${event.warning ? '! ' : ''}${event.kind}</span>
      <span>${event.text}${event.times > 1 ? ` (${event.lasted_s ? 'the last of ' : ''}${event.times} times)` : ''}${event.lasted_s ? `, ${duration(event.lasted_s)}${event.times > 1 ? ' in total' : ''}` : ''}${!event.text.includes(event.detail) && html`<code>${event.detail}</code>`}</span>
    </li>`)}</ol>`}
  <//>`;
}, ['events']);
