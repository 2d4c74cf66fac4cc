/** Series for charts: samples of the last minutes every few seconds, and means that are kept by the minute. */

export const RECENT_S = 600;

/** The metrics to request: of components, and, with component '', of the topology and of the micro-batches of Spark. */
export const METRICS = [
  'emitted_per_s', 'executed_per_s', 'failed_per_s', 'busy', 'busy_max', 'blocked', 'idle', 'queue_bytes', 'queue_bytes_max',
  'latency_p50_s', 'latency_p99_s', 'end_to_end_p50_s', 'end_to_end_p99_s', 'complete_p50_s', 'complete_p99_s', 'memory_bytes',
  'memory_bytes_max', 'cpu', 'held', 'spark_waiting', 'spark_lag_s', 'spark_done', 'spark_batch_s',
];

/** Samples that are further apart have no line between them. Means may fill the gap. */
const GAP_S = 30;
/** Means that are more steps apart have no line between them; the same holds between a mean and a sample, as the newest mean is late. */
const STEPS = 2.5;

/** The samples of one topology, a column of values for each key: `component/metric`. */
export class Samples {
  id = '';
  /** @type {number[]} */
  times = [];
  /** @type {Map<string, (number|null)[]>} */
  series = new Map();

  /** Another topology begins without samples. @param {string} id @returns {number} the time of the last sample; 0 without one */
  of(id) {
    if (id !== this.id) Object.assign(this, { id, times: [], series: new Map() });
    return this.times.at(-1) ?? 0;
  }

  /** Add new samples, which may overlap with known ones. @param {string} id of the topology @param {any} timeline */
  take(id, { times, series }) {
    this.of(id);
    if (!times.length) return;
    const [size, known] = [this.times.length, this.times.findIndex((at) => at >= times[0])];
    const end = known < 0 ? size : known;
    const old = [...this.times.slice(0, end), ...times].findIndex((at) => at > times.at(-1) - RECENT_S);
    const more = new Map(series.map((one) => [`${one.component}/${one.metric}`, one.values]));
    const nothing = times.map(() => null);
    for (const key of more.keys()) if (!this.series.has(key)) this.series.set(key, Array(size).fill(null));
    for (const [key, values] of [['', this.times], ...this.series]) {
      values.splice(end, size, ...(values === this.times ? times : more.get(key) ?? nothing));
      values.splice(0, old);
    }
  }
}

/** @param {string} key */
const metricOf = (key) => key.slice(key.lastIndexOf('/') + 1);

/**
 * One timeline from samples, and from means by the minute before and between them.
 * Longer spans have means only. A mean is a point in the middle of its minute or longer step. A time without both is a gap.
 * @param {any|null} timeline @param {Samples} recent @param {number} spanS @param {string} component '' is all
 * @param {number} [began] begin of the topology, after that of the first minute @param {string[]} [metrics] that are shown
 */
export function joined(timeline, recent, spanS, component, began = 0, metrics = METRICS) {
  const kept = timeline ?? { times: [], step_s: 0, series: [], kept_from: null };
  const isShort = spanS <= RECENT_S;
  const seen = isShort ? recent.times : [];
  const points = kept.times.map((at) => (Math.max(at, began) + at + kept.step_s) / 2);
  // All times are of the tracker's machine; the clock of the browser may differ.
  const from = isShort ? Math.max(seen.at(-1) ?? 0, points.at(-1) ?? 0) - spanS : -Infinity;
  // Times, and the index of their values: of a step, of a sample, or -1.
  const times = [];
  const steps = [];
  const samples = [];
  const push = (at, step, sample) => {
    times.push(at);
    steps.push(step);
    samples.push(sample);
  };
  const put = (at, step, sample) => {
    if (at < from) return;
    const reach = step >= 0 || steps.at(-1) >= 0 ? STEPS * kept.step_s : GAP_S;
    if (at - times.at(-1) > reach) push(times.at(-1) + 1, -1, -1);
    push(at, step, sample);
  };
  let step = 0;
  const putUntil = (until, told) => {
    for (; points[step] < until; step++) if (until - told > GAP_S && points[step] > told) put(points[step], step, -1);
  };
  seen.forEach((at, sample) => {
    putUntil(at, seen[sample - 1] ?? -Infinity);
    put(at, -1, sample);
  });
  putUntil(Infinity, seen.at(-1) ?? -Infinity);
  const minutes = new Map(kept.series.map((series) => [`${series.component}/${series.metric}`, series.values]));
  const wanted = (key) => (component === '' || key === '/held' || key.startsWith(`${component}/`)) && metrics.includes(metricOf(key));
  return {
    kept_from: kept.kept_from,
    times,
    series: [...new Set([...minutes.keys(), ...(isShort ? recent.series.keys() : [])])].filter(wanted).map((key) => {
      const [ofSteps, ofSamples] = [minutes.get(key), recent.series.get(key)];
      return {
        component: key.slice(0, key.lastIndexOf('/')),
        metric: metricOf(key),
        values: times.map((_, number) => ofSteps?.[steps[number]] ?? ofSamples?.[samples[number]] ?? null),
      };
    }),
  };
}
