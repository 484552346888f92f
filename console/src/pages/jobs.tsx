// All jobs in one list: filter, search, sort, group; live.
import type { JSX } from 'preact';
import { useMemo, useRef, useState } from 'preact/hooks';
import { serverNow } from '../api/clock';
import { useNow } from '../api/use';
import { useKeys } from '../keyboard';
import { arrange, findCursor, groupableLabels, type Line, type ListQuery, readSort, rowAt } from '../model/job_list';
import type { JobRow } from '../model/job_row';
import { go, jobLink, link, type Route, setQuery } from '../router';
import { Empty, Failure, failuresOf } from '../ui/parts';
import { VirtualList } from '../ui/virtual_list';
import { chosenColumns, Columns, type Column } from './job_columns';
import { useJobs } from './use_jobs';

const ROW = 40;
const HEADER = 34;
const KINDS = ['PyTorchJob', 'TrainJob', 'JobSet', 'Job', 'Pod'];
const PHASES = ['running', 'waiting', 'failed', 'succeeded'];

function readQuery(route: Route): ListQuery {
  const { query } = route;
  return {
    text: query.get('q') ?? '',
    kinds: (query.get('kind') ?? '').split(',').filter(Boolean),
    phase: query.get('phase') ?? '',
    ...readSort(query.get('sort') ?? ''),
    group: query.get('group') ?? '',
  };
}

export function JobsPage({ route }: { route: Route }): JSX.Element {
  const jobs = useJobs();
  const query = readQuery(route);
  const now = useNow(1000);
  const [columns, setColumns] = useState(chosenColumns());
  // The row, not its place: jobs come and go above it.
  const [cursor, setCursor] = useState({ key: '', index: -1, turn: 0 });
  const [marked, setMarked] = useState<ReadonlyMap<string, JobRow>>(new Map());
  const search = useRef<HTMLInputElement>(null);
  const { lines, count } = useMemo(() => arrange(jobs.rows, query, serverNow()), [jobs.rows, route]);
  const at = useMemo(() => findCursor(lines, cursor), [lines, cursor]);
  const labels = useMemo(() => groupableLabels(jobs.rows), [jobs.rows]);

  const move = (step: number): void => {
    // From where the row was, if it has left the list.
    let index = (at >= 0 || !cursor.key ? at : cursor.index - (step > 0 ? 1 : 0)) + step;
    while (lines[index] && 'header' in (lines[index] as Line)) index += step;
    const row = rowAt(lines, index);
    if (row) setCursor({ key: row.key, index, turn: cursor.turn + 1 });
  };
  const current = (): JobRow | undefined => rowAt(lines, at);
  const open = (tab = ''): void => {
    const row = current();
    if (row) go(jobLink(row, tab));
  };
  const mark = (row: JobRow | undefined): void => {
    if (!row) return;
    const next = new Map(marked);
    if (!next.delete(row.key)) next.set(row.key, row);
    setMarked(next);
  };
  useKeys([
    { key: '/', does: 'search', run: () => search.current?.focus() },
    { key: 'j', does: 'next row', run: () => move(1) },
    { key: 'k', does: 'previous row', run: () => move(-1) },
    { key: 'Enter', does: 'open the job', run: () => open() },
    { key: 'l', does: 'logs of the job', run: () => open('logs') },
    { key: 'y', does: 'YAML of the job', run: () => open('yaml') },
    { key: 'x', does: 'mark the job to compare it', run: () => mark(current()) },
  ]);

  return (
    <main class="content fixed">
      <div class="page-head">
        <h1>Jobs</h1>
        <span class="muted number" role="status">{jobs.loaded ? `${count} of ${jobs.rows.length}` : 'loading…'}</span>
        <span class="grow" />
        {marked.size > 0 && <CompareButton marked={[...marked.values()]} clear={() => setMarked(new Map())} />}
        <input
          ref={search}
          type="search"
          placeholder="Search: name, label=value, -not"
          aria-label="Search jobs"
          value={query.text}
          onInput={(event) => setQuery({ q: event.currentTarget.value })}
        />
      </div>
      <div class="row" role="group" aria-label="Filter">
        {PHASES.map((phase) => (
          <button key={phase} class="chip" aria-pressed={query.phase === phase} onClick={() => setQuery({ phase: query.phase === phase ? undefined : phase })}>
            {phase}
          </button>
        ))}
        <label>
          <span class="hidden">Kind</span>
          <select value={query.kinds.join(',')} onChange={(event) => setQuery({ kind: event.currentTarget.value })}>
            <option value="">All kinds</option>
            {KINDS.map((kind) => <option key={kind} value={kind}>{kind}</option>)}
          </select>
        </label>
        <label>
          <span class="hidden">Group by</span>
          <select value={query.group} onChange={(event) => setQuery({ group: event.currentTarget.value })}>
            <option value="">Not grouped</option>
            {['kind', 'namespace', 'queue', 'state'].map((each) => <option key={each} value={each}>by {each}</option>)}
            {labels.map((label) => <option key={label} value={label}>by label {label}</option>)}
          </select>
        </label>
        <Columns chosen={columns} choose={setColumns} />
      </div>
      {failuresOf(jobs.collections).map((error) => <Failure key={error.message} error={error} what="Not all jobs are shown" />)}
      <div class="list-gap" />
      {jobs.loaded && !lines.length ? (
        <Empty>{jobs.rows.length ? 'No job matches the filter.' : 'There are no jobs yet. Start one with: yard run train.py'}</Empty>
      ) : (
        <VirtualList
          count={lines.length}
          rowHeight={ROW}
          headerHeight={HEADER}
          label="Jobs"
          reveal={{ index: cursor.index, turn: cursor.turn }}
          depends={[lines, columns, now, at, marked]}
          minWidth={widthOf(columns)}
          columns={columns.map((each) => each.width).join(' ')}
          header={<Head columns={columns} query={query} />}
          render={(index, top, slot) => <Row key={slot} line={lines[index] as Line} top={top} columns={columns} now={now} selected={index === at} marked={marked} mark={mark} />}
        />
      )}
    </main>
  );
}

function CompareButton({ marked, clear }: { marked: JobRow[]; clear: () => void }): JSX.Element {
  const target = link(['compare'], { jobs: marked.map((row) => [row.namespace, row.resource, row.name].map(encodeURIComponent).join('/')).join(',') });
  return (
    <span class="row tight">
      {marked.length > 1 ? <a class="button" href={target}>Compare {marked.length}</a> : <span class="muted">mark another to compare</span>}
      <button class="plain" onClick={clear}>clear</button>
    </span>
  );
}

const widthOf = (columns: Column[]): number => columns.reduce((sum, column) => sum + column.min + 12, 16);

function Head({ columns, query }: { columns: Column[]; query: ListQuery }): JSX.Element {
  const toggle = (column: Column): void => {
    const descending = query.sort === column.sort ? !query.descending : column.sort === 'created';
    setQuery({ sort: `${descending ? '-' : ''}${column.sort}` });
  };
  return (
    <div class="jobs-head">
      {columns.map((column) => (
        <button key={column.name} onClick={() => toggle(column)} aria-label={`Sort by ${column.name}`}>
          {column.name}
          {query.sort === column.sort ? <span aria-hidden="true">{query.descending ? '▾' : '▴'}</span> : null}
        </button>
      ))}
    </div>
  );
}

interface RowProps {
  line: Line;
  top: number;
  columns: Column[];
  now: number;
  selected: boolean;
  marked: ReadonlyMap<string, JobRow>;
  mark: (row: JobRow) => void;
}

function Row({ line, top, columns, now, selected, marked, mark }: RowProps): JSX.Element {
  if ('header' in line) {
    return <div class="vrow group-row" style={{ top: `${top}px` }}>{line.header}<span class="muted number">{line.count}</span></div>;
  }
  const { row } = line;
  const chosen = marked.has(row.key);
  const click = (event: MouseEvent): void => {
    if (!event.shiftKey) return; // a plain click follows the link
    event.preventDefault();
    mark(row);
  };
  return (
    <a class={`vrow job-row ${selected ? 'selected' : ''}`} href={jobLink(row)} style={{ top: `${top}px` }} onClick={click} title={[row.name, row.message].filter(Boolean).join('\n')} aria-current={selected ? 'true' : undefined}>
      {columns.map((column) => <span key={column.name} class={`ellipsis ${column.class ?? ''}`}>{chosen && column.name === 'Name' ? '☑ ' : ''}{column.cell(row, now)}</span>)}
    </a>
  );
}
