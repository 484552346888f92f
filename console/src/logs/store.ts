// The merged log of several containers: sorted by time, bounded, with an incrementally filtered view.

export interface LogLine {
  time: number; // milliseconds, with fractions
  source: number; // index into the sources
  text: string;
  error: boolean;
}

export interface LogFilter {
  text: string;
  regex: boolean;
  sources: ReadonlySet<number> | undefined; // undefined: all
}

export const NO_FILTER: LogFilter = { text: '', regex: false, sources: undefined };

const ERROR = /\b(?:Traceback \(most recent call last\)|\w*(?:Error|Exception)\b(?=[:\s(]|$)|FATAL|CRITICAL|panic:|CUDA error|NCCL error|Segmentation fault|core dumped|Killed)/;
const LEVEL = /(?:^|[\s[])(?:E\d{4}|ERROR)(?:[\s\]:]|$)/;
// eslint-disable-next-line no-control-regex
const ANSI = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;

/** A line as a terminal would leave it: without escape sequences, and what a progress bar drew last. */
export function cleanLine(raw: string): string {
  const text = raw.includes('\u001b') ? raw.replace(ANSI, '') : raw;
  if (!text.includes('\r')) return text;
  return text.split('\r').filter(Boolean).at(-1) ?? '';
}

export const isError = (text: string): boolean => ERROR.test(text) || LEVEL.test(text);

/** Splits the time that the server puts before a line. The fraction keeps microseconds; Date.parse has milliseconds. */
export function parseLine(line: string, source: number, fallback: number): LogLine {
  const space = line.indexOf(' ');
  const match = space > 0 ? /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)$/.exec(line.slice(0, space)) : null;
  const time = match ? Date.parse(`${match[1]}${match[3]}`) + Number(`0.${match[2] ?? '0'}`) * 1000 : fallback;
  const text = cleanLine(match ? line.slice(space + 1) : line);
  return { time, source, text, error: isError(text) };
}

export function compileFilter(filter: LogFilter): (line: LogLine) => boolean {
  const needle = filter.text.toLowerCase();
  let pattern: RegExp | undefined;
  if (filter.regex && filter.text) {
    try {
      pattern = new RegExp(filter.text, 'i');
    } catch {
      pattern = undefined; // an unfinished expression is searched as text
    }
  }
  const { sources } = filter;
  return (line) => {
    if (sources && !sources.has(line.source)) return false;
    if (pattern) return pattern.test(line.text);
    return !needle || line.text.toLowerCase().includes(needle);
  };
}

export class LogStore {
  lines: LogLine[] = [];
  view: LogLine[] = [];
  /** Lines that were dropped because the log is longer than what a browser should keep. */
  dropped = 0;
  version = 0;
  private waiting: LogLine[] = [];
  private filter: LogFilter = NO_FILTER;
  private matches = compileFilter(NO_FILTER);

  private characters = 0;

  /** Lines may be long: a hundred thousand of a megabyte would be more than a browser has. */
  constructor(private readonly limit = 50_000, private readonly maxCharacters = 50_000_000) {}

  add(line: LogLine): void {
    this.waiting.push(line);
  }

  get hasWaiting(): boolean {
    return this.waiting.length > 0;
  }

  /** Merge what arrived since the last call. Lines of one source keep their order if their times are equal. */
  flush(): void {
    if (!this.waiting.length) return;
    const batch = this.waiting;
    this.waiting = [];
    for (const line of batch) this.characters += line.text.length;
    batch.sort((a, b) => a.time - b.time);
    const first = batch[0]?.time ?? 0;
    const at = lastIndexNotAfter(this.lines, first);
    if (at === this.lines.length) {
      push(this.lines, batch);
      push(this.view, batch.filter(this.matches));
    } else {
      const tail = this.lines.splice(at);
      push(this.lines, mergeSorted(tail, batch));
      this.view = this.lines.filter(this.matches);
    }
    this.trim();
    this.version += 1;
  }

  setFilter(filter: LogFilter): void {
    if (filter === this.filter) return;
    this.filter = filter;
    this.matches = compileFilter(filter);
    this.view = this.lines.filter(this.matches);
    this.version += 1;
  }

  /** The position of the first error in the view; -1 if there is none. */
  firstError(): number {
    return this.view.findIndex((line) => line.error);
  }

  clear(): void {
    this.lines = [];
    this.view = [];
    this.waiting = [];
    this.dropped = 0;
    this.characters = 0;
    this.version += 1;
  }

  // A tenth at a time: moving fifty thousand lines for each batch would cost more than showing them.
  private trim(): void {
    const tooMany = this.lines.length - this.limit;
    let excess = tooMany > this.limit / 10 ? tooMany : 0;
    for (let at = 0; at < excess; at += 1) this.characters -= (this.lines[at] as LogLine).text.length;
    if (this.characters > this.maxCharacters) {
      for (; this.characters > 0.9 * this.maxCharacters && excess < this.lines.length - 1; excess += 1) this.characters -= (this.lines[excess] as LogLine).text.length;
    }
    if (!excess) return;
    const removed = new Set(this.lines.splice(0, excess));
    this.dropped += excess;
    let cut = 0;
    while (cut < this.view.length && removed.has(this.view[cut] as LogLine)) cut += 1;
    this.view.splice(0, cut);
  }
}

function push<T>(target: T[], items: T[]): void {
  for (const item of items) target.push(item);
}

/** Where a line of this time is inserted: behind all that are not later. */
function lastIndexNotAfter(lines: LogLine[], time: number): number {
  let low = 0;
  let high = lines.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((lines[middle] as LogLine).time <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function mergeSorted(a: LogLine[], b: LogLine[]): LogLine[] {
  const merged: LogLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length && j < b.length) {
    const [left, right] = [a[i] as LogLine, b[j] as LogLine];
    if (left.time <= right.time) {
      merged.push(left);
      i += 1;
    } else {
      merged.push(right);
      j += 1;
    }
  }
  push(merged, a.slice(i));
  push(merged, b.slice(j));
  return merged;
}
