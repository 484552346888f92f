// Jobs whose number of workers changes: workers over time, recoveries with their phases, records, checkpoints.
import type { JSX } from 'preact';
import { serverNow } from '../../api/clock';
import type { KubeObject } from '../../api/objects';
import { useNow } from '../../api/use';
import type { Recovery } from '../../model/elastic';
import { elasticBounds, endOf } from '../../model/job_row';
import type { Series } from '../../model/metrics';
import { startedAt } from '../../model/replicas';
import { runState } from '../../model/state';
import { clock, dateTime, toMs } from '../../model/time';
import { Chart } from '../../ui/chart';
import { Empty, Rest } from '../../ui/parts';
import type { TabData } from './tab_data';
import type { JobData } from './use_job';

const MAX_ROWS = 200;

/** Where the curves end: a job that has ended has no workers after that, even if its coordinator could not say so. */
const lastMoment = (data: JobData, now: number): number => (data.job && runState(data.job).done ? (endOf(data.job) ?? now) : now);

/** How many workers ran, as steps: from the starts and ends of the pods that still exist. */
export function workersOverTime(data: JobData, now: number): [number, number][] {
  const changes: [number, number][] = [];
  for (const pod of data.pods) {
    const start = startedAt(pod);
    if (start === undefined) continue;
    changes.push([start, 1]);
    const ends = (pod.status?.containerStatuses ?? []).map((each) => toMs(each.state?.terminated?.finishedAt)).filter((time) => time !== undefined);
    if (ends.length) changes.push([Math.max(...ends), -1]);
  }
  changes.sort((a, b) => a[0] - b[0]);
  const points: [number, number][] = [];
  let workers = 0;
  for (const [time, change] of changes) {
    points.push([time / 1000, workers]);
    workers += change;
    points.push([time / 1000, workers]);
  }
  if (points.length) points.push([now / 1000, workers]);
  return points;
}

const series = (name: string, points: [number, number][]): Series => ({ name, replica: '', unit: '', points });
const counted = (count: number, noun: string): string => `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
const milliseconds = (value: number): string => (value >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${value.toFixed(value < 10 ? 1 : 0)} ms`);

export const isElastic = (job: KubeObject | undefined, events: number): boolean => Boolean(job && elasticBounds(job)) || events > 0;

export function ElasticTab({ data, logs, series: sampled }: TabData): JSX.Element {
  const clockNow = useNow(2000);
  const { elastic } = logs;
  const now = lastMoment(data, clockNow);
  const reported = elastic.workers(now / 1000);
  const workers = reported.length ? reported : workersOverTime(data, now);
  const records = sampled.series.filter((each) => each.name === 'records');
  const recoveries = elastic.recoveries();
  const checkpoints = elastic.checkpoints();
  const last = records.flatMap((each) => each.points).reduce((most, [, value]) => Math.max(most, value), 0);
  return (
    <div class="stack">
      <section class="card" aria-label="Workers">
        {workers.length > 1 ? <Chart title="Workers" series={[series('workers', workers)]} height={140} stepped /> : <Empty>No worker has started.</Empty>}
        <p class="muted">
          {elastic.events.length
            ? `${counted(recoveries.length, 'world')}, ${counted(elastic.losses(), 'worker')} lost, ${counted(checkpoints.length, 'checkpoint')}, ${counted(last, 'record')} committed.`
            : 'From the pods: the log that the page has read has no events of the elastic runtime.'}
        </p>
      </section>
      {records.length > 0 && (
        <section class="card" aria-label="Records committed">
          <Chart title="Records committed" series={records} height={120} />
        </section>
      )}
      <section class="card scroll-x" aria-labelledby="elastic-recoveries" tabIndex={0}>
        <h2 id="elastic-recoveries">Changes of the world</h2>
        {recoveries.length ? <Recoveries recoveries={recoveries} /> : <Empty>The number of workers has not changed.</Empty>}
        <Rest of={recoveries.length} shown={MAX_ROWS} />
      </section>
      <section class="card scroll-x" aria-labelledby="elastic-checkpoints" tabIndex={0}>
        <h2 id="elastic-checkpoints">Checkpoints</h2>
        {checkpoints.length ? (
          <table class="table">
            <thead><tr><th>Time</th><th class="right">Step</th><th>Where</th></tr></thead>
            <tbody>
              {checkpoints.slice(-MAX_ROWS).reverse().map((each) => (
                <tr key={`${each.seconds} ${each.step}`}>
                  <td class="number" title={dateTime(each.seconds * 1000)}>{clock(each.seconds * 1000)}</td>
                  <td class="right number">{each.step}</td>
                  <td>{each.message}</td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : <Empty>No checkpoint was reported.</Empty>}
        <Rest of={checkpoints.length} shown={MAX_ROWS} />
      </section>
    </div>
  );
}

function Recoveries({ recoveries }: { recoveries: Recovery[] }): JSX.Element {
  return (
    <table class="table">
      <thead><tr><th>Time</th><th>Cause</th><th class="right">Workers</th><th class="right">Step</th><th>Phases</th><th class="right">Total</th></tr></thead>
      <tbody>
        {recoveries.slice(-MAX_ROWS).reverse().map((each) => (
          <tr key={each.seconds}>
            <td class="number" title={dateTime(each.seconds * 1000)}>{clock(each.seconds * 1000)}</td>
            <td>{each.cause}{each.lost.map((text) => <div class="muted" key={text}>{text}</div>)}</td>
            <td class="right number">{each.workers}</td>
            <td class="right number">{each.step}</td>
            <td>{each.phases.map(([name, value]) => `${name} ${milliseconds(value)}`).join(' · ') || '–'}</td>
            <td class="right number">{each.total === undefined ? (each.done ? '–' : 'under way') : milliseconds(each.total)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** On the summary: the curve, and where the rest is. */
export function ElasticCard({ data, logs, to }: TabData & { to: (tab: string) => string }): JSX.Element | null {
  const job = data.job as KubeObject;
  if (!isElastic(job, logs.elastic.events.length)) return null;
  const now = lastMoment(data, serverNow());
  const reported = logs.elastic.workers(now / 1000);
  const points = reported.length ? reported : workersOverTime(data, now);
  return (
    <section class="card" aria-labelledby="elastic">
      <h2 id="elastic">Elastic{elasticBounds(job) ? `: ${elasticBounds(job)} workers` : ''}</h2>
      {points.length > 1 && <Chart title="Workers" series={[series('workers', points)]} height={120} stepped />}
      <p><a href={to('elastic')}>Recoveries, records and checkpoints</a></p>
    </section>
  );
}
