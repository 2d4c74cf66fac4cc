/** The containers with their tasks, one square each: linked with the nodes of the graph. */

import { taskName } from './format.js';
import { measure } from './levels.js';
import { to } from './route.js';
import { html, rarely } from './ui.js';

/**
 * @param {{place: any, plan: any, load: any, tasks: any[]|null, by: string, marked: string, onMark: (component: string) => void}} props
 */
function All({ place, plan, load, tasks, by, marked, onMark }) {
  const rows = new Map((tasks ?? []).map((task) => [task.task_id, task]));
  const loads = new Map((load?.components ?? []).map((row) => [row.name, row]));
  const by_ = measure(by);
  // What a square shows stands in the table of tasks: squares are for the mouse, the table for keys and readers.
  return html`<div class=${`containers${marked ? ' marking' : ''}`} aria-hidden="true">${plan.containers.map((container) => html`<div class="container" key=${container.container}>
    <span title=${container.host ?? 'not registered yet'}>c${container.container}</span>
    ${container.tasks.map((task) => {
      const row = rows.get(task.task_id);
      const level = row ? by_.task(row, loads.get(task.component)) : { level: 0, word: 'unknown', shown: '-' };
      const down = row && !row.up;
      const style = `square level${level.level}${down ? ' down' : ''}${row?.culprit ? ' culprit' : ''}${marked === task.component ? ' marked' : ''}`;
      return html`<a key=${task.task_id} tabindex="-1" class=${style} href=${to(place, 'task', task.instance_id)}
        title=${`${taskName(task.instance_id)}: ${by_.title} ${level.shown} ${level.word}${down ? `, ${row.state}` : ''}`}
        onMouseEnter=${() => onMark(task.component)} onMouseLeave=${() => onMark('')}>${down ? '✗' : row?.culprit ? '!' : level.level > 3 ? '#' : level.level > 2 ? '+' : ''}</a>`;
    })}
  </div>`)}</div>`;
}

/** Without figures of tasks the squares change only with the plan. */
export const Containers = rarely(All, ['plan', 'tasks', 'by', 'marked']);
