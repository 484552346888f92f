// What runs, what waits, what failed; how full queues and nodes are.
import type { JSX } from 'preact';
import { useNow } from '../api/use';
import type { JobRow } from '../model/job_row';
import { quotaUse } from '../model/queue';
import { amount } from '../model/quantity';
import { duration } from '../model/time';
import { jobLink, link } from '../router';
import { useView } from '../session';
import { Bar, Empty, Failure, failuresOf, State } from '../ui/parts';
import { nodeUse, useNodes } from './use_nodes';
import { useJobs } from './use_jobs';
import { useQueues } from './use_queues';

const PHASES = ['running', 'waiting', 'failed', 'succeeded'] as const;

const MAX_NODES = 12;

export function OverviewPage(): JSX.Element {
  const { namespace } = useView();
  const jobs = useJobs();
  const queues = useQueues();
  const nodes = useNodes();
  const keep = namespace ? { ns: namespace } : {};
  const failed = newest(jobs.rows.filter((row) => row.phase === 'failed'));
  const active = newest(jobs.rows.filter((row) => row.phase === 'running' || row.phase === 'waiting'));
  return (
    <main class="content">
      <div class="page-head"><h1>Overview</h1></div>
      {failuresOf(jobs.collections).map((error) => <Failure key={error.message} error={error} what="Not all jobs are shown" />)}
      <div class="stack">
        <div class="counts">
          {PHASES.map((phase) => (
            <a key={phase} class={`card count ${phase}`} href={link(['jobs'], { ...keep, phase })}>
              <b>{jobs.loaded ? jobs.rows.filter((row) => row.phase === phase).length : '…'}</b>
              <span class="muted">{phase}</span>
            </a>
          ))}
        </div>
        <div class="two-columns">
          <section class="card"><h2>Running and waiting</h2><JobLines rows={active} empty={jobs.loaded ? 'No job runs or waits.' : 'Loading…'} /></section>
          <section class="card"><h2>Failed last</h2><JobLines rows={failed} empty={jobs.loaded ? 'No job has failed.' : 'Loading…'} /></section>
          <section class="card">
            <h2>Queues</h2>
            {queues.clusterQueues.length ? queues.clusterQueues.map((queue) => (
              <div key={queue.metadata.name} class="meter-group">
                <div class="row"><a href={link(['queues'], keep)}><b>{queue.metadata.name}</b></a><span class="muted">{queue.status?.admittedWorkloads ?? 0} admitted, {queue.status?.pendingWorkloads ?? 0} pending</span></div>
                {quotaUse(queue).filter((each) => each.resource !== 'ephemeral-storage').map((each) => (
                  <Meter key={each.flavor + each.resource} name={each.label} resource={each.resource} used={each.used} total={each.quota} />
                ))}
              </div>
            )) : <Empty>{queues.absent ? 'This cluster has no Kueue.' : queues.errors[0]?.message ?? (queues.loaded ? 'No ClusterQueues.' : 'Loading…')}</Empty>}
          </section>
          <section class="card">
            <h2>Nodes</h2>
            {nodes.rows.slice(0, MAX_NODES).map((node) => (
              <div key={node.metadata.name} class="meter-group">
                <div class="row"><a href={link(['nodes'], { ...keep, node: node.metadata.name })}><b>{node.metadata.name}</b></a></div>
                {nodeUse(node, nodes).map((each) => <Meter key={each.resource} name={each.resource} used={each.used ?? each.requested} total={each.total} />)}
              </div>
            ))}
            {nodes.rows.length > MAX_NODES && <a class="muted" href={link(['nodes'], keep)}>and {nodes.rows.length - MAX_NODES} more</a>}
            {!nodes.rows.length && <Empty>{nodes.error?.message ?? (nodes.loaded ? 'There are no nodes.' : 'Loading…')}</Empty>}
          </section>
        </div>
      </div>
    </main>
  );
}

const newest = (rows: JobRow[]): JobRow[] => [...rows].sort((a, b) => b.created - a.created).slice(0, 8);

function JobLines({ rows, empty }: { rows: JobRow[]; empty: string }): JSX.Element {
  const now = useNow(2000);
  if (!rows.length) return <Empty>{empty}</Empty>;
  return (
    <ul class="lines">
      {rows.map((row) => (
        <li key={row.key}>
          <a class="ellipsis grow" href={jobLink(row)} title={row.message || undefined}>{row.name}</a>
          <State word={row.state} phase={row.phase} />
          <span class="muted number">{duration((row.ended ?? now) - (row.started ?? row.created))}</span>
        </li>
      ))}
    </ul>
  );
}

export function Meter({ name, resource = name, used, total }: { name: string; resource?: string; used: number; total: number }): JSX.Element {
  const text = `${amount(resource, used)} of ${amount(resource, total)}`;
  return (
    <div class="meter">
      <span class="muted ellipsis" title={name}>{name}</span>
      <Bar share={total ? used / total : used ? 1 : 0} label={`${name}: ${text}`} />
      <span class="number muted">{text}</span>
    </div>
  );
}
