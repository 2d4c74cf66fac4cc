/** Addresses of pages. The whole address is after the #, so that the browser sends no names to the server. */

/**
 * @typedef {{cluster: string, role: string, environ: string, name: string}} Place
 * @typedef {{place: Place|null, page: string, arg: string, query: Record<string, string>}} Route
 */

/** @param {string} hash @returns {Route} */
export function parsed(hash) {
  const [path, asked] = hash.replace(/^#\/?/, '').split('?', 2);
  const parts = path.split('/').filter(Boolean).map(decoded);
  const query = Object.fromEntries(new URLSearchParams(asked ?? ''));
  if (parts[0] !== 't' || parts.length < 5) return { place: null, page: parts[0] ?? '', arg: parts[1] ?? '', query };
  const [, cluster, role, environ, name, page = '', arg = ''] = parts;
  return { place: { cluster, role, environ, name }, page, arg, query };
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a % that escapes nothing
  }
}

/** @param {...string} parts without a slash between them; empty ones are left out */
export const path = (...parts) => parts.filter(Boolean).map(encodeURIComponent).join('/');

/** @param {Place} place @param {...string} more page and argument */
export const to = (place, ...more) => `#/${path('t', place.cluster, place.role, place.environ, place.name, ...more)}`;

/** @param {Route} route @param {Record<string, string>} change */
function withQuery(route, change) {
  const query = new URLSearchParams({ ...route.query, ...change });
  for (const [name, value] of [...query]) if (value === '') query.delete(name);
  const address = route.place ? to(route.place, route.page, route.arg) : `#/${path(route.page, route.arg)}`;
  return String(query) ? `${address}?${query}` : address;
}

/** Change the query of this page without an entry in the history. @param {Route} route @param {Record<string, string>} change */
export function replaceQuery(route, change) {
  history.replaceState(null, '', withQuery(route, change));
  dispatchEvent(new HashChangeEvent('hashchange'));
}
