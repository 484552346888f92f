import { describe, expect, it } from 'vitest';
import { withMissing } from '../src/pages/job/use_series';
import { yRange } from '../src/model/curves';
import { lastOf, parseMetrics, parseProgress, readSeries, SeriesBuilder, stepName } from '../src/model/metrics';

describe('metrics of log lines', () => {
  it.each([
    ['loss=0.25', [['loss', 0.25]]],
    ['epoch 3: loss: 0.5, "val_loss": 2.5e-1', [['loss', 0.5], ['val_loss', 0.25]]],
    ['accuracy = 91.5%', [['accuracy', 91.5]]],
    ['train/loss=1e-3 lr=-.5', [['train/loss', 0.001], ['lr', -0.5]]],
    ['12:30:00 started', []],
    ['run.py:766] hello', []],
    ['url: http://host:80/x', []],
    ['grad_norm=inf loss=nan', [['grad_norm', Infinity], ['loss', NaN]]],
    ['version=1.2.3', []],
  ])('%s', (line, expected) => expect(parseMetrics(line)).toEqual(expected));

  it('reads only the start of a long line', () => {
    expect(parseMetrics(`${'a='.repeat(500_000)} loss=1`)).toEqual([]);
    expect(parseMetrics('=1'.repeat(500_000))).toEqual([]);
  });
});

describe('progress of log lines', () => {
  it.each([
    [' 45%|####    | 9/20', 45],
    ['Train Epoch: 1 [640/60000 (1%)] Loss: 2.3', 1],
    ['step 5/20', 25],
    ['Epoch 2 of 4', 50],
    ['accuracy 91%', undefined],
    ['step 7/0', undefined],
  ])('%s', (line, share) => expect(parseProgress(line)).toBe(share));
});

it('keeps series bounded and in order', () => {
  const builder = new SeriesBuilder();
  for (let step = 0; step < 20_000; step += 1) builder.add('worker-0', step, `step=${step} loss=1`);
  const points = builder.series.get('loss worker-0')?.points ?? [];
  expect(points.length).toBeLessThanOrEqual(4001);
  expect(points.at(-1)).toEqual([19_999, 1]);
  expect(points.every(([x], index) => index === 0 || x > (points[index - 1]?.[0] ?? 0))).toBe(true);
  expect(stepName(['loss', 'step'])).toBe('step');
});

it('shows the last step as a whole number, and the mean of other metrics', () => {
  const series = (name: string, value: number) => ({ name, replica: 'worker-0', unit: '', points: [[1, 0], [2, value]] as [number, number][] });
  expect(lastOf(series('step', 209.5))).toBe(209);
  expect(lastOf(series('global_step', 7))).toBe(7);
  expect(lastOf(series('loss', 0.75))).toBe(0.75);
  expect(lastOf(series('step', NaN))).toBeNaN();
  expect(lastOf({ ...series('step', 1), points: [] })).toBeUndefined();
});

describe('hostile lines', () => {
  // A hundred thousand characters each, a hundred times: a pattern that backtracks would not end within the time of a test.
  it.each(['a', 'a.', 'a/', 'a-', 'a ', 'a=', 'a:', "'", '"a', 'a=1', 'a=1:', 'a=1.', '=', '= ', ' = -', 'a=nan', '1', '.', 'is', 'x.py', 'a=1e', '%', '1%|', '[1/1 (1', 'step ', 'epoch 1/', '\u001b[', '\r'])('%j repeated', (part) => {
    const line = part.repeat(100_000 / part.length);
    for (let count = 0; count < 100; count += 1) {
      parseMetrics(line);
      parseProgress(line.slice(0, 2000));
    }
  });
});

it('adds the metrics of replicas to those that the server keeps of the whole job', () => {
  const series = (name: string, replica: string) => ({ name, replica, unit: '', points: [[1, 1]] as [number, number][] });
  const kept = [series('loss', ''), series('cpu', 'worker-0')];
  const read = [series('loss', 'worker-0'), series('cpu', 'worker-0'), series('lr', 'worker-0')];
  expect(withMissing(kept, read).map((each) => `${each.name} ${each.replica}`)).toEqual(['loss ', 'cpu worker-0', 'loss worker-0', 'lr worker-0']);
});

it('draws amounts from zero, flat lines in the middle, and leaves other curves their range', () => {
  expect(yRange(null, null, false)).toEqual([0, 1]);
  expect(yRange(0, 0, true)).toEqual([0, 1]);
  expect(yRange(8, 10, true)).toEqual([0, 10.8]);
  expect(yRange(-1, 10, true)).toBeUndefined();
  expect(yRange(0.5, 0.5, false)).toEqual([0.45, 0.55]);
  expect(yRange(0, 0, false)).toEqual([-1, 1]);
  expect(yRange(1, 2, false)).toBeUndefined();
});

it('reads the samples that are well-formed, and knows a response that has none', () => {
  for (const none of [undefined, null, [], 'text', {}, { series: 7 }]) expect(readSeries(none)).toBeUndefined();
  const points = [[1, 2], null, [3], ['x', 1], [4, null], [5, 'y']];
  expect(readSeries({ series: [null, { name: 7, points }, { name: 'a' }, { name: 'loss', replica: null, points }] })).toEqual([
    { name: 'loss', replica: '', unit: '', points: [[1, 2], [4, null]] },
  ]);
});
