/** Series for charts: what the timeline keeps by the minute, and what this page has seen every two seconds. */

/** Ten minutes at one sample in two seconds, and some more. */
const SAMPLES_MAX = 330;
export const RECENT_S = 600;

/** Columns of the live figures that the timeline keeps under the same names. */
const COLUMNS = [
  'emitted_per_s', 'executed_per_s', 'failed_per_s', 'busy', 'busy_max', 'blocked', 'idle', 'queue_bytes', 'queue_bytes_max',
  'latency_p50_s', 'latency_p99_s', 'end_to_end_p50_s', 'end_to_end_p99_s', 'complete_p50_s', 'complete_p99_s', 'memory_bytes',
  'memory_bytes_max', 'cpu',
];
/** The topology's own, under the component ''. */
const WHOLE = 'held';

/** What to ask the timeline for. */
export const METRICS = [...COLUMNS, WHOLE];
/** The same for the micro-batches of Spark. */
export const SPARK_METRICS = ['spark_waiting', 'spark_lag_s', 'spark_done', 'spark_batch_s'];

/** Samples that are further apart have no line between them: minutes tell of that time, or nothing does. */
const GAP_S = 30;
/** The least part of a minute that is drawn beside samples. */
const PART_S = 5;
/** Between two points that are at the same time: where one step ends and the next begins. */
const TINY_S = 0.001;

/** What the page has seen of one topology, a column of values for each key: `component/metric`. */
export class Recorder {
  constructor() {
    this.#anew('');
  }

  #anew(id) {
    this.id = id;
    /** @type {number[]} */
    this.times = [];
    /** @type {Map<string, (number|null)[]>} */
    this.series = new Map();
  }

  /** Another topology begins anew. @param {string} id @returns {number} when the last sample was taken; 0: there is none */
  of(id) {
    if (id !== this.id) this.#anew(id);
    return this.times.at(-1) ?? 0;
  }

  /** @param {number} at @param {[string, number|null|undefined][]} figures */
  add(at, figures) {
    for (const [key, value] of figures) {
      if (!this.series.has(key)) this.series.set(key, Array(this.times.length).fill(null));
      this.series.get(key).push(value ?? null);
    }
    const size = this.times.push(at);
    for (const values of this.series.values()) {
      if (values.length < size) values.push(null);
      if (size > SAMPLES_MAX) values.shift();
    }
    if (size > SAMPLES_MAX) this.times.shift();
  }

  /** @param {string} id of the topology @param {any} load */
  see(id, load) {
    if (load?.at > this.of(id)) this.add(load.at, [[`/${WHOLE}`, load.held], ...load.components.flatMap((row) => COLUMNS.map((column) => [`${row.name}/${column}`, row[column] ?? (column === 'queue_bytes_max' && row.queue_bytes === 0 ? 0 : null)]))]);
  }
}

/** The figures of Spark's batches, all sinks together, as the timeline keeps them: what is done since the look before. */
export class SparkRecorder extends Recorder {
  ended = 0;
  took = 0;

  /** @param {string} id of the topology @param {any[]} sinks @param {number} at seconds since 1970 */
  see(id, sinks, at) {
    const last = this.of(id);
    if (!sinks.length || at - last < 1) return;
    const sum = (of) => sinks.reduce((total, sink) => total + of(sink), 0);
    const ended = sum((sink) => sink.committed + sink.failed);
    const took = sum((sink) => (sink.committed + sink.failed) * (sink.seconds_per_batch ?? 0));
    // The first look counts from the start; a new Spark gateway counts from 0.
    const [before, tookBefore] = last ? [this.ended, this.took] : [0, 0];
    const more = ended - before;
    const lags = sinks.map((sink) => sink.lag_s).filter((lag) => lag !== null);
    this.add(at, [
      ['/spark_waiting', sinks[0].waiting],
      ['/spark_lag_s', lags.length ? Math.max(...lags) : null],
      ['/spark_done', last && more >= 0 ? more / (at - last) : null],
      ['/spark_batch_s', more > 0 && took >= tookBefore ? (took - tookBefore) / more : null],
    ]);
    [this.ended, this.took] = [ended, took];
  }
}

/**
 * One timeline from both: what this page has seen, and minutes before and where it has not looked, as while its tab was
 * hidden. Longer spans have minutes only. A minute, or a longer step, is a mean: it has the same value from its beginning
 * to its end, so that no line runs from the middle of nowhere to the next sample. Where neither tells is a gap.
 * @param {any|null} timeline @param {Recorder} recorder @param {number} spanS @param {string} component '' is all
 * @param {number} [began] the first minute began before the topology did
 */
export function joined(timeline, recorder, spanS, component, began = 0) {
  const kept = timeline ?? { times: [], step_s: 0, series: [], kept_from: null };
  const recent = spanS <= RECENT_S;
  const seen = recent ? recorder.times : [];
  // Both tell the time of the tracker's machine; that of the browser may be another.
  const from = recent ? Math.max(seen.at(-1) ?? 0, kept.times.at(-1) ?? 0) - spanS : -Infinity;
  // Times, and where their values are: of a step, of a sample, or nowhere.
  const times = [];
  const steps = [];
  const samples = [];
  const put = (at, step, sample) => {
    times.push(at);
    steps.push(step);
    samples.push(sample);
  };
  const begin = (at) => {
    const last = times.at(-1);
    if (at - last > 2 * PART_S) put(last + TINY_S, -1, -1);
  };
  let step = 0;
  const stepsBetween = (after, until) => {
    for (; kept.times[step] < until; step++) {
      const [first, last] = [Math.max(kept.times[step], after, kept.step_s < GAP_S ? 0 : began), Math.min(kept.times[step] + kept.step_s, until)];
      if (kept.times[step] <= from) continue;
      if (kept.step_s < GAP_S) {
        // Samples of a topology that was short.
        begin(first);
        put(first, step, -1);
      } else if (last - first > PART_S) {
        begin(first);
        put(first + TINY_S, step, -1);
        put(last - TINY_S, step, -1);
      }
      if (last === until) return;
    }
  };
  let told = -Infinity;
  seen.forEach((at, sample) => {
    if (at <= from) return;
    if (at - told > GAP_S) {
      stepsBetween(told, at);
      begin(at);
    }
    put(at, -1, sample);
    told = at;
  });
  stepsBetween(told, Infinity);
  const minutes = new Map(kept.series.map((series) => [`${series.component}/${series.metric}`, series.values]));
  const wanted = (key) => component === '' || key === `/${WHOLE}` || key.startsWith(`${component}/`);
  return {
    kept_from: kept.kept_from,
    times,
    series: [...new Set([...minutes.keys(), ...(recent ? recorder.series.keys() : [])])].filter(wanted).map((key) => {
      const [ofSteps, ofSamples] = [minutes.get(key), recorder.series.get(key)];
      return {
        component: key.slice(0, key.lastIndexOf('/')),
        metric: key.slice(key.lastIndexOf('/') + 1),
        values: times.map((_, number) => ofSteps?.[steps[number]] ?? ofSamples?.[samples[number]] ?? null),
      };
    }),
  };
}
