// Jobs that have ended, deleted ones included. A plane keeps them; elsewhere the ended jobs that still exist are shown.
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { useGet } from '../api/use';
import type { Json, KubeObject } from '../api/objects';
import { dateTime, duration, toMs } from '../model/time';
import type { Phase } from '../model/state';
import { toYaml } from '../model/yaml';
import { jobLink } from '../router';
import { useView } from '../session';
import { Dialog, Empty, Failure, Rest, State } from '../ui/parts';
import { useJobs } from './use_jobs';

interface ReplicaRecord {
  name: string;
  rank: number | null;
  phase: string;
  exitCode: number | null;
  reason: string;
}

interface RunRecord {
  uid: string;
  namespace: string;
  name: string;
  kind: string;
  state: string;
  message: string;
  exitCode: number | null;
  created: string;
  ended: string;
  gpuSeconds: number;
  replicas: ReplicaRecord[];
  object?: KubeObject;
}

const MAX_ROWS = 500;

/** The jobs of a response, undefined if it has none; what another version leaves out is empty. */
function readRecords(response: unknown): RunRecord[] | undefined {
  const items = (response as { items?: unknown } | null | undefined)?.items;
  if (!Array.isArray(items)) return undefined;
  return items.flatMap((each: Partial<RunRecord> | null) => {
    if (typeof each?.name !== 'string') return [];
    const { uid = '', namespace = '', kind = '', state = '', message = '', exitCode = null, created = '', ended = '', gpuSeconds = 0 } = each;
    return [{ ...each, name: each.name, uid, namespace, kind, state, message, exitCode, created, ended, gpuSeconds, replicas: Array.isArray(each.replicas) ? each.replicas : [] }];
  });
}

const phaseOf = (state: string): Phase => (state === 'Failed' ? 'failed' : ['Succeeded', 'Complete', 'Completed'].includes(state) ? 'succeeded' : 'waiting');

export function HistoryPage(): JSX.Element {
  const { namespace, session } = useView();
  const answer = useGet<{ items: RunRecord[] }>('history', 10_000);
  const jobs = useJobs();
  const [text, setText] = useState('');
  const [shown, setShown] = useState<RunRecord>();
  const existing = useMemo(() => new Map(jobs.rows.map((row) => [row.uid, row])), [jobs.rows]);
  const kept = useMemo(() => readRecords(answer.value), [answer.value]);
  const records = kept ?? (answer.error?.status === 404 ? jobs.rows.filter((row) => row.ended !== undefined).map((row): RunRecord => ({
    ...row, exitCode: null, gpuSeconds: 0, replicas: [], created: new Date(row.created).toISOString(), ended: new Date(row.ended ?? 0).toISOString(),
  })).sort((a, b) => (a.ended < b.ended ? 1 : -1)) : []);
  const words = text.toLowerCase();
  const rows = records.filter((each) => (!namespace || each.namespace === namespace) && `${each.namespace}/${each.name} ${each.kind} ${each.state}`.toLowerCase().includes(words));
  const failed = answer.error !== undefined && answer.error.status !== 404;
  const nothing = records.length ? 'No ended job matches the search and the namespace.' : failed ? 'The history could not be read.' : answer.value || jobs.loaded ? 'No job has ended yet.' : 'Loading…';
  return (
    <main class="content">
      <div class="page-head">
        <h1>History</h1>
        <span class="muted number">{rows.length}</span>
        <span class="grow" />
        <input type="search" placeholder="Search" aria-label="Search the history" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </div>
      {!session.plane || answer.error?.status === 404 ? <p class="notice">This server keeps no history: only ended jobs that still exist are shown.</p> : <Failure error={answer.error} what="History" />}
      {rows.length ? (
        <div class="card scroll-x" tabIndex={0} role="region" aria-label="Ended jobs">
          <table class="table phone">
            <thead><tr><th>Job</th><th>Kind</th><th>Namespace</th><th>State</th><th class="right">Exit code</th><th class="right">Duration</th><th class="right">GPU time</th><th>Ended</th><th>Message</th></tr></thead>
            <tbody>
              {rows.slice(0, MAX_ROWS).map((each) => {
                const job = existing.get(each.uid);
                return (
                  <tr key={each.uid}>
                    <td>{job ? <a href={jobLink(job)}><b>{each.name}</b></a> : <button class="plain" onClick={() => setShown(each)}><b>{each.name}</b></button>}{!job && kept && <span class="tag">deleted</span>}</td>
                    <td class="muted">{each.kind}</td>
                    <td class="muted">{each.namespace}</td>
                    <td><State word={each.state} phase={phaseOf(each.state)} /></td>
                    <td class="right number" data-label="exit code">{each.exitCode ?? '–'}</td>
                    <td class="right number" data-label="duration">{duration((toMs(each.ended) ?? 0) - (toMs(each.created) ?? 0))}</td>
                    <td class="right number" data-label="GPU time">{each.gpuSeconds ? duration(each.gpuSeconds * 1000) : '–'}</td>
                    <td class="number muted">{dateTime(toMs(each.ended) ?? 0)}</td>
                    <td class="muted wide">{each.message}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
          <Rest of={rows.length} shown={MAX_ROWS} />
        </div>
      ) : <Empty>{nothing}</Empty>}
      {shown && (
        <Dialog title={shown.name} wide onClose={() => setShown(undefined)}>
          <p>{shown.message}</p>
          <ul class="why">{shown.replicas.map((each) => <li key={each.name}>{each.name}: {each.phase}, exit code {each.exitCode ?? 'unknown'} {each.reason}</li>)}</ul>
          <p class="muted">Its logs: <code>yard logs {shown.name} -n {shown.namespace}</code></p>
          {shown.object && <pre class="yaml mono" tabIndex={0}>{toYaml(shown.object as unknown as Json)}</pre>}
          <form method="dialog" class="actions"><button>Close</button></form>
        </Dialog>
      )}
    </main>
  );
}
