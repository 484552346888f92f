// Jobs whose number of workers changes: workers over time, and events about their number.
import type { JSX } from 'preact';
import type { KubeObject } from '../../api/objects';
import { elasticBounds } from '../../model/job_row';
import type { Series } from '../../model/metrics';
import { startedAt } from '../../model/replicas';
import { toMs } from '../../model/time';
import { Chart } from '../../ui/chart';
import type { JobData } from './use_job';

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

export function ElasticCard({ data }: { data: JobData }): JSX.Element | null {
  const job = data.job as KubeObject;
  if (!elasticBounds(job)) return null;
  const workers: Series = { name: 'workers', replica: '', unit: '', points: workersOverTime(data, Date.now()) };
  const events = data.events.filter((event) => /Restart|Kill|Recover|Scal|Preempt|Evict|Checkpoint|Rendezvous/i.test(event.reason ?? ''));
  return (
    <section class="card" aria-labelledby="elastic">
      <h2 id="elastic">Elastic: {elasticBounds(job)} workers</h2>
      {workers.points.length > 1 && <Chart title="Workers" series={[workers]} height={120} />}
      {events.length > 0 && <ul class="why">{events.slice(-6).map((event) => <li key={event.metadata.uid}>{event.reason}: {event.message}</li>)}</ul>}
    </section>
  );
}
