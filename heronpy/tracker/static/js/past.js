/** Charts and events of a topology or of one component. */

import { pathOf } from './api.js';
import { Charts, OF_COMPONENT, OF_SPARK, OF_TOPOLOGY, SPANS, Spans, reachable } from './charts.js';
import { duration } from './format.js';
import { onPage } from './keys.js';
import { merged } from './live_state.js';
import { Section, Trouble, When } from './parts.js';
import { replaceQuery } from './route.js';
import { METRICS, Recorder, SPARK_METRICS, SparkRecorder, joined } from './series.js';
import { html, rarely, useEffect, useGet, useMemo } from './ui.js';

const POINTS = 300;
const SHOWN = 40;
/** Charts are drawn again after so many seconds: in ten minutes that is four pixels. */
const DRAWN_S = 6;
/** Of the topology that is looked at; pages of one topology share it. */
const recorder = new Recorder();
const sparkRecorder = new SparkRecorder();
const UNSEEN = new SparkRecorder();
const NO_NODES = [];

/** Remember what the live stream says. @param {any} state */
export function useRecorder(state) {
  const snapshot = state.snapshot;
  if (snapshot?.load && snapshot.topology && !snapshot.topology.ended_at) recorder.see(snapshot.topology.id, snapshot.load);
}

/** The spouts that this page has seen emit, and that emit nothing now. @param {any} load */
export const stoppedSpouts = (load) => load?.components.filter((row) => row.kind === 'spout' && row.emitted_per_s === 0 && recorder.series.get(`${row.name}/emitted_per_s`)?.some((value) => value > 0)).map((row) => row.name) ?? [];

/** Remember what is asked of Spark's batches. @param {any} state @param {any} batches */
export function useSparkRecorder(state, batches) {
  const topology = state.snapshot?.topology;
  useMemo(() => {
    if (batches && topology && !topology.ended_at) sparkRecorder.see(topology.id, batches.sinks, Date.now() / 1000);
  }, [batches, topology?.id]);
}

/** All events that are known, the newest last. @param {any} place @param {any} state */
export function useEvents(place, state) {
  // Asked again after each opening of the stream: it tells only what is new since then.
  const asked = useGet(pathOf(place, 'events'), { limit: 300 }, 0);
  const status = state.status;
  useEffect(() => {
    if (status === 'live') asked.again();
  }, [status]);
  return useMemo(() => merged(asked.data?.events ?? [], state.events), [asked.data, state.events]);
}

/** What was seen of this topology's batches. @param {any} state */
const ownSpark = (state) => (sparkRecorder.id === state.snapshot?.topology?.id ? sparkRecorder : UNSEEN);

/** @param {{route: any, state: any, events: any[], component?: string, spark?: boolean}} props */
export function ChartsOf({ route, state, events, component = '', spark = false }) {
  const span = SPANS.some(([name]) => name === route.query.span) ? route.query.span : '10m';
  const seconds = SPANS.find(([name]) => name === span)[1];
  const query = { since: -seconds, points: POINTS, metric: spark ? SPARK_METRICS : METRICS, ...((component || spark) && { component: component ? [component, ''] : [''] }) };
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
    <${Drawn} data=${asked.data} problem=${asked.problem} at=${load && Math.floor(load.at / DRAWN_S)} seconds=${seconds} component=${component} spark=${spark} own=${spark ? ownSpark(state) : recorder} events=${events} nodes=${state.snapshot?.plan?.nodes ?? NO_NODES} began=${began} />
  <//>`;
}

/** What was asked for and what this page has seen since. While it is out of sight that is seldom put together. */
const Drawn = rarely(({ data, problem, at, seconds, component, spark, own, events, nodes, began }) => {
  const timeline = useMemo(() => joined(data, own, seconds, component, began), [data, at, own, seconds, component]);
  return html`<div>
    ${!timeline.times.length && html`<${Trouble} problem=${problem} />`}
    <${Charts} charts=${spark ? OF_SPARK : component ? OF_COMPONENT : OF_TOPOLOGY} timeline=${timeline} events=${events} nodes=${nodes} />
  </div>`;
}, ['problem', 'seconds', 'component', 'spark', 'own', 'nodes'], ['data', 'at', 'events', 'began']);

/** What happened, the newest first. @param {{events: any[]}} props */
export const Events = rarely(({ events }) => {
  const newest = events.slice(-SHOWN).reverse();
  return html`<${Section} title="events">
    ${newest.length === 0 ? html`<p class="quiet">Nothing has happened yet.</p>` : html`<ol class="events" tabindex="0" aria-label="events, the newest first">${newest.map((event) => html`<li key=${event.number} class=${event.warning ? 'warn' : ''}>
      <${When} at=${event.at} /> <span class="kind">${event.warning ? '! ' : ''}${event.kind}</span>
      <span>${event.text}${event.times > 1 ? ` (${event.times} times)` : ''}${event.lasted_s ? `, ${duration(event.lasted_s)}` : ''}${!event.text.includes(event.detail) && html`<code>${event.detail}</code>`}</span>
    </li>`)}</ol>`}
  <//>`;
}, ['events']);
