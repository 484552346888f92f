// Two or more runs: where their settings differ, and their curves over each other.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { findKind, type Resource } from '../api/kinds';
import { RESOURCE_NAMES, type Series } from '../model/metrics';
import { short } from '../model/quantity';
import { differences } from '../model/program';
import { runState } from '../model/state';
import { jobLink, type Route } from '../router';
import '../style/job.css';
import { Chart } from '../ui/chart';
import { Empty, State } from '../ui/parts';
import { useJob, type JobData } from './job/use_job';
import { useLogs } from './job/use_logs';
import { type SeriesData, useSeries } from './job/use_series';

const MAX_RUNS = 6;

interface Run {
  kind: Resource;
  namespace: string;
  name: string;
}

export function readRuns(text: string): Run[] {
  const runs = text.split(',').filter(Boolean).map((part) => part.split('/').map(decodeURIComponent));
  return runs.flatMap(([namespace = '', resource = '', name = '']) => {
    const kind = findKind(resource);
    return kind && name ? [{ kind, namespace, name }] : [];
  }).slice(0, MAX_RUNS);
}

interface Loaded {
  data: JobData;
  series: SeriesData;
}

function useRun(run: Run): Loaded {
  const data = useJob(run.kind, run.namespace, run.name);
  const logs = useLogs(data);
  const series = useSeries(data, logs);
  return { data, series };
}

export function ComparePage({ route }: { route: Route }): JSX.Element {
  const text = route.query.get('jobs') ?? '';
  const runs = useMemo(() => readRuns(text), [text]);
  if (runs.length < 2) return <main class="content"><div class="page-head"><h1>Compare</h1></div><Empty>Mark two or more jobs in the list (key x, or Shift and click), then Compare.</Empty></main>;
  return <Comparison key={text} runs={runs} />;
}

function Comparison({ runs }: { runs: Run[] }): JSX.Element {
  // The number of runs is fixed while the component lives (its key is the list), so hooks keep their order.
  const loaded = runs.map((run) => useRun(run)); // eslint-disable-line react-hooks/rules-of-hooks
  const jobs = loaded.flatMap(({ data }) => (data.job ? [data.job] : []));
  const rows = jobs.length === runs.length ? differences(jobs) : [];
  const curves = useMemo(() => overlay(loaded), [loaded.map((each) => each.series)]);
  return (
    <main class="content">
      <div class="page-head"><h1>Compare</h1></div>
      <div class="stack">
        <section class="card scroll-x" tabIndex={0} aria-label="Differences">
          <table class="table">
            <thead><tr><th>Setting</th>{loaded.map(({ data }) => <th key={data.namespace + data.name}><a href={jobLink({ namespace: data.namespace, resource: `${data.kind.plural}${data.kind.group ? `.${data.kind.group}` : ''}`, name: data.name })}>{data.name}</a></th>)}</tr></thead>
            <tbody>
              <tr><td class="muted">state</td>{loaded.map(({ data }) => <td key={data.name}>{data.job ? <State word={runState(data.job).word} phase={runState(data.job).phase} /> : data.loaded ? 'does not exist' : '…'}</td>)}</tr>
              {rows.map((row) => <tr key={row.name}><td class="muted">{row.name}</td>{row.values.map((value, index) => <td key={index} class="mono">{value ?? '–'}</td>)}</tr>)}
              {[...curves].slice(0, 20).map(([name, series]) => (
                <tr key={`last ${name}`}><td class="muted">last {name}</td>{loaded.map(({ data }) => <td key={data.name} class="number">{lastValue(series, data.name)}</td>)}</tr>
              ))}
            </tbody>
          </table>
          {jobs.length === runs.length && !rows.length && <p class="muted">Their arguments, environment, image and resources are the same.</p>}
        </section>
        <div class="grid">
          {[...curves].map(([name, series]) => <div key={name} class="card"><Chart title={name} series={series} relative={begin} /></div>)}
        </div>
        {!curves.size && <Empty>No metrics yet.</Empty>}
      </div>
    </main>
  );
}

const begin = (series: Series): number => series.points[0]?.[0] ?? 0;

const lastValue = (series: Series[], run: string): string => {
  const value = series.find((each) => each.replica === run)?.points.at(-1)?.[1];
  return value === undefined ? '–' : short(value);
};

/** One line a run: its first replica that has the metric. */
function overlay(loaded: Loaded[]): Map<string, Series[]> {
  const curves = new Map<string, Series[]>();
  for (const { data, series } of loaded) {
    const seen = new Set<string>();
    for (const each of series.series) {
      if (seen.has(each.name) || RESOURCE_NAMES.includes(each.name)) continue;
      seen.add(each.name);
      curves.set(each.name, [...(curves.get(each.name) ?? []), { ...each, replica: data.name }]);
    }
  }
  return curves;
}
