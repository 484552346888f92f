// Two or more runs: where their settings differ, and their curves over each other.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { qualified } from '../api/kinds';
import { lastOf, RESOURCE_NAMES, type Series } from '../model/metrics';
import { short } from '../model/quantity';
import { differences } from '../model/program';
import { readRuns, type Run, titlesOf } from '../model/runs';
import { runState } from '../model/state';
import { jobLink, type Route } from '../router';
import '../style/job.css';
import { Chart } from '../ui/chart';
import { Empty, Failure, Rest, State } from '../ui/parts';
import { useJob, type JobData } from './job/use_job';
import { useLogs } from './job/use_logs';
import { type SeriesData, useSeries } from './job/use_series';

const MAX_RUNS = 6;
const MAX_LAST = 20;

interface Loaded {
  title: string;
  data: JobData;
  series: SeriesData;
}

function useRun(run: Run, title: string): Loaded {
  const data = useJob(run.kind, run.namespace, run.name);
  const logs = useLogs(data);
  const series = useSeries(data, logs);
  return { title, data, series };
}

export function ComparePage({ route }: { route: Route }): JSX.Element {
  const text = route.query.get('jobs') ?? '';
  const runs = useMemo(() => readRuns(text), [text]);
  if (runs.length < 2) return <main class="content"><div class="page-head"><h1>Compare</h1></div><Empty>Mark two or more jobs in the list (key x, or Shift and click), then Compare.</Empty></main>;
  return <Comparison key={text} runs={runs.slice(0, MAX_RUNS)} more={runs.length - MAX_RUNS} />;
}

function Comparison({ runs, more }: { runs: Run[]; more: number }): JSX.Element {
  // The number of runs is fixed while the component lives (its key is the list), so hooks keep their order.
  const titles = titlesOf(runs);
  const loaded = runs.map((run, index) => useRun(run, titles[index] ?? run.name)); // eslint-disable-line react-hooks/rules-of-hooks
  const jobs = loaded.flatMap(({ data }) => (data.job ? [data.job] : []));
  const rows = jobs.length === runs.length ? differences(jobs) : [];
  const curves = useMemo(() => overlay(loaded), loaded.map((each) => each.series));
  return (
    <main class="content">
      <div class="page-head"><h1>Compare</h1></div>
      {more > 0 && <p class="notice">At most {MAX_RUNS} jobs are compared; {more} are left out.</p>}
      <div class="stack">
        {loaded.map(({ title, data }) => <Failure key={title} error={data.error} what={title} />)}
      <section class="card scroll-x" tabIndex={0} aria-label="Differences">
          <table class="table">
            <thead><tr><th>Setting</th>{loaded.map(({ title, data }) => <th key={title}><a href={jobLink({ namespace: data.namespace, resource: qualified(data.kind), name: data.name })}>{title}</a></th>)}</tr></thead>
            <tbody>
              <tr><td class="muted">state</td>{loaded.map(({ title, data }) => <td key={title}>{data.job ? <State word={runState(data.job).word} phase={runState(data.job).phase} /> : data.error ? 'unknown' : data.loaded ? 'does not exist' : '…'}</td>)}</tr>
              {rows.map((row) => <tr key={row.name}><td class="muted">{row.name}</td>{row.values.map((value, index) => <td key={index} class="mono">{value ?? '–'}</td>)}</tr>)}
              {[...curves].slice(0, MAX_LAST).map(([name, series]) => (
                <tr key={`last ${name}`}><td class="muted">last {name}</td>{loaded.map(({ title }) => <td key={title} class="number">{lastValue(series, title)}</td>)}</tr>
              ))}
            </tbody>
          </table>
          <Rest of={curves.size} shown={MAX_LAST} />
          {jobs.length === runs.length && !rows.length && <p class="muted">Their arguments, environment, image, resources and numbers of replicas are the same.</p>}
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
  const own = series.find((each) => each.replica === run);
  const value = own && lastOf(own);
  return value === undefined ? '–' : short(value);
};

/** One line a run: its first replica that has the metric. */
function overlay(loaded: Loaded[]): Map<string, Series[]> {
  const curves = new Map<string, Series[]>();
  for (const { title, series } of loaded) {
    const seen = new Set<string>();
    for (const each of series.series) {
      if (seen.has(each.name) || RESOURCE_NAMES.includes(each.name)) continue;
      seen.add(each.name);
      curves.set(each.name, [...(curves.get(each.name) ?? []), { ...each, replica: title }]);
    }
  }
  return curves;
}
