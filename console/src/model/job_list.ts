// Filter, search, sort and group the list of jobs. Pure: rows in, rows out.
import type { JobRow } from './job_row';

export type SortKey = 'name' | 'namespace' | 'kind' | 'state' | 'queue' | 'created' | 'duration' | 'replicas' | 'progress';

const SORT_KEYS: readonly string[] = ['name', 'namespace', 'kind', 'state', 'queue', 'created', 'duration', 'replicas', 'progress'] satisfies SortKey[];

/** The sort key and direction of a link, such as `-created`; the newest first if it names no column. */
export function readSort(text: string): { sort: SortKey; descending: boolean } {
  const name = text.replace(/^-/, '');
  return SORT_KEYS.includes(name) ? { sort: name as SortKey, descending: text.startsWith('-') } : { sort: 'created', descending: true };
}

export interface ListQuery {
  text: string;
  kinds: string[];
  phase: string;
  sort: SortKey;
  descending: boolean;
  group: string;
}

export type Line = { header: string; count: number } | { row: JobRow };

/** Words are joined by "and"; `label=value` matches a label, `-word` excludes. */
export function matcher(text: string): (row: JobRow) => boolean {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return () => true;
  return (row) => {
    const haystack = `${row.namespace}/${row.name} ${row.kind} ${row.state} ${row.queue} ${row.message}`.toLowerCase();
    return words.every((word) => {
      const negative = word.length > 1 && word.startsWith('-');
      const positive = negative ? word.slice(1) : word;
      return hasWord(row, haystack, positive) !== negative;
    });
  };
}

function hasWord(row: JobRow, haystack: string, word: string): boolean {
  const equals = word.indexOf('=');
  if (equals > 0) {
    const value = word.slice(equals + 1);
    for (const [label, has] of Object.entries(row.labels)) {
      if (label.toLowerCase().endsWith(word.slice(0, equals)) && has.toLowerCase().startsWith(value)) return true;
    }
    return false;
  }
  return haystack.includes(word);
}

const numeric = new Intl.Collator('en', { numeric: true, sensitivity: 'base' });
const PHASES = ['failed', 'running', 'waiting', 'succeeded'];

export function comparator(sort: SortKey, descending: boolean, now: number): (a: JobRow, b: JobRow) => number {
  const sign = descending ? -1 : 1;
  const length = (row: JobRow): number => (row.ended ?? now) - (row.started ?? row.created);
  const compare: Record<SortKey, (a: JobRow, b: JobRow) => number> = {
    name: (a, b) => numeric.compare(a.name, b.name),
    namespace: (a, b) => numeric.compare(a.namespace, b.namespace),
    kind: (a, b) => numeric.compare(a.kind, b.kind),
    state: (a, b) => PHASES.indexOf(a.phase) - PHASES.indexOf(b.phase) || numeric.compare(a.state, b.state),
    queue: (a, b) => numeric.compare(a.queue, b.queue),
    created: (a, b) => a.created - b.created,
    duration: (a, b) => length(a) - length(b),
    progress: (a, b) => (parseFloat(a.progress) || 0) - (parseFloat(b.progress) || 0),
    replicas: (a, b) => a.replicas - b.replicas,
  };
  return (a, b) => sign * compare[sort](a, b) || (a.key < b.key ? -1 : 1);
}

/** The value that groups a row: a label's, or a column's. */
export function groupOf(row: JobRow, group: string): string {
  if (group === 'kind' || group === 'namespace' || group === 'queue' || group === 'state') return row[group] || `no ${group}`;
  return (Object.hasOwn(row.labels, group) ? row.labels[group] : undefined) ?? `no ${group}`;
}

export function arrange(rows: Iterable<JobRow>, query: ListQuery, now: number): { lines: Line[]; count: number } {
  const matches = matcher(query.text);
  const chosen: JobRow[] = [];
  for (const row of rows) {
    if (query.kinds.length && !query.kinds.includes(row.kind)) continue;
    if (query.phase && row.phase !== query.phase) continue;
    if (matches(row)) chosen.push(row);
  }
  chosen.sort(comparator(query.sort, query.descending, now));
  if (!query.group) return { lines: chosen.map((row) => ({ row })), count: chosen.length };
  const groups = new Map<string, JobRow[]>();
  for (const row of chosen) {
    const name = groupOf(row, query.group);
    const members = groups.get(name);
    if (members) members.push(row);
    else groups.set(name, [row]);
  }
  const names = [...groups.keys()].sort(numeric.compare);
  const lines = names.flatMap((name): Line[] => {
    const members = groups.get(name) ?? [];
    return [{ header: name, count: members.length }, ...members.map((row) => ({ row }))];
  });
  return { lines, count: chosen.length };
}

export function rowAt(lines: Line[], index: number): JobRow | undefined {
  const line = lines[index];
  return line && 'row' in line ? line.row : undefined;
}

/** Where the selected row is now. Keys act on it, so nothing is selected once it has left the list. */
export function findCursor(lines: Line[], cursor: { key: string; index: number }): number {
  if (!cursor.key) return -1;
  if (rowAt(lines, cursor.index)?.key === cursor.key) return cursor.index;
  return lines.findIndex((line) => 'row' in line && line.row.key === cursor.key);
}

/** The labels by which jobs can be grouped: those that several jobs have, most frequent first. */
export function groupableLabels(rows: Iterable<JobRow>): string[] {
  const counts = new Map<string, number>();
  for (const row of rows) for (const label of Object.keys(row.labels)) counts.set(label, (counts.get(label) ?? 0) + 1);
  return [...counts].filter(([, count]) => count > 1).sort((a, b) => b[1] - a[1]).slice(0, 20).map(([label]) => label);
}
