// Kueue's objects as the pages show them: quota and use of ClusterQueues, and who waits in which order.
import { findCondition, isTrue, type KubeObject } from '../api/objects';
import { queueReason } from './explain';
import { parseQuantity } from './quantity';
import { toMs } from './time';

export interface QuotaUse {
  flavor: string;
  resource: string;
  /** The resource, with its flavor if it has several. */
  label: string;
  used: number;
  quota: number;
  borrowed: number;
}

export function quotaUse(queue: KubeObject): QuotaUse[] {
  const used = new Map<string, { total: number; borrowed: number }>();
  for (const flavor of queue.status?.flavorsUsage ?? []) {
    for (const each of flavor.resources ?? []) {
      used.set(`${flavor.name}/${each.name}`, { total: parseQuantity(each.total) || 0, borrowed: parseQuantity(each.borrowed) || 0 });
    }
  }
  const rows: QuotaUse[] = [];
  for (const group of queue.spec?.resourceGroups ?? []) {
    for (const flavor of group.flavors ?? []) {
      for (const each of flavor.resources ?? []) {
        const use = used.get(`${flavor.name}/${each.name}`);
        rows.push({ flavor: flavor.name, resource: each.name, label: each.name, quota: parseQuantity(each.nominalQuota) || 0, used: use?.total ?? 0, borrowed: use?.borrowed ?? 0 });
      }
    }
  }
  return rows.map((row) => ({ ...row, label: rows.filter((other) => other.resource === row.resource).length > 1 ? `${row.resource} (${row.flavor})` : row.resource }));
}

export interface QueuedWorkload {
  object: KubeObject;
  job: string;
  jobKind: string;
  state: 'Pending' | 'Held' | 'Reserved' | 'Admitted' | 'Finished';
  clusterQueue: string;
  localQueue: string;
  priority: number;
  created: number;
  since: number | undefined;
  reason: string;
}

export function toQueued(workload: KubeObject, clusterQueueOf: (namespace: string, queue: string) => string): QueuedWorkload {
  const owner = workload.metadata.ownerReferences?.[0];
  const localQueue = (workload.spec?.queueName ?? '') as string;
  const reservedIn = workload.status?.admission?.clusterQueue as string | undefined;
  const state = isTrue(workload, 'Finished') ? 'Finished' : isTrue(workload, 'Admitted') ? 'Admitted' : reservedIn ? 'Reserved' : workload.spec?.active === false ? 'Held' : 'Pending';
  return {
    object: workload,
    job: owner?.name ?? workload.metadata.name,
    jobKind: owner?.kind ?? 'Workload',
    state,
    clusterQueue: reservedIn ?? clusterQueueOf(workload.metadata.namespace ?? '', localQueue),
    localQueue,
    priority: (workload.spec?.priority ?? 0) as number,
    created: toMs(workload.metadata.creationTimestamp) ?? 0,
    since: toMs(findCondition(workload, 'Admitted')?.lastTransitionTime),
    reason: state === 'Pending' || state === 'Held' ? queueReason(workload) : '',
  };
}

const NO_POSITION = Number.MAX_SAFE_INTEGER;

/** The order in which a ClusterQueue considers its workloads: as the queue says, if it does; else priority, then age. */
export const inOrder = (workloads: QueuedWorkload[], positions: ReadonlyMap<string, number> = new Map()): QueuedWorkload[] =>
  [...workloads].sort((a, b) => position(a, positions) - position(b, positions) || b.priority - a.priority || a.created - b.created || (a.job < b.job ? -1 : 1));

const position = (workload: QueuedWorkload, positions: ReadonlyMap<string, number>): number =>
  positions.get(`${workload.object.metadata.namespace}/${workload.object.metadata.name}`) ?? NO_POSITION;

const MIN_FINISHED = 3;

/** Seconds until each pending workload starts, if those before it run as long as the finished ones did. */
export function estimates(workloads: QueuedWorkload[], now: number, positions: ReadonlyMap<string, number> = new Map()): Map<string, number> {
  const times = workloads.filter((each) => each.state === 'Finished').map(runTime).filter((time) => time !== undefined);
  const result = new Map<string, number>();
  if (times.length < MIN_FINISHED) return result;
  const mean = times.reduce((sum, each) => sum + each, 0) / times.length;
  const running = workloads.filter((each) => each.state === 'Admitted');
  const ends = running.map((each) => Math.max(0, mean - (now - (each.since ?? now)) / 1000));
  if (!ends.length) ends.push(0);
  for (const each of inOrder(workloads.filter((other) => other.state === 'Pending'), positions)) {
    ends.sort((a, b) => a - b);
    const start = ends[0] as number;
    result.set(each.object.metadata.uid, start);
    ends[0] = start + mean;
  }
  return result;
}

function runTime(workload: QueuedWorkload): number | undefined {
  const end = toMs(findCondition(workload.object, 'Finished')?.lastTransitionTime);
  return end === undefined || workload.since === undefined ? undefined : Math.max(0, (end - workload.since) / 1000);
}
