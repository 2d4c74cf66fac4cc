/** Live streams: server-sent events, read with fetch while the tab is visible. A stream that ends is opened again. */

import { Problem, ask, problemOf, url } from './api.js';
import { taken } from './early.js';
import { Parser, after, initial } from './live_state.js';

const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 10_000;
/** Time after which the tracker can report how a topology ended. */
const ENDED_MS = 3000;
/** The server sends something every 15 s; after this silence the stream counts as lost. */
const SILENCE_MS = 40_000;
/** How often the silence is measured by the clock, because a timer stops while the computer sleeps. */
const LOOK_MS = 4000;
/** Statuses that another request would not change. */
const FINAL = new Set([400, 401, 403, 404, 421]);

/** @param {Error} error */
const broken = (error) => (error.name === 'AbortError' ? 'the tracker has sent nothing for 40 s' : 'the live stream was interrupted');

/** One stream, which is open while it has listeners. */
export class Live {
  /** @param {Record<string, any>} query of /live @param {any} [snapshot] shown until the first snapshot of this stream */
  constructor(query, snapshot = null) {
    this.query = query;
    this.state = { ...initial(), snapshot };
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    this.lastId = '';
    this.waitMs = FIRST_WAIT_MS;
    this.onVisibility = () => (document.hidden ? this.#pause() : this.#open());
  }

  /** @param {() => void} listener @returns {() => void} ends the subscription */
  listen(listener) {
    this.listeners.add(listener);
    if (this.listeners.size === 1) {
      document.addEventListener('visibilitychange', this.onVisibility);
      this.onVisibility();
    }
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size === 0) {
        document.removeEventListener('visibilitychange', this.onVisibility);
        this.#stop();
      }
    };
  }

  #set(change) {
    const status = change.status ?? this.state.status;
    const since = status === this.state.status ? this.state.since : Date.now();
    this.state = { ...this.state, ...change, since };
    for (const listener of [...this.listeners]) listener();
  }

  #stop() {
    clearTimeout(this.timer);
    clearInterval(this.watchdog);
    this.abort?.abort();
    this.abort = undefined;
  }

  #pause() {
    this.#stop();
    if (!this.state.gone) this.#set({ status: 'hidden' });
  }

  async #open() {
    this.#stop();
    if (this.state.gone) return;
    const early = taken(this.query);
    const abort = early?.abort ?? new AbortController();
    this.abort = abort;
    try {
      this.heardAt = Date.now();
      this.watchdog = setInterval(() => Date.now() - this.heardAt > SILENCE_MS && abort.abort(), LOOK_MS);
      const headers = { Accept: 'text/event-stream', ...(this.lastId && { 'Last-Event-ID': this.lastId }) };
      const answer = await (early?.answer ?? ask(url('live', this.query), { signal: abort.signal, headers }));
      this.#set({ status: 'live', problem: null });
      await this.#read(answer.body, abort);
      if (this.abort === abort) this.#ended(new Problem({ status: 0, title: 'the live stream has ended' }));
    } catch (error) {
      // The end of a stream that this page has stopped is not reported.
      if (this.abort === abort) this.#ended(problemOf(error, broken(error)));
    }
  }

  /** @param {ReadableStream<Uint8Array>} body @param {AbortController} abort */
  async #read(body, abort) {
    const parser = new Parser();
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done || this.abort !== abort) return;
      this.heardAt = Date.now();
      let state = this.state;
      for (const message of parser.feed(value)) {
        state = after(state, message);
        if (message.id) this.lastId = message.id;
        this.waitMs = FIRST_WAIT_MS;
      }
      if (state !== this.state) this.#set(state.gone ? { ...state, status: 'gone' } : state);
      if (state.gone && !state.snapshot?.topology?.ended_at && !this.hasAskedAgain) this.#askAgain();
    }
  }

  /** Opens the stream once more, because the tracker has the outcome of the topology a moment after the end. */
  #askAgain() {
    this.hasAskedAgain = true;
    this.timer = setTimeout(() => {
      this.lastId = '';
      this.#set({ gone: '' });
      this.#open();
    }, ENDED_MS);
  }

  /** @param {Problem} told */
  #ended(told) {
    clearInterval(this.watchdog);
    if (this.state.gone) return;
    this.#stop();
    if (FINAL.has(told.status)) {
      // The topology no longer exists; the page keeps the last figures.
      const gone = told.status === 404 && this.state.snapshot ? told.title : '';
      this.#set({ status: gone ? 'gone' : 'refused', problem: told, gone });
      return;
    }
    this.#set({ status: 'waiting', problem: told });
    const wait = this.waitMs * (0.75 + Math.random() / 2);
    this.waitMs = Math.min(LONGEST_WAIT_MS, this.waitMs * 2);
    this.timer = setTimeout(() => this.#open(), wait);
  }
}

/** @type {Live|null} */
let latest = null;

/** The current stream, which the pages of one topology share. */
export const current = () => latest;

/** @param {Record<string, any>} query */
export function liveOf(query) {
  if (JSON.stringify(latest?.query) !== JSON.stringify(query)) {
    // Another level of the same topology: the page keeps the last figures.
    const same = latest?.query.topology !== undefined && latest.query.topology === query.topology;
    latest = new Live(query, same ? latest.state.snapshot : null);
  }
  return latest;
}
