/** Requests to the tracker's REST API. Each error is a Problem with one sentence. A token is kept for this tab only. */

import { path } from './route.js';

/** Whether a token may be sent: without TLS, another user of the machine could take the port of an ended tracker and get the token. */
export const takesToken = location.protocol === 'https:';

const KEY = 'heron-token';
const BASE = new URL('api/v1/', document.baseURI);

/** An answer that is an error. */
export class Problem extends Error {
  /** @param {{status: number, type?: string, title: string, detail?: string, nearest?: string|null}} told */
  constructor(told) {
    super(told.title);
    this.status = told.status;
    this.type = told.type ?? '';
    this.title = told.title;
    this.detail = told.detail ?? '';
    this.nearest = told.nearest ?? null;
  }
}

/** The error as a Problem. @param {any} error @returns {Problem} */
export const problemOf = (error, title = String(error)) => (error instanceof Problem ? error : new Problem({ status: 0, title }));

export const token = {
  get: () => (takesToken && sessionStorage.getItem(KEY)) || '',
  /** @param {string} value */
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** @param {string} path @param {Record<string, any>} [query] */
export function url(path, query = {}) {
  const found = new URL(path, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) value.forEach((one) => found.searchParams.append(name, one));
    else if (value !== undefined && value !== null && value !== '') found.searchParams.set(name, String(value));
  }
  return found;
}

/** A response with status 200; else a Problem. @param {URL} where @param {RequestInit} [options] */
export async function ask(where, options = {}) {
  const headers = new Headers(options.headers);
  if (token.get()) headers.set('Authorization', `Bearer ${token.get()}`);
  let answer;
  try {
    answer = await fetch(where, { ...options, headers, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem({ status: 0, title: 'the tracker does not answer', detail: 'run heron ui to restart it and print its new address' });
  }
  if (!answer.ok) throw new Problem(await told(answer));
  return answer;
}

/** @param {Response} answer */
async function told(answer) {
  try {
    const body = await answer.json();
    if (typeof body.title === 'string') return { ...body, status: answer.status };
  } catch {
    // The answer is from a proxy, for example, and not from the tracker.
  }
  return { status: answer.status, title: `the answer is ${answer.status} ${answer.statusText}` };
}

/** @param {string} path @param {Record<string, any>} [query] @param {AbortSignal} [signal] */
export async function get(path, query, signal) {
  return (await ask(url(path, query), { signal, headers: { Accept: 'application/json' } })).json();
}

/** @param {string} path @param {object} body @param {Record<string, string>} [headers] */
export async function post(path, body, headers = {}) {
  const all = { 'Content-Type': 'application/json', 'X-Heron': '1', ...headers };
  return (await ask(url(path), { method: 'POST', headers: all, body: JSON.stringify(body) })).json();
}

/**
 * Path of a topology below /api/v1.
 * @param {{cluster: string, role: string, environ: string, name: string}} place @param {...string} more
 */
export function pathOf(place, ...more) {
  return path('topologies', place.cluster, place.role, place.environ, place.name, ...more);
}
