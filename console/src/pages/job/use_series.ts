// The curves of a job: what the server kept, otherwise what this page read from the logs and from metrics.k8s.io.
import { useEffect, useMemo, useReducer, useRef } from 'preact/hooks';
import { serverNow } from '../../api/clock';
import { getJson } from '../../api/http';
import { POD_METRICS, qualified, url } from '../../api/kinds';
import { useGet } from '../../api/use';
import { readSeries, type Series, SeriesBuilder } from '../../model/metrics';
import { parseQuantity } from '../../model/quantity';
import { shortName } from '../../model/replicas';
import { runState } from '../../model/state';
import { toMs } from '../../model/time';
import type { JobData } from './use_job';
import type { Logs } from './use_logs';

export interface SeriesData {
  series: Series[];
  /** Samples before this time (seconds) are lost. */
  lostBefore: number | undefined;
  /** The server keeps samples; otherwise curves begin when the page was opened or with the oldest log line. */
  kept: boolean;
}

interface Samples {
  series: Series[];
  lostBefore: number | null;
}

interface PodMetricsList {
  items?: { metadata: { name: string }; containers?: { usage?: Record<string, string> }[] }[];
}

const PERIOD_MS = 5000;

export function useSeries(data: JobData, logs: Logs): SeriesData {
  const isDone = data.job ? runState(data.job).done : false;
  // Samples are kept by name: those before the creation are of an earlier job.
  const since = Math.floor((toMs(data.job?.metadata.creationTimestamp) ?? 0) / 1000);
  const path = `samples/${[data.namespace, qualified(data.kind), data.name].map(encodeURIComponent).join('/')}?since=${since}`;
  const samples = useGet<Samples>(path, isDone ? 0 : PERIOD_MS);
  const kept = useMemo(() => readSeries(samples.value), [samples.value]);
  // A server that keeps samples may not measure what replicas use; the page then does, while it is open.
  const measured = kept?.some((each) => each.name === 'cpu') ?? false;
  const use = useUsage(data, !isDone && !measured && Boolean(samples.value ?? samples.error));
  return useMemo(() => {
    if (kept) {
      const lostBefore = samples.value?.lostBefore;
      return { series: withMissing(kept, [...logs.built.series.values(), ...use.series.values()]), lostBefore: typeof lostBefore === 'number' ? lostBefore : undefined, kept: true };
    }
    return { series: [...logs.built.series.values(), ...use.series.values()], lostBefore: undefined, kept: false };
  }, [kept, logs.built.version, use.version]);
}

/**
 * Metrics that the server has no samples of yet come from the lines that this page has read. So do those of replicas
 * where the server has only the metric of the whole job.
 */
export function withMissing(kept: Series[], read: Series[]): Series[] {
  const names = new Set(kept.filter((each) => each.replica).map((each) => each.name));
  return [...kept, ...read.filter((each) => !names.has(each.name))];
}

function useUsage(data: JobData, enabled: boolean): SeriesBuilder {
  const [, draw] = useReducer<number, void>((count) => count + 1, 0);
  const ref = useRef(new SeriesBuilder());
  const names = useRef(new Set<string>());
  names.current = new Set(data.pods.map((pod) => pod.metadata.name));
  useEffect(() => {
    if (!enabled) return undefined;
    const ask = (): void => {
      getJson<PodMetricsList>(url(POD_METRICS, data.namespace))
        .then((list) => {
          for (const item of list.items ?? []) {
            if (!names.current.has(item.metadata.name)) continue;
            const replica = shortName(item.metadata.name, data.name);
            const add = (name: string, resource: string, unit: string): void => {
              const known = (item.containers ?? []).map((each) => each.usage?.[resource]).filter((each) => each !== undefined);
              if (!known.length) return; // a driver that does not say: that is not zero
              ref.current.put(replica, name, unit, serverNow() / 1000, known.reduce((sum, each) => sum + parseQuantity(each), 0));
            };
            add('cpu', 'cpu', 'cores');
            add('memory', 'memory', 'bytes');
            add('gpu', 'nvidia.com/gpu', 'gpus');
            add('gpu_memory', 'nvidia.com/gpu.memory', 'bytes');
          }
          draw();
        })
        .catch(() => clearInterval(timer)); // metrics.k8s.io is not served, or not for this user
    };
    const timer = setInterval(ask, PERIOD_MS);
    ask();
    return () => clearInterval(timer);
  }, [enabled, data.namespace, data.name]);
  return ref.current;
}
