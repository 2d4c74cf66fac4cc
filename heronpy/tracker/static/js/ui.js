/** The base of components: Preact and htm, and hooks for data that respect a frozen page. */

import { get, problemOf } from './api.js';
import { liveOf } from './live.js';
import { Component, h, html, useEffect, useRef, useState } from '../vendor/htm-preact.js';

export { Component, h, html, render, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/htm-preact.js';

/** The time between two updates of a component out of sight, varied by a fifth so that not all are updated at once. */
const UNSEEN_MS = 10_000;
/** Distance from the window below which a component is in sight. */
const NEAR = '150px';

/** @type {Map<Element, {sight: (near: boolean) => void}>} */
const watched = new Map();
const sight = new IntersectionObserver((entries) => entries.forEach((one) => watched.get(one.target)?.sight(one.isIntersecting)), { rootMargin: NEAR });

/**
 * A component that is rendered again only when one of these properties is another object. A change of a `moving` property
 * waits while the component is out of sight. The property `near` is true while it is in sight.
 * @param {any} Inner @param {string[]} names @param {string[]} [moving]
 */
export function rarely(Inner, names, moving = []) {
  return class extends Component {
    near = true;
    stale = false;
    dueAt = 0;

    shouldComponentUpdate(next) {
      const other = (name) => next[name] !== this.props[name];
      if (names.some(other)) return true;
      if (!moving.some(other)) return false;
      this.stale = !this.near && performance.now() < this.dueAt;
      return !this.stale;
    }

    sight(near) {
      this.near = near;
      if (near && (this.stale || !this.drawn)) this.forceUpdate();
    }

    componentDidMount() {
      this.#watch();
    }

    componentDidUpdate() {
      this.#watch();
    }

    componentWillUnmount() {
      this.#forget();
    }

    #watch() {
      this.stale = false;
      this.dueAt = performance.now() + UNSEEN_MS * (0.8 + 0.4 * Math.random());
      const element = moving.length && this.base instanceof Element ? this.base : null;
      if (element === this.element) return;
      this.#forget();
      this.element = element;
      if (!element) return;
      watched.set(element, this);
      sight.observe(element);
    }

    #forget() {
      if (!this.element) return;
      watched.delete(this.element);
      sight.unobserve(this.element);
    }

    render(props) {
      this.drawn = this.near;
      return h(Inner, { ...props, near: this.near });
    }
  };
}

/** A value that components can listen to. @template T */
export class Cell {
  /** @param {T} value */
  constructor(value) {
    this.value = value;
    /** @type {Set<() => void>} */
    this.listeners = new Set();
  }

  /** @param {T} value */
  set(value) {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const listener of [...this.listeners]) listener();
  }

  /** @param {() => void} listener */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** Nothing on the page changes while this is true. */
export const frozen = new Cell(false);

/** @template T @param {Cell<T>} cell @returns {T} */
export function useCell(cell) {
  const [, look] = useState(0);
  useEffect(() => {
    look((number) => number + 1);
    return cell.listen(() => look((number) => number + 1));
  }, [cell]);
  return cell.value;
}

/** The state of the live stream with this query. @param {Record<string, any>} query */
export function useLive(query) {
  const live = liveOf(query);
  const [state, setState] = useState({ live, state: live.state });
  useEffect(() => {
    const show = () => frozen.value || setState({ live, state: live.state });
    setState({ live, state: live.state });
    const end = [live.listen(show), frozen.listen(show)];
    return () => end.forEach((stop) => stop());
  }, [live]);
  return { live, ...(state.live === live ? state.state : live.state) };
}

/**
 * The answer to a GET, repeated every `everyS` seconds while the tab is visible and the page is not frozen. The last answer
 * is kept when a later request fails.
 * @param {string|null} path null: ask for nothing
 * @param {Record<string, any>|(() => Record<string, any>)} [query] or a function that makes it for each request @param {number} [everyS] 0: once
 * @returns {{data: any, problem: Problem|null, again: () => void}}
 */
export function useGet(path, query = {}, everyS = 0) {
  const key = path === null ? null : JSON.stringify([path, query]);
  const [found, setFound] = useState({ key, data: null, problem: null });
  const look = useRef(() => {});
  useEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    let timer;
    let asking = false;
    const due = () => !document.hidden && !frozen.value;
    const run = async () => {
      clearTimeout(timer);
      if (asking) return;
      asking = true;
      try {
        const data = await get(path, typeof query === 'function' ? query() : query, abort.signal);
        setFound({ key, data, problem: null });
      } catch (problem) {
        if (abort.signal.aborted) return;
        setFound((old) => ({ key, data: old.key === key ? old.data : null, problem: problemOf(problem) }));
      }
      asking = false;
      if (everyS) timer = setTimeout(() => due() && run(), everyS * 1000);
    };
    const wake = () => everyS && due() && run();
    look.current = run;
    run();
    document.addEventListener('visibilitychange', wake);
    const end = frozen.listen(wake);
    return () => {
      abort.abort();
      clearTimeout(timer);
      end();
      document.removeEventListener('visibilitychange', wake);
    };
  }, [key, everyS]);
  const mine = found.key === key;
  return { data: mine ? found.data : null, problem: mine ? found.problem : null, again: () => look.current() };
}

/** The time, updated every `everyS` seconds, for ages. @param {number} everyS */
export function useClock(everyS) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => document.hidden || frozen.value || setNow(Date.now()), everyS * 1000);
    return () => clearInterval(timer);
  }, [everyS]);
  return now;
}

/** Content that is rendered after the first paint of the rest of the page. @param {{children: any}} props */
export function Later({ children }) {
  const [now, setNow] = useState(false);
  useEffect(() => setNow(true), []); // after the paint
  return now ? children : null;
}

const media = matchMedia('(prefers-color-scheme: dark)');

/** Whether the system asks for dark colours. */
export function useDark() {
  const [dark, setDark] = useState(media.matches);
  useEffect(() => {
    const change = () => setDark(media.matches);
    media.addEventListener('change', change);
    return () => media.removeEventListener('change', change);
  }, []);
  return dark;
}
