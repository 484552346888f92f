// The life of a job: submitted, queued, admitted, scheduled, started, first step, end. What is not known is left out.
import { findCondition, type KubeObject, type Pod } from '../api/objects';
import { endOf } from './job_row';
import { startedAt } from './replicas';
import { runState } from './state';
import { toMs } from './time';

export interface Stage {
  name: string;
  at: number | undefined;
  tone?: 'failed' | 'succeeded';
}

const earliest = (times: (number | undefined)[]): number | undefined => {
  const known = times.filter((time) => time !== undefined);
  return known.length ? Math.min(...known) : undefined;
};

const trueSince = (object: KubeObject | undefined, type: string): number | undefined => {
  const condition = object ? findCondition(object, type) : undefined;
  return condition?.status === 'True' ? toMs(condition.lastTransitionTime) : undefined;
};

export function timeline(job: KubeObject, pods: Pod[], workload: KubeObject | undefined, pulled: number | undefined, firstStep: number | undefined): Stage[] {
  const state = runState(job);
  const stages: Stage[] = [{ name: 'Submitted', at: toMs(job.metadata.creationTimestamp) }];
  if (workload) {
    stages.push({ name: 'Queued', at: toMs(workload.metadata.creationTimestamp) });
    stages.push({ name: 'Admitted', at: trueSince(workload, 'Admitted') });
  }
  stages.push({ name: 'Scheduled', at: earliest(pods.map((pod) => trueSince(pod, 'PodScheduled'))) });
  if (pulled !== undefined) stages.push({ name: 'Image pulled', at: pulled });
  stages.push({ name: 'Started', at: earliest(pods.map(startedAt)) });
  if (firstStep !== undefined || !state.done) stages.push({ name: 'First step', at: firstStep });
  const tone = state.phase === 'failed' ? 'failed' : 'succeeded';
  stages.push(state.done ? { name: state.word, at: endOf(job), tone } : { name: 'End', at: undefined });
  return stages;
}
