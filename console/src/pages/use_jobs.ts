// The jobs of all kinds as one list.
import { useMemo } from 'preact/hooks';
import type { Collection } from '../api/collection';
import { JOBS, JOBSETS, PODS, PYTORCHJOBS, TRAINJOBS } from '../api/kinds';
import { useCollection } from '../api/use';
import { type JobRow, toJobRow } from '../model/job_row';
import { useView } from '../session';

export interface Jobs {
  rows: JobRow[];
  version: number;
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
    useCollection(PODS, toJobRow, selection),
  ];
  const version = collections.reduce((sum, each) => sum + each.version, 0);
  const rows = useMemo(() => collections.flatMap((each) => [...each.items.values()]), [version, namespace]);
  return { rows, version, loaded: collections.every((each) => each.loaded || each.error), collections };
}
