// One row of the list of jobs: what the list shows, filters and sorts by, for every kind.
import { type Resource, JOB_KINDS, qualified } from '../api/kinds';
import { conditionsOf, hasController, type KubeObject } from '../api/objects';
import { type Phase, runState } from './state';
import { toMs } from './time';

export const QUEUE_LABEL = 'kueue.x-k8s.io/queue-name';

export interface JobRow {
  key: string;
  uid: string;
  kind: string;
  resource: string;
  namespace: string;
  name: string;
  state: string;
  phase: Phase;
  message: string;
  queue: string;
  created: number;
  started: number | undefined;
  ended: number | undefined;
  replicas: number;
  ready: number;
  elastic: string;
  /** As the training reports it: `29%, 23m left, loss 0.13`. */
  progress: string;
  labels: Record<string, string>;
}

/** Undefined for a job that another object controls: its owner is in the list. */
export function toJobRow(object: KubeObject): JobRow | undefined {
  if (hasController(object)) return undefined;
  const kind = JOB_KINDS.find((each) => each.kind === object.kind) as Resource;
  const { metadata } = object;
  const state = runState(object);
  const counts = replicaCounts(object);
  return {
    key: `${qualified(kind)}/${metadata.namespace ?? ''}/${metadata.name}`,
    uid: metadata.uid,
    kind: kind.kind,
    resource: qualified(kind),
    namespace: metadata.namespace ?? '',
    name: metadata.name,
    state: state.word,
    phase: state.phase,
    message: state.message,
    queue: metadata.labels?.[QUEUE_LABEL] ?? '',
    created: toMs(metadata.creationTimestamp) ?? 0,
    started: startOf(object),
    ended: state.done ? endOf(object) : undefined,
    replicas: whole(counts.total),
    ready: whole(counts.ready),
    elastic: elasticBounds(object),
    progress: progressText(object),
    labels: metadata.labels ?? {},
  };
}

export function startOf(object: KubeObject): number | undefined {
  const status = object.status ?? {};
  const running = conditionsOf(object).find((one) => one.type === 'Running');
  return toMs(status.startTime as string | undefined) ?? toMs(running?.lastTransitionTime);
}

export function endOf(object: KubeObject): number | undefined {
  const status = object.status ?? {};
  const ends = conditionsOf(object).filter(
    (one) => one.status === 'True' && ['Succeeded', 'Complete', 'Completed', 'Failed'].includes(one.type),
  );
  const finished = ((status.containerStatuses ?? []) as { state?: { terminated?: { finishedAt?: string } } }[])
    .map((each) => toMs(each.state?.terminated?.finishedAt))
    .filter((time) => time !== undefined);
  return toMs(status.completionTime as string | undefined) ?? toMs(ends[0]?.lastTransitionTime) ?? finished.at(-1);
}

/** A count that is no number, as of a careless controller, is none. */
const whole = (count: unknown): number => (typeof count === 'number' && Number.isFinite(count) ? count : 0);

interface Counts {
  total: number;
  ready: number;
}

function replicaCounts(object: KubeObject): Counts {
  const spec = object.spec ?? {};
  const status = object.status ?? {};
  switch (object.kind) {
    case 'PyTorchJob': {
      const wanted = Object.values((spec.pytorchReplicaSpecs ?? {}) as Record<string, { replicas?: number }>);
      const active = Object.values((status.replicaStatuses ?? {}) as Record<string, { active?: number; succeeded?: number }>);
      return { total: total(wanted.map((each) => each?.replicas ?? 1)), ready: total(active.map((each) => (each?.active ?? 0) + (each?.succeeded ?? 0))) };
    }
    case 'TrainJob': {
      // Its status counts Jobs, and all nodes are one Job.
      const jobs = (status.jobsStatus ?? []) as JobCounts[];
      const nodes = spec.trainer?.numNodes ?? 1;
      return { total: nodes, ready: jobs.some((each) => readyJobs(each)) ? nodes : 0 };
    }
    case 'JobSet': {
      // Its status counts Jobs, not their pods.
      const counts = new Map(((status.replicatedJobsStatus ?? []) as JobCounts[]).map((each) => [each.name, readyJobs(each)]));
      const wanted = (spec.replicatedJobs ?? []) as { name?: string; replicas?: number; template?: { spec?: ParallelSpec } }[];
      const pods = wanted.map((each) => parallelPods(each.template?.spec ?? {}));
      return {
        total: total(wanted.map((each, index) => (each.replicas ?? 1) * (pods[index] ?? 1))),
        ready: total(wanted.map((each, index) => (counts.get(each.name) ?? 0) * (pods[index] ?? 1))),
      };
    }
    case 'Job':
      return { total: spec.completions ?? spec.parallelism ?? 1, ready: (status.ready ?? 0) + (status.succeeded ?? 0) };
    default:
      return { total: 1, ready: ['Running', 'Succeeded'].includes(status.phase as string) ? 1 : 0 };
  }
}

interface JobCounts {
  name?: string;
  ready?: number;
  succeeded?: number;
}

interface ParallelSpec {
  parallelism?: number;
  completions?: number;
}

const readyJobs = (counts: JobCounts): number => (counts.ready ?? 0) + (counts.succeeded ?? 0);

const parallelPods = (spec: ParallelSpec): number => Math.min(spec.parallelism ?? 1, spec.completions ?? spec.parallelism ?? 1);

const total = (numbers: number[]): number => numbers.reduce((sum, each) => sum + each, 0);

/** A TrainJob has it in its status, other kinds in an annotation. */
export const progressText = (object: KubeObject): string =>
  (object.status?.progress as string | undefined) ?? object.metadata.annotations?.['torchyard.dev/progress'] ?? '';

/** `1–4` for a job whose number of workers may change; empty for others. */
export function elasticBounds(object: KubeObject): string {
  const spec = object.spec ?? {};
  const policy = spec.elasticPolicy as { minReplicas?: number; maxReplicas?: number } | undefined;
  if (policy) return `${policy.minReplicas ?? 1}–${policy.maxReplicas ?? '…'}`;
  return object.metadata.annotations?.['kueue.x-k8s.io/elastic-job'] === 'true' ? 'elastic' : '';
}
