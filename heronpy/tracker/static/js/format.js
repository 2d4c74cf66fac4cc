/** Numbers, times and sizes as text. An unknown value is "-". */

export const UNKNOWN = '-';

const UNITS = [[1e12, ' T'], [1e9, ' G'], [1e6, ' M'], [1e3, ' k']];
const BYTES = [[2 ** 40, 'TB'], [2 ** 30, 'GB'], [2 ** 20, 'MB'], [2 ** 10, 'KB']];
const TIMES = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's'], [1e-3, 'ms'], [1e-6, 'µs']];

/** @param {unknown} value */
const known = (value) => typeof value === 'number' && Number.isFinite(value);

/** Three significant digits, without an exponent. @param {number} value */
function digits(value) {
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return String(Math.round(value));
  if (size >= 10) return trimmed(value.toFixed(1));
  return size >= 1 ? trimmed(value.toFixed(2)) : trimmed(value.toFixed(3));
}

/** @param {string} text */
const trimmed = (text) => text.replace(/\.?0+$/, '');

/** A count: 41200 is "41.2 k". @param {number|null|undefined} value */
export function count(value) {
  if (!known(value)) return UNKNOWN;
  const [factor, unit] = UNITS.find(([from]) => Math.abs(value) >= from * 0.9995) ?? [1, ''];
  return value !== 0 && Math.abs(value) < 1e-3 ? '<0.001' : digits(value / factor) + unit;
}

/** Per second. @param {number|null|undefined} value */
export const rate = (value) => (known(value) ? `${count(value)}/s` : UNKNOWN);

/** A share between 0 and 1, as the doctor says it. @param {number|null|undefined} value */
export const share = (value) => (known(value) ? `${Math.round(100 * value)} %` : UNKNOWN);

/** The share of time in which a promise was kept, rounded down: 99.997 % is not 100 %. @param {number|null|undefined} value */
export const kept = (value) => (known(value) ? `${Math.floor(10_000 * value) / 100} %` : UNKNOWN);

/** In powers of 1024, as the command says it. @param {number|null|undefined} value */
export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  const [factor, unit] = BYTES.find(([from]) => Math.abs(value) >= from * 0.9995) ?? [1, 'B'];
  return `${factor === 1 ? Math.round(value) : (value / factor).toFixed(1)} ${unit}`;
}

/** A duration in seconds. @param {number|null|undefined} value */
export function duration(value) {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return '0 s';
  const [factor, unit] = TIMES.find(([from]) => Math.abs(value) >= from * 0.9995) ?? [1e-9, 'ns'];
  const over = value / factor;
  // Two units where one is too coarse: 1 h 20 min.
  const finer = { d: [3600, 'h'], h: [60, 'min'], min: [1, 's'] }[unit];
  if (finer && over < 10) {
    const rest = Math.floor((value - Math.floor(over) * factor) / finer[0]);
    return `${Math.floor(over)} ${unit}${rest ? ` ${rest} ${finer[1]}` : ''}`;
  }
  return `${finer ? Math.floor(over) : digits(over)} ${unit}`;
}

/** Seconds at which the last bucket of a distribution of latencies ends; longer times are not known exactly. */
const LONGEST_S = 100;

/** A quantile of latencies. @param {number|null|undefined} value seconds */
export const latency = (value) => (value >= LONGEST_S ? '≥ ' : '') + duration(value);

const pad = (value) => String(value).padStart(2, '0');

/** Local time of day, with the date if it is not today. @param {number|null|undefined} at seconds since 1970 */
export function time(at) {
  if (!known(at) || at <= 0) return UNKNOWN;
  const when = new Date(at * 1000);
  const clock = `${pad(when.getHours())}:${pad(when.getMinutes())}:${pad(when.getSeconds())}`;
  return when.toDateString() === new Date().toDateString() ? clock : `${day(at)} ${clock}`;
}

/** Local date. @param {number} at seconds since 1970 */
export function day(at) {
  const when = new Date(at * 1000);
  return `${when.getFullYear()}-${pad(when.getMonth() + 1)}-${pad(when.getDate())}`;
}

/** @param {number|null|undefined} part @param {number|null|undefined} whole */
export const of = (part, whole) => `${known(part) ? part : UNKNOWN}/${known(whole) ? whole : UNKNOWN}`;

/** Text or "-". @param {string|number|null|undefined} value */
export const text = (value) => (value === null || value === undefined || value === '' ? UNKNOWN : String(value));

/** `fields(user)`, `shuffle`. @param {{grouping: string, fields: string[]}} edge */
export function grouping(edge) {
  const name = edge.grouping.toLowerCase().replaceAll('_', ' ');
  return edge.fields.length ? `${name}(${edge.fields.join(', ')})` : name;
}

/** The name of a task's instance, with its component and number. */
export const INSTANCE = /^container_\d+_(.+)_(\d+)$/;

/** `container_3_count_7` as users read it: `count-7`. @param {string|null|undefined} instanceId */
export function taskName(instanceId) {
  const found = INSTANCE.exec(instanceId ?? '');
  return found ? `${found[1]}-${found[2]}` : text(instanceId);
}
