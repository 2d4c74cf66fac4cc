/** A log: its end, live; earlier lines on demand; filtered by level and words. Content is shown as text, never as markup. */

import { get, pathOf, problemOf } from './api.js';
import { time } from './format.js';
import { onPage } from './keys.js';
import { Filter, Trouble, fits, long } from './parts.js';
import { frozen, html, useCell, useEffect, useLayoutEffect, useMemo, useRef, useState } from './ui.js';

const LINES_MAX = 2000;
const EVERY_MS = 1000;
const SLOWEST_MS = 10_000;
const BACK_BYTES = 65_536;
const LEVELS = ['DEBUG', 'INFO', 'WARN', 'ERROR', 'FATAL'];

/** Reads one log forwards and backwards. Each piece that changes the view makes a new object `at`. */
class Reader {
  /** @param {any} place @param {string} process */
  constructor(place, process) {
    this.path = pathOf(place, 'logs', process);
    /** @type {{lines: any[], begin: number, end: number|null, file: string, number: number, dropped: boolean}} */
    this.at = { lines: [], begin: 0, end: null, file: '', number: 0, dropped: false };
  }

  /** Read what was appended, at first the end of the log; returns whether the view has changed. @param {AbortSignal} signal */
  async on(signal) {
    const { end, file } = this.at;
    const piece = await get(this.path, end === null ? {} : { offset: end, file }, signal);
    const first = end === null || piece.rotated;
    if (!first && piece.end === piece.begin) {
      this.at.end = piece.end;
      return false;
    }
    const lines = numbered(piece.lines, this.at.number);
    const notice = piece.rotated ? [{ number: -this.at.number - 1, at: null, level: null, logger: '', text: '··· a new file begins' }] : [];
    const all = [...(end === null ? [] : this.at.lines), ...notice, ...lines];
    this.at = {
      lines: all.slice(-LINES_MAX), begin: first ? piece.begin : this.at.begin, end: piece.end, file: piece.file,
      number: this.at.number + lines.length, dropped: this.at.dropped || piece.rotated || all.length > LINES_MAX,
    };
    return true;
  }

  /** Read the lines before the first line of the view. */
  async back() {
    const piece = await get(this.path, { until: this.at.begin, bytes: Math.min(BACK_BYTES, Math.max(1024, this.at.begin)), file: this.at.file });
    if (piece.rotated) return;
    const lines = numbered(piece.lines, this.at.number);
    this.at = { ...this.at, lines: [...lines, ...this.at.lines].slice(0, LINES_MAX), begin: piece.begin, number: this.at.number + lines.length };
  }
}

/** Lines with a number that no other line of this view has. @param {any[]} lines @param {number} from */
const numbered = (lines, from) => lines.map((line, index) => ({ ...line, number: from + index + 1 }));

/** @param {{place: any, process: string, follow: boolean}} props */
export function LogView({ place, process, follow }) {
  const reader = useRef(/** @type {Reader|null} */ (null));
  reader.current ??= new Reader(place, process);
  const [view, setView] = useState(reader.current.at);
  const [problem, setProblem] = useState(null);
  const [find, setFind] = useState('');
  const [level, setLevel] = useState('DEBUG');
  const box = useRef(null);
  const atEnd = useRef(true);
  const last = useRef(0);
  const still = useCell(frozen);
  useEffect(() => {
    if (onPage.wanted !== 'log') return;
    onPage.wanted = '';
    box.current.focus();
  }, []);
  useEffect(() => {
    const abort = new AbortController();
    let timer;
    let wait = EVERY_MS;
    const run = async () => {
      clearTimeout(timer);
      if (!document.hidden) {
        try {
          if (await reader.current.on(abort.signal)) setView(reader.current.at);
          setProblem(null);
          wait = EVERY_MS;
        } catch (error) {
          if (abort.signal.aborted) return;
          setProblem(problemOf(error));
          wait = Math.min(SLOWEST_MS, wait * 2);
        }
      }
      if (follow) timer = setTimeout(run, wait);
    };
    if (!still) run();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [still, follow]);
  const shown = useMemo(() => {
    const least = LEVELS.indexOf(level);
    // A line without a level, such as a print of user code, is shown up to INFO.
    return view.lines.filter((line) => (line.level === null ? least <= 1 : LEVELS.indexOf(line.level) >= least) && (!find || fits(find, line.text, line.logger)));
  }, [view, find, level]);
  useLayoutEffect(() => {
    if (atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown]);
  // Called even for a box that was removed. Only a scroll by the user leaves the end, not lines that wrap in a narrower window.
  const scrolled = ({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
    atEnd.current = (atEnd.current && scrollTop >= last.current) || scrollHeight - scrollTop - clientHeight < 30;
    last.current = scrollTop;
  };
  const earlier = async () => {
    try {
      await reader.current.back();
      atEnd.current = false;
      setView(reader.current.at);
    } catch (error) {
      setProblem(problemOf(error));
    }
  };
  return html`<div class="log">
    <div class="tools">
      <${Filter} value=${find} onChange=${setFind} label="find in the log" />
      <label>level <select value=${level} onChange=${(event) => setLevel(event.target.value)}>${LEVELS.map((one) => html`<option key=${one} value=${one}>${one === 'DEBUG' ? 'all' : `${one} and above`}</option>`)}</select></label>
      ${view.begin > 0 && !view.dropped && view.lines.length < LINES_MAX && html`<button onClick=${earlier}>earlier lines</button>`}
      <span class="quiet" role="status">${shown.length} of ${view.lines.length} lines${still ? ', frozen' : follow ? ', live' : ''}</span>
    </div>
    <${Trouble} problem=${problem} />
    <div class="lines" ref=${box} onScroll=${scrolled} tabindex="0" role="log" aria-label=${`log of ${process}`} aria-live="off">
      ${shown.map((line) => logLine(line.number, line, line.at === null ? '' : time(line.at), line.logger && html`<span class="quiet">${line.logger} </span>`))}
    </div>
  </div>`;
}

/** A line of a log; `before` is shown before its text. @param {any} key @param {any} line @param {any} at @param {any} before */
export const logLine = (key, { level, text }, at, before) => html`<div key=${key} class=${`line of-${level}`}><span class="at">${at}</span><span class="level">${level}</span><span class="text">${before}${long(text)}</span></div>`;
