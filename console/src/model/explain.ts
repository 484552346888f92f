// Why a job waits or has failed, in words. The same sentences as `yard why`, without its commands where a page has a button.
import { findCondition, type KubeObject, type Pod } from '../api/objects';
import { QUEUE_LABEL } from './job_row';
import { firstFailure, pendingReason } from './replicas';
import { runState } from './state';

export interface KubeEvent extends KubeObject {
  type?: string;
  reason?: string;
  message?: string;
  count?: number;
  lastTimestamp?: string;
  firstTimestamp?: string;
  eventTime?: string;
  involvedObject?: { kind?: string; name?: string; uid?: string };
}

export const lastSeen = (event: KubeEvent): string =>
  event.lastTimestamp || event.eventTime || event.metadata.creationTimestamp;

/** `listed` is undefined if the pods could not be read: nothing is concluded from their absence then. */
export function explain(job: KubeObject, listed: Pod[] | undefined, workload: KubeObject | undefined, events: KubeEvent[]): string[] {
  const state = runState(job);
  const pods = listed ?? [];
  const name = job.metadata.name;
  const headline = `${job.kind} ${name} is ${state.word}`;
  const says = state.message && !repeats(state.message, headline) ? `: ${state.message}` : '';
  const lines = [`${headline}${says}`];
  if (state.done) return state.phase === 'succeeded' ? lines : [...lines, ...(listed ? failureLines(listed) : [])];
  const queue = job.metadata.labels?.[QUEUE_LABEL] ?? '';
  if (state.word === 'Suspended' || (queue && !pods.length)) return [...lines, ...suspension(queue, workload)];
  for (const pod of pods) {
    const reason = pendingReason(pod);
    if (reason) lines.push(`${pod.metadata.name} waits: ${reason}`);
  }
  for (const pod of pods) {
    if (pod.metadata.deletionTimestamp) lines.push(`${pod.metadata.name} is terminating; the job goes on without it when its process has ended`);
  }
  if (!pods.length || lines.length > 1) lines.push(...warnings(events));
  if (listed && !pods.length && lines.length === 1) lines.push('it has no pods yet, and no event says why; is its controller running?');
  return lines;
}

/** Whether a message of a condition only says the state again, as `PyTorchJob mnist is running.` does. */
const repeats = (message: string, headline: string): boolean => message.replace(/\.$/, '').toLowerCase() === headline.toLowerCase();

function failureLines(pods: Pod[]): string[] {
  const failure = firstFailure(pods);
  if (!failure) return ['no container of it failed, or its pods are deleted'];
  const detail = [failure.reason, failure.message].filter(Boolean).join(', ');
  const init = failure.init ? `, init container ${failure.container}` : '';
  const lines = [`first to fail: ${failure.pod}${init}, exit code ${failure.exitCode}${detail ? ` (${detail})` : ''} at ${failure.at}`];
  if (failure.reason === 'OOMKilled') lines.push('raise resources.limits.memory of the container, or use a smaller batch');
  return lines;
}

function suspension(queue: string, workload: KubeObject | undefined): string[] {
  if (!queue) return ['it is suspended; Resume starts it again'];
  const reason = queueReason(workload);
  return [reason ? `it waits in queue ${queue}: ${reason}` : `queue ${queue} has admitted it`];
}

/** Why a queued job is not admitted, as its workload says; empty if it is admitted. */
export function queueReason(workload: KubeObject | undefined): string {
  if (!workload) return 'no workload has been created for it yet';
  if (findCondition(workload, 'Admitted')?.status === 'True') return '';
  if (workload.spec?.active === false) return 'it is on hold';
  for (const type of ['QuotaReserved', 'Admitted', 'Evicted']) {
    const condition = findCondition(workload, type);
    if (condition?.message && (type === 'Evicted' || condition.status !== 'True')) return condition.message;
  }
  return 'its queue has not looked at it yet';
}

/** The latest warning of each reason. */
function warnings(events: KubeEvent[]): string[] {
  const latest = new Map<string, string>();
  for (const event of events) if (event.type === 'Warning') latest.set(event.reason ?? '', event.message ?? '');
  return [...latest].map(([reason, message]) => `${reason}: ${message}`);
}
