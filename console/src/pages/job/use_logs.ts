// The logs of all replicas of a job, followed while its page is open.
import { useEffect, useMemo, useReducer, useRef } from 'preact/hooks';
import type { Pod } from '../../api/objects';
import { follow, keyOfSource, type Source } from '../../logs/follow';
import { logSlots, tailOf } from '../../logs/slots';
import { LogStore } from '../../logs/store';
import { ElasticLog } from '../../model/elastic';
import { parseProgress, SeriesBuilder } from '../../model/metrics';
import { shortName } from '../../model/replicas';
import type { JobData } from './use_job';

export interface Logs {
  store: LogStore;
  sources: Source[];
  built: SeriesBuilder;
  elastic: ElasticLog;
  progress: number | undefined;
  firstStep: number | undefined;
  /** Logs that are read when others have ended, or when their replica is chosen. */
  unread: ReadonlySet<Source>;
  version: number;
}

interface State extends Logs {
  unread: Set<Source>;
  running: Map<string, AbortController>;
  pods: Map<string, Pod>;
  /** Something but the lines has changed. */
  isChanged: boolean;
}

const FRAME_MS = 100;

const hasEnded = (pod: Pod | undefined, container: string): boolean => {
  if (!pod || pod.metadata.deletionTimestamp) return true;
  const phase = pod.status?.phase;
  const all = [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? [])];
  return phase === 'Succeeded' || phase === 'Failed' || Boolean(all.find((each) => each.name === container)?.state?.terminated && phase !== 'Running');
};

function sourcesOf(pod: Pod, job: string): Source[] {
  const label = shortName(pod.metadata.name, job);
  const main = pod.spec.containers[0]?.name;
  const names = [...(pod.spec.initContainers ?? []), ...pod.spec.containers].map((each) => each.name);
  return names.map((container) => ({ pod: pod.metadata.name, namespace: pod.metadata.namespace ?? '', container, label: container === main ? label : `${label}/${container}` }));
}

export function useLogs(data: JobData): Logs {
  const [version, draw] = useReducer<number, void>((count) => count + 1, 0);
  const ref = useRef<State | undefined>(undefined);
  ref.current ??= { store: new LogStore(), sources: [], built: new SeriesBuilder(), elastic: new ElasticLog(), progress: undefined, firstStep: undefined, unread: new Set(), version: 0, running: new Map(), pods: new Map(), isChanged: false };
  const state = ref.current;

  useEffect(() => {
    state.pods = new Map(data.pods.map((pod) => [pod.metadata.name, pod]));
    for (const pod of data.pods) {
      for (const source of sourcesOf(pod, data.name)) {
        const key = `${pod.metadata.uid}/${source.container}`;
        if (state.running.has(key) || !pod.status?.startTime) continue;
        const controller = new AbortController();
        state.running.set(key, controller);
        const index = state.sources.push(source) - 1;
        const add = (line: Parameters<LogStore['add']>[0]): void => {
          state.store.add(line);
          state.elastic.add(line.time / 1000, line.text);
          const share = parseProgress(line.text);
          if (share !== undefined) state.progress = share;
          const before = state.built.version;
          state.built.add(source.label, line.time / 1000, line.text);
          if (share !== undefined || state.built.version > before) state.firstStep = Math.min(state.firstStep ?? Infinity, line.time);
        };
        state.unread.add(source);
        const reads = (active: boolean): void => {
          if (active) state.unread.delete(source);
          else state.unread.add(source);
          state.isChanged = true;
        };
        const ended = (): boolean => hasEnded(state.pods.get(source.pod), source.container);
        void follow(source, index, { add, ended, reads, tail: () => tailOf(state.sources.length) }, controller.signal);
      }
    }
  }, [data.pods]);

  useEffect(() => {
    // Ten times a second: people cannot read faster, and the frames between stay free for scrolling.
    const timer = setInterval(() => {
      if (!state.store.hasWaiting && !state.isChanged) return;
      state.isChanged = false;
      state.store.flush();
      draw();
    }, FRAME_MS);
    return () => {
      clearInterval(timer);
      for (const controller of state.running.values()) controller.abort();
    };
  }, []);

  return useMemo(() => ({ ...state, version }), [version, data.pods]);
}

/** Reads the logs of a replica before those of others. */
export function wantLogs(sources: Source[]): void {
  logSlots.want(new Set(sources.map(keyOfSource)));
}
