/** Jobs: the card and the page of one job, the list of all, and the pools that they run in. */

import { useMay } from '../actions.js';
import { post, problemOf } from '../api.js';
import { Charts, OF_JOB } from '../charts.js';
import { figure, link, plain } from '../columns.js';
import { UNKNOWN, bytes, count, duration, kept, of, rate, share } from '../format.js';
import { Dialog, Facts, Section, State, Table, Trouble, When, fits } from '../parts.js';
import { path, to } from '../route.js';
import { Later, html, useGet, useMemo, useRef, useState } from '../ui.js';

const REASONS_SHOWN = 8;
/** How long a pin may hold: words and seconds. */
const HOLDS = [['until it is removed', 0], ['for 1 hour', 3600], ['for 8 hours', 28_800], ['for 1 day', 86_400]];
/** A lag without an end. */
const ENDLESS_S = 1e9;

/** The address of the page of a job. @param {{cluster: string, job: string}} row */
const address = ({ cluster, job }) => `#/${path('job', `${cluster}/${job}`)}`;

/** @param {number|null} lag_s @param {number|null} [most] that is promised */
const lagOf = (lag_s, most) => html`<span class=${most && lag_s > most ? 'alarm' : ''}>${lag_s >= ENDLESS_S ? 'stalled' : duration(lag_s)}</span>${most ? ` of ${duration(most)}` : ''}`;

const KEYS_SHOWN = 3;

/** The names of the first keys of a change. @param {{path: string[]}[]} entries */
function keysOf(entries) {
  const names = [...new Set(entries.map((one) => one.path.join('.')))];
  return names.slice(0, KEYS_SHOWN).join(', ') + (names.length > KEYS_SHOWN ? ` and ${names.length - KEYS_SHOWN} more` : '');
}

/** One warning for each cluster without a manager. @param {any[]} jobs */
const unkept = (jobs) => [...new Set(jobs.filter((one) => !one.kept).map((one) => one.cluster))].map((cluster) => html`<p key=${cluster} class="flow warn" role="status">No manager runs in cluster ${cluster}, so changes wait. Start a manager: heron manager start ${cluster}</p>`);

const JOBS = [
  { title: 'job', by: (row) => row.job, cell: (row) => html`<a href=${address(row)}>${row.job}</a><span class="where">${row.cluster}</span>` },
  { title: 'state', by: (row) => row.state, cell: (row) => html`<${State} state=${row.state} />${row.plan && html`<span class="where">${row.plan}</span>`}` },
  { title: 'tasks', num: true, help: 'running, of wanted', by: (row) => row.running, cell: (row) => of(row.running, row.tasks) },
  { title: 'lag', num: true, by: (row) => row.lag_s, cell: (row) => html`${lagOf(row.lag_s, row.slo_lag_s)}${row.old_at && html`<span class="where"><${When} at=${row.old_at} /></span>`}` },
  figure('kept', 'slo_kept', kept, 'share of the time in which the lag was within the promise'),
  { title: 'last decision', cell: ({ why, decided }) => html`<span class="words" title=${decided?.text ?? why}>${why && why !== decided?.text && html`<b>${why}</b> `}${decided && html`<${When} at=${decided.at} /> ${decided.text}`}</span>` },
];

/** All jobs; shows nothing if there is no job. @param {{filter: string}} props */
export function Jobs({ filter }) {
  const jobs = useGet('jobs', {}, 10).data ?? [];
  const rows = jobs.filter((row) => fits(filter, row.job, row.cluster, row.state, row.why, row.decided?.text));
  return jobs.length > 0 && html`<${Section} title="jobs">${unkept(jobs)}<${Table} columns=${JOBS} rows=${rows} name=${address} caption="jobs" empty="No job matches the filter." /><//>`;
}

/** The page of a job, even if its topology does not run. @param {{route: any}} props */
export function JobPage({ route }) {
  const [cluster, name] = route.arg.split('/');
  return html`<main><nav class="crumbs" aria-label="breadcrumb"><a href="#/">topologies</a> / <span>${cluster}</span></nav>
    <header class="head"><h1>${name}</h1></header><${Job} place=${{ cluster, name }} alone=${true} /></main>`;
}

/** The job of a topology. Without a job, nothing is shown, or a problem on the page of a job (`alone`). @param {{place: any, alone?: boolean}} props */
export function Job({ place, alone }) {
  const may = useMay();
  const asked = useGet('jobs', { cluster: place.cluster, job: place.name }, 10);
  const [change, setChange] = useState(null);
  const [job] = asked.data ?? [];
  if (!job) return alone && html`<${Trouble} problem=${asked.data ? { title: `cluster ${place.cluster} has no job ${place.name}`, detail: `heron job list ${place.cluster} lists them` } : asked.problem} />`;
  const { document, origin, scaler } = job;
  const here = job.place && { cluster: job.cluster, name: job.job, ...job.place };
  const button = (title, what) => may && html`<button aria-label=${what.about && `${title} ${what.about}`} onClick=${() => setChange({ title, to: 'layers/oncall', version: job.versions.oncall, ...what })}>${title} …</button>`;
  const pinned = Object.entries(origin).filter(([, one]) => one.layer === 'oncall');
  const stop = document.run === 'running'
    ? button('stop', { body: { set: { run: 'stopped' } }, says: 'The topology stops with a savepoint; without checkpoints it is drained.' })
    : button('start', { body: origin.run?.layer === 'oncall' ? { unset: ['run'] } : { set: { run: 'running' } }, says: 'The topology starts from its latest checkpoint, or resumes.' });
  const rows = Object.entries(document.parallelism).map(([component, tasks]) => ({ ...scaler.components[component], component, tasks, by: origin[`parallelism.${component}`] }));
  const columns = [
    plain('component', 'component', (name) => (here ? link(here, 'component', name, name) : name)),
    { title: 'tasks', num: true, by: (row) => row.tasks, help: 'wanted, of the maximum for the scaler', cell: ({ component, tasks }) => (document.scale?.max?.[component] ? of(tasks, document.scale.max[component]) : tasks) },
    ...(may ? [{ title: 'change', cell: (row) => button('pin', { about: row.component, tasks: row.tasks, body: (tasks) => ({ set: { parallelism: { [row.component]: tasks } } }), says: 'The scaler does not change a pinned component.' }) }] : []),
    { title: 'set by', cell: ({ by }) => html`<span title=${by?.why}>${by ? `${by.layer}${by.layer === 'oncall' ? `, ${by.who}` : ''}` : 'the program'}</span>` },
    figure('input', 'arrives_per_s', rate),
    figure('one task', 'each_per_s', rate, 'throughput of one task'),
    figure('busy', 'busy', share),
    { title: 'the scaler', cell: (row) => html`<span class="words">${row.verdict ?? UNKNOWN}</span>` },
  ];
  const facts = [
    document.slo?.lag_s && ['lag', lagOf(scaler.lag_s, document.slo.lag_s), 'now, of the promised lag'],
    scaler.slo_kept !== null && ['promise kept', kept(scaler.slo_kept), 'share of the time in which the lag was known'],
    document.place?.pool && ['pool', document.place.pool],
    document.scale?.mode && ['scale.mode', document.scale.mode],
    !alone || !here || ['topology', html`<a href=${to(here)}>${here.name}</a>`],
  ].filter(Array.isArray);
  const reasons = [
    // A change gives the decision as its reason.
    ...job.decisions.filter((one) => !job.changes.some(({ stamp }) => stamp.why.includes(one.text))).map((one) => [one.at, `${one.who}: ${one.text}`]),
    ...job.changes.map(({ layer, version, stamp, before, after }) => [
      stamp.at,
      `${layer} v${version} by ${stamp.who}, ${keysOf([...after, ...before])}: ${stamp.why} `,
      version < job.versions[layer] && /oncall|provisioner/.test(layer) && button('revert to', { about: `${layer} v${version}`, to: `layers/${layer}`, version: job.versions[layer], body: { revert: version }, says: 'The layer is restored to that version.' }),
    ]),
  ];
  return html`<${Section} title="job" aside=${html`<span class="spans"><${State} state=${job.state} />
      ${job.state === 'QUARANTINED' || job.state === 'WAITING' ? button('release', { to: 'release', version: job.version, body: {}, says: 'Failed steps are retried immediately.' }) : ''}${stop}</span>`}>
    ${unkept([job])}${[job.plan, job.failure, job.capacity, ...scaler.alerts].map((text, number) => text && html`<p key=${text} class=${`flow ${number ? 'warn' : 'info'}`} role="status">${text}</p>`)}
    ${scaler.at !== null && scaler.is_old && html`<p class="flow warn" role="status">The figures are from <${When} at=${scaler.at} />.</p>`}
    ${facts.length > 0 && html`<${Facts} items=${facts} />`}
    <${Table} columns=${columns} rows=${rows} name=${(row) => row.component} caption="tasks of the job" />
    ${pinned.length > 0 && html`<h3>set manually</h3><ul class="pins">${pinned.map(([name, one]) => html`<li key=${name}><b>${name} = ${String(one.value)}</b> by ${one.who}, <${When} at=${one.at} />${one.until && html`, until <${When} at=${one.until} />`}${one.then !== null && `, then ${String(one.then)}`}${one.why && `: ${one.why}`} ${button('remove', { about: name, body: { unset: [name] }, says: 'The value of the other layers or of the program applies again; the scaler continues from the number of tasks that runs.' })}</li>`)}</ul>`}
    <${Later}><${Minutes} job=${job} /><//>
    <h3>last decisions and changes</h3>
    <ul class="changes" tabindex="0" aria-label="last decisions and changes">${reasons.sort(([one], [other]) => other - one).slice(0, REASONS_SHOWN).map(([at, ...text], number) => html`<li key=${number}><${When} at=${at} /> ${text}</li>`)}</ul>
    ${change && html`<${Change} job=${job} change=${change} onClose=${() => setChange(null)} onDone=${() => { setChange(null); asked.again(); }} />`}
  <//>`;
}

/** Load, tasks and lag of the last day, with a mark for each decision; shows nothing without a scaler. @param {{job: any}} props */
function Minutes({ job }) {
  const { data } = useGet(path('jobs', job.cluster, job.job, 'minutes'), {}, 30);
  const nodes = useMemo(() => [...new Set(data?.series.map((one) => one.component))].filter(Boolean).map((name) => ({ name })), [data && Object.keys(job.document.parallelism).join()]);
  const marks = useMemo(() => job.decisions.map((one) => ({ ...one, kind: 'decision', subject: one.component, first_at: one.at, times: 1 })), [job.decisions.length, data]);
  return data?.times.length > 1 && html`<${Charts} charts=${OF_JOB} timeline=${data} events=${marks} nodes=${nodes} />`;
}

/** A dialog for a change and its reason; the request names the version that was seen. @param {{job: any, change: any, onClose: () => void, onDone: () => void}} props */
function Change({ job, change, onClose, onDone }) {
  const [tasks, setTasks] = useState(change.tasks);
  const [holds, setHolds] = useState(0);
  const [why, setWhy] = useState('');
  const [problem, setProblem] = useState(null);
  const running = useRef(false);
  const asks = change.to !== 'release';
  const run = async () => {
    if (running.current) return; // the second click of a double click
    running.current = true;
    try {
      const body = typeof change.body === 'function' ? change.body(tasks) : change.body;
      const more = asks && { why, ...(holds && { for_s: holds }) };
      await post(`${path('jobs', job.cluster, job.job)}/${change.to}`, { ...body, ...more }, { 'If-Match': `"${change.version}"` });
      onDone();
    } catch (error) {
      setProblem(problemOf(error));
    }
    running.current = false;
  };
  return html`<${Dialog} title=${`${change.title} ${change.about ?? job.job}`} onClose=${onClose} buttons=${html`<button class="do" disabled=${change.tasks && !(tasks > 0)} onClick=${run}>${change.title}</button>`}>
    <p>${change.says}</p>
    ${change.tasks && html`<label>tasks <input type="number" min="1" max="100000" value=${tasks} onInput=${(event) => setTasks(event.target.valueAsNumber)} /></label>
      <label>duration <select value=${holds} onChange=${(event) => setHolds(+event.target.value)}>${HOLDS.map(([words, seconds]) => html`<option key=${words} value=${seconds}>${words}</option>`)}</select></label>`}
    ${asks && html`<label>why <input value=${why} maxlength="500" onInput=${(event) => setWhy(event.target.value)} /></label>`}
    <${Trouble} problem=${problem} />
  <//>`;
}

/** The pools of all clusters; shows nothing if there is no pool. */
export function Pools() {
  const pools = useGet('pools', {}, 30).data ?? [];
  return pools.map((one) => html`<${Pool} key=${`${one.cluster}/${one.pool}`} of=${one} />`);
}

/** A pool and its slots. @param {{of: any}} props */
function Pool({ of: { cluster, pool } }) {
  const { data, problem } = useGet(path('pools', cluster, pool), {}, 10);
  const columns = useMemo(() => [
    plain('slot', 'slot', count),
    plain('state', 'state', (state) => html`<${State} state=${state} />`),
    figure('memory', 'ram_bytes', (value) => `${bytes(value)} of ${bytes(data.size.ram_bytes)}`),
    figure('CPU', 'cpu', (value) => `${count(value)} of ${count(data.size.cpu)}`, 'cores'),
    figure('shards', 'shards', count),
    figure('containers', 'containers', count),
    plain('host', 'host', (host) => host || UNKNOWN),
  ], [data?.size.cpu, data?.size.ram_bytes]);
  return html`<${Section} title=${`pool ${pool}`}><${Trouble} problem=${problem} />
    ${data && html`<p class="quiet">${cluster}; topologies: ${data.topologies.join(', ') || 'none'}${data.scheduler || '; its scheduler is not running, but the slots are'}</p>
      <${Table} columns=${columns} rows=${data.slots} name=${(row) => row.slot} caption=${`slots of pool ${pool}`} />`}
  <//>`;
}
