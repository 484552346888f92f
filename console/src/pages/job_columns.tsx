// The columns of the list of jobs, and which of them a user sees.
import type { ComponentChildren, JSX } from 'preact';
import type { SortKey } from '../model/job_list';
import type { JobRow } from '../model/job_row';
import { dateTime, duration } from '../model/time';
import { State } from '../ui/parts';

export interface Column {
  name: string;
  sort: SortKey;
  width: string;
  min: number;
  class?: string;
  cell: (row: JobRow, now: number) => ComponentChildren;
}

const length = (row: JobRow, now: number): string => duration((row.ended ?? now) - (row.started ?? row.created));

export const ALL: Column[] = [
  { name: 'Name', sort: 'name', width: 'minmax(104px, 2.6fr)', min: 104, class: 'name', cell: (row) => row.name },
  { name: 'State', sort: 'state', width: '114px', min: 114, cell: (row) => <State word={row.state} phase={row.phase} /> },
  { name: 'Kind', sort: 'kind', width: '92px', min: 92, class: 'muted', cell: (row) => row.kind },
  { name: 'Namespace', sort: 'namespace', width: 'minmax(80px, 1fr)', min: 80, class: 'muted', cell: (row) => row.namespace },
  { name: 'Queue', sort: 'queue', width: 'minmax(70px, 1fr)', min: 70, class: 'muted', cell: (row) => row.queue },
  { name: 'Replicas', sort: 'replicas', width: '92px', min: 92, class: 'number', cell: (row) => `${row.ready}/${row.replicas}${row.elastic ? ` (${row.elastic})` : ''}` },
  { name: 'Progress', sort: 'progress', width: 'minmax(90px, 3fr)', min: 90, class: 'number muted', cell: (row) => (row.phase === 'running' ? row.progress : '') },
  { name: 'Duration', sort: 'duration', width: '72px', min: 72, class: 'number', cell: length },
  { name: 'Age', sort: 'created', width: '66px', min: 66, class: 'number muted', cell: (row, now) => <span title={dateTime(row.created)}>{duration(now - row.created)}</span> },
];

const KEY = 'torchyard-console-columns';
const NARROW = ['Name', 'State', 'Duration'];

export function chosenColumns(): Column[] {
  let names: string[] = [];
  try {
    names = (localStorage.getItem(KEY) ?? '').split(',').filter(Boolean);
  } catch {
    // storage is blocked
  }
  if (!names.length && window.innerWidth < 700) names = NARROW;
  return names.length ? ALL.filter((column) => names.includes(column.name)) : ALL;
}

export function Columns({ chosen, choose }: { chosen: Column[]; choose: (columns: Column[]) => void }): JSX.Element {
  const toggle = (column: Column): void => {
    const next = ALL.filter((each) => (each === column ? !chosen.includes(each) : chosen.includes(each)));
    if (!next.length) return;
    try {
      localStorage.setItem(KEY, next.map((each) => each.name).join(','));
    } catch {
      // it lasts until the page is closed
    }
    choose(next);
  };
  return (
    <details class="menu">
      <summary class="button">Columns</summary>
      <div class="card menu-items">
        {ALL.map((column) => (
          <label key={column.name}>
            <input type="checkbox" checked={chosen.includes(column)} onChange={() => toggle(column)} /> {column.name}
          </label>
        ))}
      </div>
    </details>
  );
}
