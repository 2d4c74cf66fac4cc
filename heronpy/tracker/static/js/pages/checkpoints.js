/** Checkpoints: the pending one with the tasks that it waits for, the complete ones, and the tasks of one checkpoint. */

import { Restore } from '../actions.js';
import { pathOf } from '../api.js';
import { figure, link, plain, when } from '../columns.js';
import { bytes, count, duration, taskName, text } from '../format.js';
import { TopologyFrame, useTopology } from '../head.js';
import { Facts, Section, Table, Trouble } from '../parts.js';
import { to } from '../route.js';
import { html, useGet } from '../ui.js';

/** @param {any} place @param {any} plan @param {boolean} ended */
const completeColumns = (place, plan, ended) => [
  plain('number', 'number', (number) => link(place, 'checkpoints', String(number), number)),
  plain('kind', 'kind', text),
  figure('complete', 'taken_at', when),
  figure('took', 'duration_s', duration),
  figure('size', 'total_bytes', bytes),
  figure('new', 'written_bytes', bytes, 'written for this checkpoint; the rest is shared with earlier ones'),
  { title: 'state', cell: (row) => (row.damage ? html`<b class="alarm">✗ ${row.damage}</b>` : row.abandoned ? 'abandoned for an older checkpoint' : 'intact') },
  ...(ended ? [] : [{ title: 'restore', cell: (row) => (row.damage ? null : html`<${Restore} place=${place} plan=${plan} number=${row.number} />`) }]),
];

/** @param {any} place @param {any} plan */
function partColumns(place, plan) {
  const instances = new Map((plan?.containers ?? []).flatMap((container) => container.tasks.map((task) => [task.task_id, task.instance_id])));
  const named = (row) => (instances.has(row.task_id) ? html`<a href=${to(place, 'task', instances.get(row.task_id))}>${row.component}-${row.task_id}</a>` : `${row.component}-${row.task_id}`);
  return [
    { title: 'task', by: (row) => `${row.component}-${row.task_id}`, cell: named },
    figure('align', 'align_s', duration, 'from the first barrier to the cut'),
    figure('sync', 'sync_s', duration, 'the pause of the task'),
    figure('async', 'async_s', duration, 'writing in the background'),
    figure('size', 'total_bytes', bytes),
    figure('new', 'written_bytes', bytes),
    figure('tuples in transit', 'channel_tuples', count),
  ];
}

/** @param {{route: any}} props */
export function CheckpointsPage({ route }) {
  const state = useTopology(route.place);
  return html`<${TopologyFrame} route=${route} state=${state}>
    ${route.arg ? html`<${One} key=${route.arg} place=${route.place} number=${route.arg} plan=${state.snapshot?.plan} ended=${hasEnded(state)} />` : html`<${All} place=${route.place} plan=${state.snapshot?.plan} ended=${hasEnded(state)} />`}
  <//>`;
}

/** Whether the topology has ended, so that no checkpoint can be restored. @param {any} state */
const hasEnded = (state) => state.status === 'gone' || Boolean(state.snapshot?.topology?.ended_at);

function All({ place, plan, ended }) {
  const { data, problem } = useGet(pathOf(place, 'checkpoints'), {}, 2);
  if (!data) return html`<${Trouble} problem=${problem} />`;
  if (data.interval_s === null && !data.complete.length && !data.pending) {
    return html`<p class="quiet">The topology takes no automatic checkpoints: its mode is ${data.mode}${data.mode === 'EFFECTIVELY_ONCE' ? ' and no interval is set' : ''}.</p>`;
  }
  return html`<${Section} title="checkpoints">
    <${Trouble} problem=${problem} />
    <${Pending} place=${place} plan=${plan} pending=${data.pending} />
    <${Facts} items=${[
      ['interval', duration(data.interval_s)],
      ['completed', count(data.completed)],
      ['aborted', count(data.aborted)],
      ['failed', count(data.failed)],
      ['restores', count(data.restores)],
      ['last failure', text(data.last_failure)],
      ['last restore', data.last_restore ? `${data.last_restore}, ${duration(data.last_restore_s)}` : '-'],
    ]} />
    <${Table} columns=${completeColumns(place, plan, ended)} rows=${data.complete} name=${(row) => row.number} caption="complete checkpoints, the newest first" empty="No checkpoint is complete yet." />
    ${data.regions.length > 0 && html`<h3>regions that are restored together</h3><ul>${data.regions.map((region, number) => html`<li key=${number}>${region.components.join(', ')}: attempt ${region.attempt} ${region.started ? 'runs' : 'is starting'} from ${region.checkpoint ? `checkpoint ${region.checkpoint}` : 'empty state'}</li>`)}</ul>`}
  <//>`;
}

function Pending({ place, plan, pending }) {
  if (!pending) return html`<p class="quiet">No checkpoint is in progress.</p>`;
  const known = new Map((plan?.containers ?? []).flatMap((container) => container.tasks.map((task) => [task.instance_id, task])));
  const waits = pending.waits_for;
  return html`<div class="flow warn" role="status"><p><b>${pending.number} in progress for ${duration(pending.for_s)}: ${pending.tasks - pending.missing} of ${pending.tasks} tasks</b></p>
    ${waits.length > 0 && html`<p>waiting for ${waits.map((name, number) => html`${number ? ', ' : ''}${known.has(name) ? html`<a href=${to(place, 'task', name)}>${taskName(name)}</a>` : taskName(name)}`)}${pending.missing > waits.length ? ` and ${pending.missing - waits.length} more` : ''}</p>`}</div>`;
}

function One({ place, number, plan, ended }) {
  const { data, problem } = useGet(pathOf(place, 'checkpoints', number));
  const checkpoint = data?.checkpoint;
  return html`<${Section} title=${`checkpoint ${number}`}>
    <${Trouble} problem=${problem} />
    ${checkpoint && html`<${Facts} items=${[
      ['kind', checkpoint.kind],
      ['complete', when(checkpoint.taken_at)],
      ['took', duration(checkpoint.duration_s)],
      ['size', bytes(checkpoint.total_bytes)],
      ['new', bytes(checkpoint.written_bytes)],
      ['barriers', data.unaligned ? 'unaligned' : 'aligned'],
      ['physical plan', text(data.plan_version)],
    ]} /><${Table} columns=${partColumns(place, plan)} rows=${data.tasks} name=${(row) => row.task_id} caption="tasks, the slowest first" empty="No task has state in this checkpoint." />`}
    <p>${checkpoint && !ended && html`<${Restore} place=${place} plan=${plan} number=${checkpoint.number} /> `}<a href=${to(place, 'checkpoints')}>all checkpoints</a></p>
  <//>`;
}
