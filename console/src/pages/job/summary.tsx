// How a job stands: why, its timeline, its replicas, its most telling curves.
import type { JSX } from 'preact';
import { useNow } from '../../api/use';
import type { KubeObject, Pod } from '../../api/objects';
import { explain } from '../../model/explain';
import { progressText } from '../../model/job_row';
import { RESOURCE_NAMES, type Series } from '../../model/metrics';
import { bytes, cores, short } from '../../model/quantity';
import { pendingReason, rankOf, restartsOf, shortName, startedAt } from '../../model/replicas';
import { runState } from '../../model/state';
import { clock, dateTime, duration, toMs } from '../../model/time';
import { type Stage, timeline } from '../../model/timeline';
import { link } from '../../router';
import { Bar, Empty, State } from '../../ui/parts';
import { ElasticCard } from './elastic';
import { Curves } from './metrics';
import type { TabData } from './tab_data';
import { TrackingLinks } from './tracking';
import type { JobData } from './use_job';

export function SummaryTab({ data, logs, series, to }: TabData & { to: (tab: string) => string }): JSX.Element {
  const job = data.job as KubeObject;
  const why = explain(job, data.failures.some(({ what }) => what === 'Pods') ? undefined : data.pods, data.workload, data.events);
  const stages = timeline(job, data.pods, data.workload, pulledAt(data), logs.firstStep);
  const state = runState(job);
  // What the job reports is for all replicas; the log is what this page has read.
  const reported = progressText(job);
  const share = /^(\d+(?:\.\d+)?)%/.exec(reported)?.[1];
  const progress = share === undefined ? (reported ? undefined : logs.progress) : Number(share);
  const curves = series.series.filter((each) => !RESOURCE_NAMES.includes(each.name) && !/^(global_)?step$|^iter|^batch|^elastic|^progress$|^records$/.test(each.name));
  return (
    <div class="stack">
      <section class="card" aria-labelledby="why">
        <h2 id="why">Why</h2>
        <ul class="why">{why.map((line) => <li key={line}>{line}</li>)}</ul>
        {state.phase === 'failed' && <p><a class="button" href={`${to('logs')}&at=error`}>Go to the first error</a></p>}
      </section>
      <section class="card" aria-labelledby="timeline">
        <h2 id="timeline">Timeline</h2>
        <Timeline stages={stages} />
        {progress !== undefined && !state.done && (
          <div class="row"><div class="grow"><Bar share={progress / 100.01} label="Progress" /></div><span class="number">{reported || `${progress.toFixed(0)}%`}</span></div>
        )}
        {progress === undefined && !state.done && reported && <p class="muted">{reported}</p>}
        <TrackingLinks job={job} pods={data.pods} />
      </section>
      <ElasticCard data={data} logs={logs} series={series} to={to} />
      <section class="card" aria-labelledby="replicas">
        <h2 id="replicas">Replicas</h2>
        <Replicas data={data} series={series.series} to={to} />
      </section>
      {curves.length > 0 && <Curves series={curves} limit={4} />}
    </div>
  );
}

/** When the last image was there, as the events of the pods say. */
function pulledAt(data: JobData): number | undefined {
  const times = data.events.filter((event) => event.reason === 'Pulled').map((event) => toMs(event.lastTimestamp || event.eventTime || event.metadata.creationTimestamp));
  const known = times.filter((time) => time !== undefined);
  return known.length ? Math.min(...known) : undefined;
}

function Timeline({ stages }: { stages: Stage[] }): JSX.Element {
  const now = useNow(1000);
  return (
    <ol class="timeline" tabIndex={0} aria-label="Timeline">
      {stages.map((stage, index) => {
        const next = stages.slice(index + 1).find((each) => each.at !== undefined);
        const past = stage.at !== undefined;
        const lasts = past ? (next?.at ?? (stage.tone ? undefined : now)) : undefined;
        return (
          <li key={stage.name} class={`${past ? 'past' : ''} ${next ? 'through' : ''} ${stage.tone ?? ''}`}>
            <b>{stage.name}</b>
            {past ? <span class="muted number" title={dateTime(stage.at as number)}>{clock(stage.at as number)}</span> : <span class="muted">–</span>}
            {lasts !== undefined && <div class="muted number">{duration(lasts - (stage.at as number))}</div>}
          </li>
        );
      })}
    </ol>
  );
}

function Replicas({ data, series, to }: { data: JobData; series: Series[]; to: (tab: string) => string }): JSX.Element {
  const now = useNow(2000);
  if (!data.pods.length) return <Empty>{data.failures.some(({ what }) => what === 'Pods') ? 'Pods could not be read.' : 'No pods.'}</Empty>;
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label="Replicas">
      <table class="table">
        <thead>
          <tr><th>Replica</th><th class="right">Rank</th><th>State</th><th>Node</th><th class="right">Restarts</th><th class="right">CPU</th><th class="right">Memory</th><th class="right">GPUs</th><th class="right">Runs for</th></tr>
        </thead>
        <tbody>
          {data.pods.map((pod) => <Replica key={pod.metadata.uid} pod={pod} job={data.name} series={series} now={now} to={to} />)}
        </tbody>
      </table>
    </div>
  );
}

interface ReplicaProps {
  pod: Pod;
  job: string;
  series: Series[];
  now: number;
  to: (tab: string) => string;
}

function Replica({ pod, job, series, now, to }: ReplicaProps): JSX.Element {
  const name = shortName(pod.metadata.name, job);
  const state = runState({ ...pod, kind: 'Pod' });
  const last = (metric: string): number | undefined => series.find((each) => each.replica === name && each.name === metric)?.points.at(-1)?.[1];
  const [cpu, memory, gpu, gpuMemory] = [last('cpu'), last('memory'), last('gpu'), last('gpu_memory')];
  const started = startedAt(pod);
  const finished = (pod.status?.containerStatuses ?? []).map((each) => toMs(each.state?.terminated?.finishedAt)).find((time) => time !== undefined);
  const word = pod.metadata.deletionTimestamp ? 'Terminating' : state.word;
  const exit = (pod.status?.containerStatuses ?? []).map((each) => each.state?.terminated).find((each) => each && each.exitCode !== 0);
  return (
    <tr>
      <td><a href={`${to('logs')}&rank=${encodeURIComponent(name)}`}>{name}</a></td>
      <td class="right number">{rankOf(pod) ?? '–'}</td>
      <td>
        <State word={word} phase={state.phase} />
        {exit && <div class="muted">exit code {exit.exitCode}{exit.reason ? ` (${exit.reason})` : ''}</div>}
        {pendingReason(pod) && <div class="muted">{pendingReason(pod)}</div>}
      </td>
      <td>{pod.spec.nodeName ? <a href={link(['nodes'], { node: pod.spec.nodeName })}>{pod.spec.nodeName}</a> : '–'}</td>
      <td class="right number">{restartsOf(pod)}</td>
      <td class="right number">{cpu === undefined ? '–' : cores(cpu)}</td>
      <td class="right number">{memory === undefined ? '–' : bytes(memory)}</td>
      <td class="right number">{gpu === undefined ? gpusOf(pod) : <span title={gpuMemory === undefined ? undefined : `${bytes(gpuMemory)} of GPU memory`}>{short(gpu)} of {gpusOf(pod)}</span>}</td>
      <td class="right number">{started === undefined ? '–' : duration((finished ?? now) - started)}</td>
    </tr>
  );
}

const gpusOf = (pod: Pod): number =>
  pod.spec.containers.reduce((sum, each) => sum + Number(each.resources?.limits?.['nvidia.com/gpu'] ?? 0), 0);
