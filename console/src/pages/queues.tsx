// ClusterQueues: quota, who holds it, who waits in which order and why; hold, resume, move.
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { mayI, patch } from '../api/actions';
import { JOB_KINDS, LOCAL_QUEUES, qualified, url, WORKLOADS } from '../api/kinds';
import type { KubeObject } from '../api/objects';
import { useGet, useNow } from '../api/use';
import { QUEUE_LABEL } from '../model/job_row';
import { estimates, inOrder, quotaUse, type QueuedWorkload } from '../model/queue';
import { amount } from '../model/quantity';
import { duration } from '../model/time';
import { jobLink } from '../router';
import { Dialog, Empty, Failure, Loading, Rest } from '../ui/parts';
import { toast } from '../ui/toasts';
import { Confirm } from './job/actions';
import { Meter } from './overview';
import { type Queues, useQueues } from './use_queues';

const MAX_ROWS = 200;

export function QueuesPage(): JSX.Element {
  const queues = useQueues();
  const [moving, setMoving] = useState<QueuedWorkload>();
  const unknown = queues.workloads.filter((each) => !queues.clusterQueues.some((queue) => queue.metadata.name === each.clusterQueue) && each.state !== 'Finished');
  return (
    <main class="content">
      <div class="page-head"><h1>Queues</h1></div>
      {queues.errors.map((error) => <Failure key={error.message} error={error} what="Queues" />)}
      <Loading of={queues} />
      <div class="stack">
        {queues.clusterQueues.map((queue) => <QueueCard key={queue.metadata.uid} queue={queue} queues={queues} move={setMoving} />)}
        {unknown.length > 0 && <section class="card"><h2>Workloads whose ClusterQueue is not shown</h2><Workloads rows={inOrder(unknown)} times={new Map()} reasons={new Map()} move={setMoving} /></section>}
        {queues.loaded && !queues.errors.length && !queues.clusterQueues.length && !unknown.length && <Empty>{queues.absent ? 'This cluster does not serve kueue.x-k8s.io.' : 'There are no ClusterQueues.'}</Empty>}
      </div>
      {moving && <Move workload={moving} queues={queues} onClose={() => setMoving(undefined)} />}
    </main>
  );
}

interface Pending {
  items?: { metadata: { name: string; namespace: string }; positionInClusterQueue?: number; pendingReason?: string }[];
}

function QueueCard({ queue, queues, move }: { queue: KubeObject; queues: Queues; move: (workload: QueuedWorkload) => void }): JSX.Element {
  const name = queue.metadata.name;
  const now = useNow(5000);
  const own = queues.workloads.filter((each) => each.clusterQueue === name);
  const pendingOrHeld = own.filter((each) => each.state === 'Pending' || each.state === 'Held');
  const holding = inOrder(own.filter((each) => each.state === 'Admitted' || each.state === 'Reserved'));
  // Torchyard's planes say here what is missing and whether it can ever fit; Kueue gives the order only.
  const pending = useGet<Pending>(pendingOrHeld.length ? `k8s/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/${encodeURIComponent(name)}/pendingworkloads` : '', 10_000);
  const reasons = new Map((pending.value?.items ?? []).map((each) => [`${each.metadata.namespace}/${each.metadata.name}`, each.pendingReason ?? '']));
  const positions = new Map((pending.value?.items ?? []).map((each, index) => [`${each.metadata.namespace}/${each.metadata.name}`, each.positionInClusterQueue ?? index]));
  const waiting = inOrder(pendingOrHeld, positions);
  const locals = queues.localQueues.filter((each) => each.spec?.clusterQueue === name).map((each) => `${each.metadata.namespace}/${each.metadata.name}`);
  return (
    <section class="card">
      <div class="page-head">
        <h2>{name}</h2>
        {queue.spec?.cohortName && <span class="tag">cohort {queue.spec.cohortName}</span>}
        <span class="tag">{queue.spec?.queueingStrategy ?? 'BestEffortFIFO'}</span>
        {queue.spec?.stopPolicy && queue.spec.stopPolicy !== 'None' && <span class="state waiting">{queue.spec.stopPolicy}</span>}
        <span class="muted">{locals.slice(0, 6).join(', ')}{locals.length > 6 && ` and ${locals.length - 6} more`}</span>
      </div>
      {quotaUse(queue).map((each) => (
        <div key={each.flavor + each.resource}>
          <Meter name={each.label} resource={each.resource} used={each.used} total={each.quota} />
          {each.borrowed > 0 && <div class="muted">of these {amount(each.resource, each.borrowed)} borrowed</div>}
        </div>
      ))}
      <h3 class="muted">Waiting, in order</h3>
      {waiting.length ? <Workloads rows={waiting} times={estimates(own, now, positions)} reasons={reasons} move={move} /> : <p class="muted">Nothing waits.</p>}
      <h3 class="muted">Holding quota</h3>
      {holding.length ? <Workloads rows={holding} move={move} /> : <p class="muted">Nothing holds quota.</p>}
    </section>
  );
}

interface WorkloadsProps {
  rows: QueuedWorkload[];
  /** Of workloads that wait: when they may start, and why they wait. */
  times?: Map<string, number>;
  reasons?: Map<string, string>;
  move: (workload: QueuedWorkload) => void;
}

function Workloads({ rows, times, reasons, move }: WorkloadsProps): JSX.Element {
  const now = useNow(5000);
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label="Workloads">
      <table class="table phone">
        <thead><tr><th>Job</th><th>Queue</th><th class="right">Priority</th><th>State</th><th class="right">Age</th>{times && <th>Starts</th>}{times && <th>Reason</th>}<th><span class="hidden">Actions</span></th></tr></thead>
        <tbody>
          {rows.slice(0, MAX_ROWS).map((row) => {
            const { metadata } = row.object;
            const estimate = times?.get(metadata.uid);
            return (
              <tr key={metadata.uid}>
                <td><JobName row={row} /></td>
                <td class="muted">{metadata.namespace}/{row.localQueue}</td>
                <td class="right number" data-label="priority">{row.priority}</td>
                <td>{row.state}</td>
                <td class="right number" data-label="age">{duration(now - row.created)}</td>
                {times && <td class="number" data-label="starts">{estimate === undefined ? '–' : estimate < 1 ? 'next' : `in about ${duration(estimate * 1000)}`}</td>}
                {times && <td class="muted wide">{reasons?.get(`${metadata.namespace}/${metadata.name}`) || row.reason}</td>}
                <td><WorkloadActions row={row} move={move} /></td>
              </tr>
            );
          })}
        </tbody>
      </table>
      <Rest of={rows.length} shown={MAX_ROWS} />
    </div>
  );
}

function JobName({ row }: { row: QueuedWorkload }): JSX.Element {
  const kind = JOB_KINDS.find((each) => each.kind === row.jobKind);
  const namespace = row.object.metadata.namespace ?? '';
  return kind ? <a href={jobLink({ namespace, resource: qualified(kind), name: row.job })}><b>{row.job}</b></a> : <b>{row.job}</b>;
}

function WorkloadActions({ row, move }: { row: QueuedWorkload; move: (workload: QueuedWorkload) => void }): JSX.Element {
  const namespace = row.object.metadata.namespace ?? '';
  const [allowed, setAllowed] = useState(true);
  useEffect(() => void mayI('patch', WORKLOADS, namespace).then(setAllowed), [namespace]);
  const [asks, setAsks] = useState(false);
  const held = row.state === 'Held';
  const runs = row.state === 'Admitted' || row.state === 'Reserved';
  const why = allowed ? (held ? 'Queue it again' : 'Take it out of its queue; a running job is stopped') : 'You may not patch workloads in this namespace.';
  const set = (): Promise<void> =>
    patch(WORKLOADS, row.object, { spec: { active: held } }).then(() => toast(held ? `${row.job} is queued again` : `${row.job} is on hold`), (error: Error) => toast(error.message, true));
  return (
    <span class="row tight">
      <button disabled={!allowed} title={why} onClick={() => (runs ? setAsks(true) : void set())}>{held ? 'Resume' : 'Hold'}</button>
      {asks && (
        <Confirm title={`Hold ${row.job}?`} verb="Hold" onClose={() => setAsks(false)} run={set}>
          It has its quota: its pods are deleted, and what they have not saved is lost. It stays out of its queue until Resume.
        </Confirm>
      )}
      {(row.state === 'Pending' || held) && <button disabled={!allowed} onClick={() => move(row)}>Move</button>}
    </span>
  );
}

function Move({ workload, queues, onClose }: { workload: QueuedWorkload; queues: Queues; onClose: () => void }): JSX.Element {
  const namespace = workload.object.metadata.namespace ?? '';
  const others = queues.localQueues.filter((each) => each.metadata.namespace === namespace && each.metadata.name !== workload.localQueue);
  const [target, setTarget] = useState(others[0]?.metadata.name ?? '');
  const kind = JOB_KINDS.find((each) => each.kind === workload.jobKind);
  const run = (): void => {
    onClose();
    const owner: KubeObject = { metadata: { ...workload.object.metadata, name: workload.job } };
    const work = kind ? patch(kind, owner, { metadata: { labels: { [QUEUE_LABEL]: target } } }) : patch(WORKLOADS, workload.object, { spec: { queueName: target } });
    work.then(() => toast(`${workload.job} is queued in ${target}`), (error: Error) => toast(error.message, true));
  };
  return (
    <Dialog title={`Move ${workload.job}`} onClose={onClose}>
      {others.length ? (
        <label>LocalQueue <select value={target} onChange={(event) => setTarget(event.currentTarget.value)}>{others.map((each) => <option key={each.metadata.name}>{each.metadata.name}</option>)}</select></label>
      ) : (
        <p>Namespace {namespace} has no other LocalQueue ({url(LOCAL_QUEUES, namespace).replace('k8s', '')}).</p>
      )}
      <div class="actions">
        <button onClick={onClose}>Cancel</button>
        <button class="primary" disabled={!target} onClick={run}>Move</button>
      </div>
    </Dialog>
  );
}
