/** The keyboard: the effect of each key on every page. Pages mark rows with data-row and the filter with data-filter. */

import { frozen } from './ui.js';

/** For the help: keys and their effects. */
export const KEYS = [
  ['/', 'focus the filter'],
  ['j  k', 'next, previous row; the first is the finding of the doctor'],
  ['Enter', 'open the marked row'],
  ['← →  ↑ ↓', 'in the graph (enter and leave it with Tab): move along the edges'],
  ['Esc', 'leave a field, or go one page up'],
  ['1 … 4', 'time span of the charts: 10 min to 24 h'],
  ['Space', 'freeze or resume the page'],
  ['s  p  h  l', 'stacks, profile as a flame graph, heap, log: of the task of the page, or of the marked or first row; in the list, of the task that the doctor names'],
  ['g d  g g  g t  g l', 'doctor, graph, tasks, list; in the list, of the marked or first topology'],
  ['g c  g b  g e  g x', 'checkpoints, Spark batches, exceptions, dead letters'],
  ['g r  g o  g s', 'traces, logs, config'],
  ['?', 'this help'],
];

/**
 * Set by the page: `span` changes the span, and `take` takes evidence of the task. `wanted` is the evidence that was requested
 * on a page with a link to the task. @type {{span: ((number: number) => void)|null, take: ((kind: string) => void)|null, wanted: string}}
 */
export const onPage = { span: null, take: null, wanted: '' };

const EVIDENCE = { s: 'stacks', p: 'profile', h: 'heap', l: 'log' };

const TYPED = new Set(['INPUT', 'TEXTAREA', 'SELECT']);
const PRESSED = new Set(['BUTTON', 'SUMMARY']);
/** Time within which the next key must follow a g. */
const PREFIX_MS = 1500;

/** @param {(page: string) => void} go @param {() => void} up @param {() => void} help */
export function install(go, up, help) {
  let prefixAt = 0;
  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = /** @type {HTMLElement} */ (event.target);
    if (TYPED.has(target.tagName)) {
      if (event.key === 'Escape') target.blur();
      return;
    }
    if (document.querySelector('dialog[open]')) return;
    const prefixed = Date.now() - prefixAt < PREFIX_MS;
    prefixAt = 0;
    if (prefixed && go(event.key)) event.preventDefault();
    else if (event.key === 'g') prefixAt = Date.now();
    else if (handled(event, target, up, help)) event.preventDefault();
  });
}

/** @param {KeyboardEvent} event @param {HTMLElement} target @param {() => void} up @param {() => void} help */
function handled(event, target, up, help) {
  if (event.key === '/') return focused(document.querySelector('[data-filter]'));
  if (event.key === 'j') return row(1);
  if (event.key === 'k') return row(-1);
  if (event.key === '?') help();
  else if (event.key === 'Escape') up();
  else if (event.key === ' ' && !PRESSED.has(target.tagName)) frozen.set(!frozen.value);
  else if (event.key in EVIDENCE) return evidence(EVIDENCE[event.key]);
  else if (/^[1-4]$/.test(event.key) && onPage.span) onPage.span(Number(event.key) - 1);
  else return false;
  return true;
}

/** Evidence of the task of this page, else of the task in the marked row, else of the first task. @param {string} kind */
function evidence(kind) {
  if (taken(kind)) return true;
  if (location.hash.includes('/task/')) return false;
  const task = 'a[href*="/task/"]';
  const marked = document.activeElement.closest('tr[data-row]');
  const link = marked ? marked.querySelector(task) : document.querySelector(`[data-row] ${task}`) ?? document.querySelector(task);
  if (!link) return false;
  onPage.wanted = kind;
  location.hash = link.getAttribute('href');
  return true;
}

/** Take evidence of the task of this page, if the page has a task. @param {string} kind */
function taken(kind) {
  if (kind === 'log') return focused(document.querySelector('.log .lines'));
  onPage.take?.(kind);
  return onPage.take !== null;
}

/** Take or show evidence on the page of a link, which may be this page. @param {string} kind @param {string} address */
export function want(kind, address) {
  if (location.hash !== address) onPage.wanted = kind;
  else taken(kind);
}

/** A link in the marked row, else in the first row. */
export const linkHere = () => (document.activeElement.closest('[data-row]') ?? document.querySelector('[data-row]'))?.querySelector('a');

/** @param {HTMLElement|null} element */
function focused(element) {
  element?.focus();
  return element !== null;
}

/** To the next or previous row from the marked one. @param {1|-1} step */
function row(step) {
  const rows = [...document.querySelectorAll('[data-row]')];
  const here = rows.findIndex((one) => one.contains(document.activeElement));
  const next = rows[here < 0 ? (step > 0 ? 0 : rows.length - 1) : here + step];
  if (!next) return rows.length > 0;
  const goal = /** @type {HTMLElement} */ (next.querySelector('summary, a, button') ?? next);
  goal.focus();
  goal.scrollIntoView({ block: 'nearest' });
  return true;
}
