import { describe, expect, it } from 'vitest';
import type { KubeObject } from '../src/api/objects';
import { align, toSteps } from '../src/model/curves';
import { arrange, type ListQuery } from '../src/model/job_list';
import { type JobRow, toJobRow } from '../src/model/job_row';
import { bytes, parseQuantity, short } from '../src/model/quantity';
import { newName, renamed } from '../src/model/rerun';
import { runState } from '../src/model/state';
import { duration } from '../src/model/time';
import { toYaml } from '../src/model/yaml';
import { link, parseRoute } from '../src/router';

const job = (kind: string, status: object, more: object = {}): KubeObject => ({
  apiVersion: 'v1', kind, metadata: { name: 'a', namespace: 'n', uid: 'u', creationTimestamp: '2026-01-01T00:00:00Z' }, spec: {}, status, ...more,
});
const row = (name: string, more: Partial<JobRow> = {}): JobRow => ({ ...(toJobRow(job('Job', {})) as JobRow), name, key: name, ...more });
const query = (more: Partial<ListQuery> = {}): ListQuery => ({ text: '', kinds: [], phase: '', sort: 'name', descending: false, group: '', ...more });
const names = (rows: JobRow[], more: Partial<ListQuery>): string[] => arrange(rows, query(more), 0).lines.map((line) => ('row' in line ? line.row.name : `[${line.header}]`));

describe('states', () => {
  it.each([
    ['PyTorchJob', { conditions: [{ type: 'Created', status: 'True' }, { type: 'Running', status: 'True' }] }, 'Running', 'running'],
    ['PyTorchJob', { conditions: [{ type: 'Failed', status: 'True' }] }, 'Failed', 'failed'],
    ['TrainJob', { jobsStatus: [{ name: 'node', ready: 1 }] }, 'Running', 'running'],
    ['TrainJob', { conditions: [{ type: 'Complete', status: 'True' }] }, 'Complete', 'succeeded'],
    ['JobSet', { conditions: [{ type: 'Completed', status: 'True' }] }, 'Completed', 'succeeded'],
    ['Job', { active: 2, ready: 0 }, 'Pending', 'waiting'],
    ['Job', { conditions: [{ type: 'Suspended', status: 'True' }] }, 'Suspended', 'waiting'],
    ['Pod', { phase: 'Failed' }, 'Failed', 'failed'],
  ])('%s %j', (kind, status, word, phase) => expect(runState(job(kind, status))).toMatchObject({ word, phase }));
});

describe('the list of jobs', () => {
  const rows = [row('b10', { labels: { team: 'vision' } }), row('b2', { phase: 'failed' }), row('a', { kind: 'PyTorchJob', queue: 'fast' })];
  it('sorts names as people count', () => expect(names(rows, {})).toEqual(['a', 'b2', 'b10']));
  it('searches words, labels and negations', () => {
    expect(names(rows, { text: 'team=vis' })).toEqual(['b10']);
    expect(names(rows, { text: 'n/b -b2' })).toEqual(['b10']);
  });
  it('filters by kind and phase', () => {
    expect(names(rows, { kinds: ['PyTorchJob'] })).toEqual(['a']);
    expect(names(rows, { phase: 'failed' })).toEqual(['b2']);
  });
  it('groups by a label', () => expect(names(rows, { group: 'team' })).toEqual(['[no team]', 'a', 'b2', '[vision]', 'b10']));
  it('shows the progress that a job reports, wherever its kind has it', () => {
    const annotated = job('Job', {});
    annotated.metadata.annotations = { 'torchyard.dev/progress': '29%, 23m left' };
    expect([toJobRow(annotated)?.progress, toJobRow(job('TrainJob', { progress: '4%' }))?.progress, toJobRow(job('Job', {}))?.progress]).toEqual(['29%, 23m left', '4%', '']);
    expect(names([row('a', { progress: '9%' }), row('b', { progress: '10%' })], { sort: 'progress', descending: true })).toEqual(['b', 'a']);
  });
  it('leaves out jobs that another object controls', () => {
    const owned = job('Job', {});
    owned.metadata.ownerReferences = [{ kind: 'JobSet', name: 's', uid: 'x', controller: true }];
    expect(toJobRow(owned)).toBeUndefined();
  });
});

describe('texts', () => {
  it('writes durations as kubectl does', () => expect([5e3, 187e3, 7500e3, 356400e3].map(duration)).toEqual(['5s', '3m07s', '2h05m', '4d03h']));
  it('reads quantities', () => expect(['500m', '2Gi', '8Ki', '1500000n', '1e3', 'x'].map(parseQuantity)).toEqual([0.5, 2 ** 31, 8192, 0.0015, 1000, NaN]));
  it('writes numbers', () => expect([bytes(1536), short(0.123456), short(1e-9)]).toEqual(['1.50 KiB', '0.1235', '1.00e-9']));
});

it('writes YAML that means the same', () => {
  const text = toYaml({ a: 'yes', b: [1, { c: 'x: y', d: [] }], e: 'one\ntwo\n', f: '', g: null, h: ['- x'], i: { 'k.io/x': 'true' } });
  expect(text).toBe('a: "yes"\nb:\n- 1\n- c: "x: y"\n  d: []\ne: |\n  one\n  two\nf: ""\ng: null\nh:\n- "- x"\ni:\n  k.io/x: "true"\n');
});

it('makes a manifest for another run', () => {
  const original = job('Job', {}, { spec: { suspend: true, selector: { matchLabels: { a: 'b' } }, template: { metadata: { labels: { 'job-name': 'a', own: 'x' } }, spec: { volumes: [{ configMap: { name: 'a-workspace' } }] } } } });
  const copy = renamed(original, 'a-new');
  expect(copy.metadata).toMatchObject({ name: 'a-new', annotations: { 'torchyard.dev/rerun-of': 'a' } });
  expect(copy.spec).toEqual({ template: { metadata: { labels: { own: 'x' } }, spec: { volumes: [{ configMap: { name: 'a-new-workspace' } }] } } });
  expect(newName('mnist-bcdfg', () => 0)).toBe('mnist-bbbbb');
});

it('aligns curves and counts by steps', () => {
  expect(align([[[1, 10], [3, 30]], [[2, NaN]]])).toEqual([[1, 2, 3], [10, null, 30], [null, null, null]]);
  expect(toSteps([[10, 0.5], [20, 0.4]], [[9, 1], [19, 2]])).toEqual([[1, 0.5], [2, 0.4]]);
});

it('keeps odd names in links', () => {
  const target = link(['job', 'n', 'a/b?c#d%'], { tab: 'logs', q: '' });
  expect(parseRoute(target)).toMatchObject({ path: ['job', 'n', 'a/b?c#d%'] });
  expect(parseRoute('#/x/%E0%A4%A').path).toEqual(['x', '%E0%A4%A']);
});
