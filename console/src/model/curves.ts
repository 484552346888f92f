// Prepares series for a plot: one common x axis, smoothed values, steps instead of times.
import type { Series } from './metrics';

export type Aligned = [number[], ...(number | null)[][]];

export function smoothed(points: [number, number][], weight: number): [number, number][] {
  if (!weight) return points;
  let mean: number | undefined;
  return points.map(([x, y]) => {
    if (!Number.isFinite(y)) return [x, y];
    mean = mean === undefined ? y : weight * mean + (1 - weight) * y;
    return [x, mean];
  });
}

/** Replaces times by the step that was printed last at or before each of them. */
export function toSteps(points: [number, number][], steps: [number, number][]): [number, number][] {
  let at = 0;
  const result: [number, number][] = [];
  for (const [time, value] of points) {
    while (at + 1 < steps.length && (steps[at + 1] as [number, number])[0] <= time) at += 1;
    const step = steps[at];
    if (step && step[0] <= time && Number.isFinite(step[1])) result.push([step[1], value]);
  }
  return result.sort((a, b) => a[0] - b[0]);
}

// The difference of two values, and what uPlot adds as a margin, must be a number too.
const LARGEST = 1e150;
const drawable = (y: number): number => (Math.abs(y) < 1 / LARGEST ? 0 : Math.max(-LARGEST, Math.min(LARGEST, y)));

/** Gaps are null: uPlot draws a line over them only where the series has no point of its own. */
export function align(lists: [number, number][][]): Aligned {
  const xs = [...new Set(lists.flatMap((points) => points.map(([x]) => x)))].sort((a, b) => a - b);
  const position = new Map(xs.map((x, index) => [x, index]));
  const columns = lists.map((points) => {
    const column: (number | null)[] = new Array<number | null>(xs.length).fill(null);
    for (const [x, y] of points) column[position.get(x) as number] = Number.isFinite(y) ? drawable(y) : null;
    return column;
  });
  return [xs, ...columns];
}

/** Around a single point uPlot would show years. */
export const xRange = (xs: ArrayLike<number>, min: number | null, max: number | null): [number | null, number | null] =>
  xs.length === 1 ? [(xs[0] as number) - 30, (xs[0] as number) + 30] : [min, max];

/** The values of an axis: what a program or a replica has of something is seen from zero, and a flat line keeps its place. */
export function yRange(min: number | null, max: number | null, fromZero: boolean): [number, number] | undefined {
  if (min === null || max === null) return [0, 1];
  if (fromZero && min >= 0) return [0, max > 0 ? max * 1.08 : 1];
  if (min !== max) return undefined;
  const margin = Math.abs(min) / 10 || 1;
  return [min - margin, max + margin];
}

/** `positive`: a logarithmic axis has no place for zero and less. */
export function prepare(series: Series[], steps: Series[] | undefined, smooth: number, origin?: (series: Series) => number, positive = false): Aligned {
  const lists = series.map((each) => {
    const counted = steps?.find((other) => other.replica === each.replica);
    const points = counted ? toSteps(each.points, counted.points) : origin ? each.points.map(([x, y]): [number, number] => [x - origin(each), y]) : each.points;
    const values = smoothed(points, smooth);
    return positive ? values.map(([x, y]): [number, number] => [x, y > 0 ? y : NaN]) : values;
  });
  return align(lists);
}
