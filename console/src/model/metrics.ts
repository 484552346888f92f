// The metrics and the progress that programs print, read from their log lines. The same rules as the plane's own.

const NUMBER = String.raw`[-+]?(?:\d+\.\d*|\.?\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)`;
const SOURCE_FILE = String.raw`[\w./-]{0,100}\.(?:py|cc|cpp|cu|h)\b`; // of a log line: `run.py:766]`
// `loss=0.25`, `loss: 0.25`, `"val_loss": 2.5e-1`, `accuracy = 91.5%`; not `12:30:00` or `v1=`
const METRIC = new RegExp(
  String.raw`(?<![\w./:-])["']?((?=[A-Za-z_])(?!is\b)(?!${SOURCE_FILE})[A-Za-z_][A-Za-z0-9_/.-]{0,127}(?![A-Za-z0-9_/.-]))["']?\s{0,8}[:=]\s{0,8}` +
    String.raw`["']?(${NUMBER})(?:\s?%)?(?!\d|\.\d|[\w:/.-]{0,64}[A-Za-z_:/])`,
  'gi',
);
// Every quantifier is bounded, so that the time is linear in the length of a line; a metric stands near the start.
const MAX_LINE = 2000;

export function parseMetrics(line: string): [string, number][] {
  if (!/[:=]\s*[-+.\dni]/i.test(line)) return [];
  const metrics = new Map<string, number>();
  for (const match of line.slice(0, MAX_LINE).matchAll(METRIC)) metrics.set(match[1] ?? '', toNumber(match[2] ?? ''));
  return [...metrics];
}

function toNumber(text: string): number {
  const lower = text.toLowerCase();
  if (lower.endsWith('inf')) return lower.startsWith('-') ? -Infinity : Infinity;
  return lower.endsWith('nan') ? NaN : Number(text);
}

const PERCENT = [
  /(?<![\d.])(\d{1,3}(?:\.\d+)?)\s?%\s?\|/, // a bar of tqdm
  /\[\s*\d+\s*\/\s*\d+\s*\(\s*(\d{1,3}(?:\.\d+)?)\s?%\s*\)/, // PyTorch's examples: `[640/60000 (1%)]`
  /\b(?:progress|completed?|done)\b[\s:=]*(\d{1,3}(?:\.\d+)?)\s?%/i,
  /(?<![\d.])(\d{1,3}(?:\.\d+)?)\s?%\s+(?:done|completed?)\b/i,
];
const STEPS = /\b(?:steps?|iter(?:ation)?s?|batch(?:es)?)\b[\s:=#[(]*(\d+)\s*(?:\/|\bof\b)\s*(\d+)/i;
const EPOCHS = /\bepochs?\b[\s:=#[(]*(\d+)\s*(?:\/|\bof\b)\s*(\d+)/i;

/** The share that a line reports, 0 to 100. A percentage alone is none: an accuracy is printed the same way. */
export function parseProgress(full: string): number | undefined {
  const line = full.slice(0, MAX_LINE);
  for (const pattern of PERCENT) {
    const share = Number(pattern.exec(line)?.[1]);
    if (share <= 100) return share;
  }
  const counts = STEPS.exec(line) ?? EPOCHS.exec(line);
  if (!counts) return undefined;
  const [done, total] = [Number(counts[1]), Number(counts[2])];
  return total > 0 && done <= total ? (100 * done) / total : undefined;
}

export interface Series {
  name: string;
  replica: string;
  unit: string;
  points: [number, number][];
}

const isPoint = (point: unknown): point is [number, number] =>
  Array.isArray(point) && typeof point[0] === 'number' && (typeof point[1] === 'number' || point[1] === null);

/** The series of a response, undefined if it has none: it may come from another version, or from a proxy on the way. */
export function readSeries(response: unknown): Series[] | undefined {
  const list = (response as { series?: unknown } | null | undefined)?.series;
  if (!Array.isArray(list)) return undefined;
  return list.flatMap((each: Partial<Series> | null) => {
    if (typeof each?.name !== 'string' || !Array.isArray(each.points)) return [];
    return [{ name: each.name, replica: String(each.replica ?? ''), unit: String(each.unit ?? ''), points: each.points.filter(isPoint) }];
  });
}

const MAX_SERIES = 200;
const MAX_POINTS = 4000;

/** Series that grow by log lines. A full series keeps every second point of its older half, so its memory is bounded. */
export class SeriesBuilder {
  readonly series = new Map<string, Series>();
  version = 0;

  add(replica: string, seconds: number, line: string): void {
    for (const [name, value] of parseMetrics(line)) this.put(replica, name, '', seconds, value);
  }

  put(replica: string, name: string, unit: string, seconds: number, value: number): void {
    const key = `${name} ${replica}`;
    let series = this.series.get(key);
    if (!series) {
      if (this.series.size >= MAX_SERIES) return;
      series = { name, replica, unit, points: [] };
      this.series.set(key, series);
    }
    series.points.push([seconds, value]);
    if (series.points.length > MAX_POINTS) thin(series.points);
    this.version += 1;
  }
}

function thin(points: [number, number][]): void {
  const half = points.length >> 1;
  const kept = points.filter((_, index) => index >= half || index % 2 === 0);
  points.splice(0, points.length, ...kept);
}

export const RESOURCE_NAMES = ['cpu', 'memory', 'gpu', 'gpu_memory', 'gpu-memory'];

/**
 * The value that a metric had last. Samples are means of intervals, which for a count of steps is between two steps:
 * it is rounded down to the last step that was reached for certain.
 */
export function lastOf(series: Series): number | undefined {
  const value = series.points.at(-1)?.[1];
  return COUNTS.has(series.name) && Number.isFinite(value) ? Math.floor(value as number) : value;
}

const STEP_NAMES = ['global_step', 'step', 'iteration', 'iter', 'batch'];

const COUNTS = new Set([...STEP_NAMES, 'steps', 'iterations', 'iters', 'batches']);

/** The name of the series that counts steps, if the program prints one. */
export const stepName = (names: Iterable<string>): string | undefined => {
  const known = new Set(names);
  return STEP_NAMES.find((name) => known.has(name));
};
