// The state of a job of any kind, in the words of its kind, and which pods belong to it. The same rules as `yard ps`.
import { type Resource, JOBS, JOBSETS, PODS, PYTORCHJOBS, TRAINJOBS } from '../api/kinds';
import { type Condition, conditionsOf, type KubeObject } from '../api/objects';

/** What a state means for someone who looks for trouble. */
export type Phase = 'running' | 'waiting' | 'failed' | 'succeeded';

export interface RunState {
  word: string;
  phase: Phase;
  done: boolean;
  message: string;
}

const SUCCEEDED = ['Succeeded', 'Complete', 'Completed'];

export function runState(object: KubeObject): RunState {
  if (object.kind === 'Pod') return podState(object);
  const conditions = conditionsOf(object).filter((condition) => condition.status === 'True');
  const end = conditions.find((condition) => [...SUCCEEDED, 'Failed'].includes(condition.type));
  if (end) {
    const phase = end.type === 'Failed' ? 'failed' : 'succeeded';
    return { word: end.type, phase, done: true, message: end.message ?? '' };
  }
  const suspended = conditions.find((condition) => condition.type === 'Suspended');
  if (suspended || isSuspended(object)) return waiting('Suspended', suspended?.message);
  const progress = progressOf(object, conditions);
  return progress ?? waiting('Pending');
}

const waiting = (word: string, message = ''): RunState => ({ word, phase: 'waiting', done: false, message });
const running = (word = 'Running', message = ''): RunState => ({ word, phase: 'running', done: false, message });

function podState(pod: KubeObject): RunState {
  const status = (pod.status ?? {}) as { phase?: string; message?: string };
  const word = status.phase ?? 'Pending';
  const phases: Record<string, Phase> = { Running: 'running', Succeeded: 'succeeded', Failed: 'failed' };
  const phase = phases[word] ?? 'waiting';
  return { word, phase, done: phase === 'succeeded' || phase === 'failed', message: status.message ?? '' };
}

function progressOf(object: KubeObject, conditions: Condition[]): RunState | undefined {
  const status = object.status ?? {};
  switch (object.kind) {
    case 'TrainJob':
      return (status.jobsStatus ?? []).some((each: { ready?: number }) => each.ready) ? running() : undefined;
    case 'JobSet':
      return (status.replicatedJobsStatus ?? []).some((each: { ready?: number }) => each.ready) ? running() : undefined;
    case 'Job': {
      // `active` counts the pods that wait to start too.
      const ending = conditions.some((one) => one.type === 'SuccessCriteriaMet' || one.type === 'FailureTarget');
      return ending || (status.ready ?? status.active) ? running() : undefined;
    }
    default: {
      const last = conditions.filter((one) => one.type === 'Running' || one.type === 'Restarting').at(-1);
      return last ? running(last.type, last.message) : undefined;
    }
  }
}

export function isSuspended(object: KubeObject): boolean {
  const spec = object.spec ?? {};
  return Boolean(object.kind === 'PyTorchJob' ? spec.runPolicy?.suspend : spec.suspend);
}

/** The merge patch that suspends or resumes a job. */
export function suspendPatch(kind: string, suspend: boolean): object {
  return { spec: kind === 'PyTorchJob' ? { runPolicy: { suspend } } : { suspend } };
}

/** The selectors of the pods of a job. */
export function podSelection(object: KubeObject, kind: Resource): { labels?: string; fields?: string } {
  const name = object.metadata.name;
  if (kind === PODS) return { fields: `metadata.name=${name}` };
  if (kind === PYTORCHJOBS) return { labels: `training.kubeflow.org/job-name=${name}` };
  if (kind === TRAINJOBS || kind === JOBSETS) return { labels: `jobset.sigs.k8s.io/jobset-name=${name}` };
  const labels = (object.spec?.selector?.matchLabels ?? {}) as Record<string, string>;
  const text = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  return { labels: kind === JOBS && text.length ? text.sort().join(',') : `batch.kubernetes.io/job-name=${name}` };
}
