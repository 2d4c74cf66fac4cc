/** The containers with one square for each task. A square under the mouse marks its component in the graph. */

import { downMark } from './columns.js';
import { taskName } from './format.js';
import { measure } from './levels.js';
import { to } from './route.js';
import { html, rarely } from './ui.js';

const UNKNOWN = { level: 0, word: 'unknown', shown: '-' };

/** Figures by task and component, for squares and for their tooltips. */
class Figures {
  /** @param {any} load @param {any[]|null} tasks @param {string} by */
  constructor(load, tasks, by) {
    this.rows = new Map((tasks ?? []).map((task) => [task.task_id, task]));
    this.loads = new Map((load?.components ?? []).map((row) => [row.name, row]));
    this.by = measure(by);
  }

  /** @param {{task_id: number, component: string}} task */
  level(task) {
    const row = this.rows.get(task.task_id);
    return row ? this.by.task(row, this.loads.get(task.component)) : UNKNOWN;
  }

  /** The look of a square as letters: its level, d if the task is down, c if it holds the spouts back. */
  look(task) {
    const row = this.rows.get(task.task_id);
    return `${this.level(task).level}${row && downMark(row) ? 'd' : ''}${row?.culprit ? 'c' : ''}`;
  }

  title(task) {
    const [level, row] = [this.level(task), this.rows.get(task.task_id)];
    return `${taskName(task.instance_id)}: ${this.by.title} ${level.shown} ${level.word}${row && !row.up ? `, ${row.state}` : ''}`;
  }
}

/** The newest figures, for tooltips. @type {Figures} */
let newest;

/**
 * @param {{place: any, plan: any, load: any, tasks: any[]|null, by: string, marked: string, onMark: (component: string) => void}} props
 */
function All({ place, plan, load, tasks, by, marked, onMark }) {
  const figures = new Figures(load, tasks, by);
  newest = figures;
  // Squares are for the mouse. The table of tasks shows the same to keyboards and screen readers.
  return html`<div class=${`containers${marked ? ' marking' : ''}`} aria-hidden="true">${plan.containers.map((container) => html`<${Container} key=${container.container}
    place=${place} container=${container} looks=${container.tasks.map((task) => figures.look(task)).join(' ')} marked=${container.tasks.some((task) => task.component === marked) ? marked : ''} onMark=${onMark} />`)}</div>`;
}

/** A container is rendered when a square changes its colour or sign, not with each figure. */
const Container = rarely(({ place, container, looks, marked, onMark }) => {
  const all = looks.split(' ');
  return html`<div class="container">
    <span title=${container.host ?? 'not registered yet'}>c${container.container}</span>
    ${container.tasks.map((task, number) => {
      const [level, down, culprit] = [all[number][0], all[number].includes('d'), all[number].includes('c')];
      const style = `square level${level}${down ? ' down' : ''}${culprit ? ' culprit' : ''}${marked === task.component ? ' marked' : ''}`;
      const enter = (event) => {
        event.currentTarget.title = newest.title(task);
        onMark(task.component);
      };
      return html`<a key=${task.task_id} tabindex="-1" class=${style} href=${to(place, 'task', task.instance_id)} onMouseEnter=${enter} onMouseLeave=${() => onMark('')}>${down ? '✗' : culprit ? '!' : level > 3 ? '#' : level > 2 ? '+' : ''}</a>`;
    })}
  </div>`;
}, ['container', 'looks', 'marked']);

/** Without figures of tasks, the squares change only with the plan. */
export const Containers = rarely(All, ['plan', 'by', 'marked'], ['tasks']);
