/** Series for charts: what the timeline keeps by the minute, and what this page has seen every two seconds. */

/** Ten minutes at one sample in two seconds, and some more. */
const SAMPLES_MAX = 330;
export const RECENT_S = 600;

/** Columns of the live figures that the timeline keeps under the same names. */
const COLUMNS = [
  'emitted_per_s', 'executed_per_s', 'failed_per_s', 'busy', 'busy_max', 'blocked', 'idle', 'queue_bytes', 'latency_p50_s', 'latency_p99_s',
  'end_to_end_p50_s', 'end_to_end_p99_s', 'complete_p50_s', 'complete_p99_s', 'memory_bytes', 'cpu',
];
/** The topology's own, under the component ''. */
const WHOLE = 'held';

/** What to ask the timeline for. */
export const METRICS = [...COLUMNS, WHOLE];
/** The same for the micro-batches of Spark. */
export const SPARK_METRICS = ['spark_waiting', 'spark_lag_s', 'spark_done', 'spark_batch_s'];

/** What the page has seen of one topology. */
export class Recorder {
  constructor() {
    this.id = '';
    /** @type {{at: number, values: Map<string, number|null>}[]} */
    this.samples = [];
  }

  /** @param {string} id of the topology: another one begins anew @param {any} load */
  see(id, load) {
    if (id !== this.id) [this.id, this.samples] = [id, []];
    if (!load || load.at <= (this.samples.at(-1)?.at ?? 0)) return;
    const values = new Map([[`/${WHOLE}`, load.held]]);
    for (const row of load.components) {
      for (const column of COLUMNS) values.set(`${row.name}/${column}`, row[column] ?? null);
    }
    this.samples.push({ at: load.at, values });
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
  }
}

/** The figures of Spark's batches, all sinks together, as the timeline keeps them: what is done since the look before. */
export class SparkRecorder {
  constructor() {
    this.id = '';
    /** @type {{at: number, values: Map<string, number|null>}[]} */
    this.samples = [];
    this.ended = 0;
    this.took = 0;
  }

  /** @param {string} id of the topology: another one begins anew @param {any[]} sinks @param {number} at seconds since 1970 */
  see(id, sinks, at) {
    if (id !== this.id) [this.id, this.samples] = [id, []];
    const last = this.samples.at(-1);
    if (!sinks.length || (last && at - last.at < 1)) return;
    const sum = (of) => sinks.reduce((total, sink) => total + of(sink), 0);
    const ended = sum((sink) => sink.committed + sink.failed);
    const took = sum((sink) => (sink.committed + sink.failed) * (sink.seconds_per_batch ?? 0));
    // The first look counts from the start; a new Spark gateway counts from 0.
    const [before, tookBefore] = last ? [this.ended, this.took] : [0, 0];
    const more = ended - before;
    const lags = sinks.map((sink) => sink.lag_s).filter((lag) => lag !== null);
    this.samples.push({
      at,
      values: new Map([
        ['/spark_waiting', sinks[0].waiting],
        ['/spark_lag_s', lags.length ? Math.max(...lags) : null],
        ['/spark_done', last && more >= 0 ? more / (at - last.at) : null],
        ['/spark_batch_s', more > 0 && took >= tookBefore ? (took - tookBefore) / more : null],
      ]),
    });
    [this.ended, this.took] = [ended, took];
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
  }
}

/**
 * One timeline from both: minutes up to the first sample, then samples. Longer spans have minutes only.
 * @param {any|null} timeline @param {{samples: {at: number, values: Map<string, number|null>}[]}} recorder @param {number} spanS @param {string} component '' is all
 */
export function joined(timeline, recorder, spanS, component) {
  const samples = spanS <= RECENT_S ? recorder.samples.filter((sample) => sample.at > Date.now() / 1000 - spanS) : [];
  const kept = timeline ?? { times: [], series: [], kept_from: null };
  if (!samples.length) return kept;
  const number = kept.times.filter((at) => at < samples[0].at).length;
  const before = new Map(kept.series.map((series) => [`${series.component}/${series.metric}`, series.values.slice(0, number)]));
  const wanted = (key) => component === '' || key === `/${WHOLE}` || key.startsWith(`${component}/`);
  const keys = [...new Set([...before.keys(), ...samples.at(-1).values.keys()])].filter(wanted);
  const nothing = Array(number).fill(null);
  return {
    kept_from: kept.kept_from,
    times: [...kept.times.slice(0, number), ...samples.map((sample) => sample.at)],
    series: keys.map((key) => ({
      component: key.slice(0, key.lastIndexOf('/')),
      metric: key.slice(key.lastIndexOf('/') + 1),
      values: [...(before.get(key) ?? nothing), ...samples.map((sample) => sample.values.get(key) ?? null)],
    })),
  };
}
