// The jobs of all kinds as one list.
import { useMemo } from 'preact/hooks';
import type { Collection } from '../api/collection';
import { JOBS, JOBSETS, PODS, PYTORCHJOBS, TRAINJOBS } from '../api/kinds';
import { useCollection } from '../api/use';
import { type JobRow, toJobRow } from '../model/job_row';
import { useView } from '../session';

// Pods of jobs and Deployments are in no row. There may be many times as many of them as jobs, so they are not even read.
const NOT_OF_JOBS = ['batch.kubernetes.io/job-name', 'training.kubeflow.org/job-name', 'pod-template-hash', 'controller-revision-hash'].map((label) => `!${label}`).join(',');

export interface Jobs {
  /** The same array until something changes. */
  rows: JobRow[];
  loaded: boolean;
  collections: Collection<JobRow>[];
}

export function useJobs(): Jobs {
  const { namespace } = useView();
  const selection = { namespace };
  const collections = [
    useCollection(PYTORCHJOBS, toJobRow, selection),
    useCollection(TRAINJOBS, toJobRow, selection),
    useCollection(JOBSETS, toJobRow, selection),
    useCollection(JOBS, toJobRow, selection),
    useCollection(PODS, toJobRow, { ...selection, labels: NOT_OF_JOBS }),
  ];
  const rows = useMemo(() => collections.flatMap((each) => [...each.items.values()]), collections.map((each) => each.version));
  return { rows, loaded: collections.every((each) => each.loaded || each.error), collections };
}
