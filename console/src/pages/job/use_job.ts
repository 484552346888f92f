// A job with its pods, its workload and its events, live.
import { useMemo } from 'preact/hooks';
import { whole } from '../../api/collection';
import type { ApiError } from '../../api/http';
import { EVENTS, PODS, type Resource, WORKLOADS } from '../../api/kinds';
import type { KubeObject, Pod } from '../../api/objects';
import { useCollection } from '../../api/use';
import { type KubeEvent, lastSeen } from '../../model/explain';
import { belongsTo, sortByRank } from '../../model/replicas';
import { podSelection } from '../../model/state';

export interface JobData {
  kind: Resource;
  namespace: string;
  name: string;
  job: KubeObject | undefined;
  pods: Pod[];
  workload: KubeObject | undefined;
  events: KubeEvent[];
  loaded: boolean;
  error: ApiError | undefined;
  /** What of the job could not be read, such as pods that the user may not list. */
  failures: { what: string; error: ApiError }[];
}

// Selects nothing: no object has this name.
const NOTHING = { fields: 'metadata.name=-' };
const NO_UID = '00000000-0000-0000-0000-000000000000';

export function useJob(kind: Resource, namespace: string, name: string): JobData {
  const jobs = useCollection(kind, whole, { namespace, fields: `metadata.name=${name}` });
  const job = jobs.items.get(`${namespace}/${name}`);
  const selection = job ? podSelection(job, kind) : NOTHING;
  const pods = useCollection(PODS, whole, { namespace, ...selection });
  const labels = `kueue.x-k8s.io/job-uid=${job?.metadata.uid ?? NO_UID}`;
  const workloads = useCollection(WORKLOADS, whole, { namespace, labels });
  const events = useCollection(EVENTS, whole, { namespace });
  return useMemo(() => {
    const own = job ? sortByRank(([...pods.items.values()] as Pod[]).filter((pod) => belongsTo(pod, job.metadata.uid))) : [];
    const workload = [...workloads.items.values()].sort((a, b) => (a.metadata.creationTimestamp < b.metadata.creationTimestamp ? 1 : -1))[0];
    const uids = new Set([job?.metadata.uid, workload?.metadata.uid, ...own.map((pod) => pod.metadata.uid)]);
    const about = ([...events.items.values()] as KubeEvent[])
      .filter((event) => uids.has(event.involvedObject?.uid ?? '') || (job && isPart(event, job)))
      .sort((a, b) => (lastSeen(a) < lastSeen(b) ? -1 : 1));
    // A connection that breaks later leaves what was read: the watch continues when it is back.
    const failures = job ? Object.entries({ Pods: pods, Workloads: workloads, Events: events }).flatMap(([what, { loaded, error }]) => (error && !loaded ? [{ what, error }] : [])) : [];
    return { kind, namespace, name, job, pods: own, workload, events: about, loaded: jobs.loaded, error: jobs.error, failures };
  }, [jobs.version, pods.version, workloads.version, events.version, kind, namespace, name]);
}

/** Events of the Jobs and pods of a job that no longer exist, but not of an earlier job of the same name. */
const isPart = (event: KubeEvent, job: KubeObject): boolean => {
  const about = event.involvedObject;
  if (!about?.name?.startsWith(`${job.metadata.name}-`) || !['Job', 'JobSet', 'Pod'].includes(about.kind ?? '')) return false;
  return lastSeen(event) >= job.metadata.creationTimestamp;
};
