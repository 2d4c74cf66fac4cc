/** Opens the live stream of the first page while the browser still loads the other modules. */

import { ask, url } from './api.js';
import { parsed } from './route.js';

/** Pages that need the figures of tasks, however many tasks there are. */
const WITH_TASKS = new Set(['tasks', 'component', 'task', 'doctor']);

/** The query for /live: with tasks, unless they are too many and the page does not need them. @param {import('./route.js').Place} place @param {boolean} needed */
export const liveQuery = ({ cluster, role, environ, name }, needed) => ({
  topology: [cluster, role, environ, name].join('/'),
  level: needed ? 'tasks' : 'fitting',
});

/** @param {Record<string, any>} query */
function open(query) {
  const abort = new AbortController();
  const answer = ask(url('live', query), { signal: abort.signal, headers: { Accept: 'text/event-stream' } });
  answer.catch(() => {}); // `taken` gives the answer with its error
  return { key: JSON.stringify(query), abort, answer };
}

const { place, page } = parsed(location.hash);
let first = document.hidden || (!place && page) ? null : open(place ? liveQuery(place, WITH_TASKS.has(page)) : {});

/** The stream that is already open, if it has this query; given once. @param {Record<string, any>} query */
export function taken(query) {
  const found = first;
  first = null;
  if (found && found.key === JSON.stringify(query)) return found;
  found?.abort.abort();
  return null;
}
