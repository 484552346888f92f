// ClusterQueues, LocalQueues and workloads, joined.
import { useMemo } from 'preact/hooks';
import { checked, whole } from '../api/collection';
import type { ApiError } from '../api/http';
import { CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS } from '../api/kinds';
import type { KubeObject } from '../api/objects';
import { useCollection } from '../api/use';
import { type QueuedWorkload, quotaUse, toQueued } from '../model/queue';
import { useView } from '../session';
import { failuresOf } from '../ui/parts';

const withQuota = checked(quotaUse);
const withState = checked((workload) => toQueued(workload, () => ''));

export interface Queues {
  clusterQueues: KubeObject[];
  localQueues: KubeObject[];
  workloads: QueuedWorkload[];
  absent: boolean;
  loaded: boolean;
  errors: ApiError[];
}

export function useQueues(): Queues {
  const { namespace } = useView();
  const clusterQueues = useCollection(CLUSTER_QUEUES, withQuota);
  const localQueues = useCollection(LOCAL_QUEUES, whole, { namespace });
  const workloads = useCollection(WORKLOADS, withState, { namespace });
  return useMemo(() => {
    const clusterQueueOf = (of: string, queue: string): string => (localQueues.items.get(`${of}/${queue}`)?.spec?.clusterQueue ?? '') as string;
    return {
      clusterQueues: [...clusterQueues.items.values()],
      localQueues: [...localQueues.items.values()],
      workloads: [...workloads.items.values()].map((each) => toQueued(each, clusterQueueOf)),
      absent: clusterQueues.absent && localQueues.absent,
      loaded: (clusterQueues.loaded || Boolean(clusterQueues.error)) && (workloads.loaded || Boolean(workloads.error)),
      errors: failuresOf([clusterQueues, localQueues, workloads]),
    };
  }, [clusterQueues.version, localQueues.version, workloads.version]);
}
