// The replicas of a job: rank, state and name of each pod.
import type { ContainerStatus, Pod } from '../api/objects';
import { toMs } from './time';

const NO_RANK = 2 ** 30;

/** The rank that the pod's environment names, or its completion index. */
export function rankOf(pod: Pod): number | undefined {
  for (const container of pod.spec.containers) {
    for (const variable of container.env ?? []) {
      if (variable.name === 'RANK' && /^\d+$/.test(variable.value ?? '')) return Number(variable.value);
    }
  }
  const index = pod.metadata.annotations?.['batch.kubernetes.io/job-completion-index'] ?? '';
  return /^\d+$/.test(index) ? Number(index) : undefined;
}

/** The name of a replica without its job: `worker-0`. */
export const shortName = (pod: string, job: string): string => (pod.startsWith(`${job}-`) ? pod.slice(job.length + 1) : pod);

export function sortByRank(pods: Pod[]): Pod[] {
  const rank = (pod: Pod): number => rankOf(pod) ?? NO_RANK;
  return [...pods].sort((a, b) => rank(a) - rank(b) || (a.metadata.name < b.metadata.name ? -1 : 1));
}

/** Whether a pod belongs to the job with this uid, not to an earlier job of the same name. */
export function belongsTo(pod: Pod, uid: string): boolean {
  const { metadata } = pod;
  if (metadata.uid === uid || (metadata.ownerReferences ?? []).some((owner) => owner.uid === uid)) return true;
  return 'jobset.sigs.k8s.io/jobset-name' in (metadata.labels ?? {}) && !metadata.deletionTimestamp;
}

export const restartsOf = (pod: Pod): number =>
  (pod.status?.containerStatuses ?? []).reduce((sum, each) => sum + (each.restartCount ?? 0), 0);

export interface Failure {
  pod: string;
  container: string;
  exitCode: number;
  reason: string;
  at: string;
  message: string;
  init: boolean;
}

function failuresOf(pod: Pod): Failure[] {
  const failures: Failure[] = [];
  const add = (container: ContainerStatus, init: boolean): void => {
    for (const state of [container.state, container.lastState]) {
      const ended = state?.terminated;
      if (!ended?.exitCode) continue;
      const message = (ended.message ?? '').trim();
      failures.push({
        pod: pod.metadata.name,
        container: container.name,
        exitCode: ended.exitCode,
        reason: ended.reason ?? '',
        at: ended.finishedAt ?? '',
        message: ended.reason === 'OOMKilled' ? message || memoryLimit(pod, container.name) : message,
        init,
      });
    }
  };
  for (const each of pod.status?.initContainerStatuses ?? []) add(each, true);
  for (const each of pod.status?.containerStatuses ?? []) add(each, false);
  return failures;
}

function memoryLimit(pod: Pod, name: string): string {
  const container = [...(pod.spec.initContainers ?? []), ...pod.spec.containers].find((each) => each.name === name);
  const limit = container?.resources?.limits?.['memory'];
  return limit ? `memory limit ${limit}` : 'no memory limit is set: the node ran out of memory';
}

/** The container that failed first; the other failures usually follow from it. */
export function firstFailure(pods: Pod[]): Failure | undefined {
  return pods.flatMap(failuresOf).sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0))[0];
}

/** Why a pod does not run yet; empty if nothing holds it up. */
export function pendingReason(pod: Pod): string {
  const status = pod.status ?? {};
  const unscheduled = (status.conditions ?? []).find((one) => one.type === 'PodScheduled' && one.status === 'False');
  if (unscheduled) return unscheduled.message ?? unscheduled.reason ?? '';
  for (const container of [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])]) {
    const waiting = container.state?.waiting;
    if (waiting?.message) return `${waiting.reason}: ${waiting.message}`;
  }
  return '';
}

/** When the first container of a pod started. */
export function startedAt(pod: Pod): number | undefined {
  const times = (pod.status?.containerStatuses ?? [])
    .flatMap((each) => [each.state?.running?.startedAt, each.state?.terminated?.startedAt, each.lastState?.terminated?.startedAt])
    .map(toMs)
    .filter((time) => time !== undefined);
  return times.length ? Math.min(...times) : undefined;
}
