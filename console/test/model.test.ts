import { describe, expect, it } from 'vitest';
import type { KubeObject, Pod } from '../src/api/objects';
import { align, prepare, toSteps, xRange } from '../src/model/curves';
import { arrange, findCursor, type ListQuery, readSort } from '../src/model/job_list';
import { type JobRow, toJobRow } from '../src/model/job_row';
import { bytes, parseQuantity, short } from '../src/model/quantity';
import { requestsOf } from '../src/model/requests';
import { newName, renamed } from '../src/model/rerun';
import { runState } from '../src/model/state';
import { duration } from '../src/model/time';
import { toYaml } from '../src/model/yaml';
import { inOrder, quotaUse, toQueued } from '../src/model/queue';
import { differences } from '../src/model/program';
import { readRuns, titlesOf } from '../src/model/runs';
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
    ['JobSet', { replicatedJobsStatus: [{ name: 'w', active: 1, ready: 0 }] }, 'Pending', 'waiting'],
    ['JobSet', { replicatedJobsStatus: [{ name: 'w', ready: 1 }] }, 'Running', 'running'],
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

describe('replicas', () => {
  const counts = (of: KubeObject): string => `${toJobRow(of)?.ready}/${toJobRow(of)?.replicas}`;
  it('counts nodes of TrainJobs and pods of JobSets, whose status counts Jobs', () => {
    expect(counts(job('TrainJob', { jobsStatus: [{ name: 'node', ready: 1 }] }, { spec: { trainer: { numNodes: 4 } } }))).toBe('4/4');
    expect(counts(job('TrainJob', { jobsStatus: [{ name: 'initializer', ready: 0 }, { name: 'node', ready: 0 }] }, { spec: { trainer: { numNodes: 4 } } }))).toBe('0/4');
    const replicatedJobs = [{ name: 'driver', template: { spec: {} } }, { name: 'w', replicas: 2, template: { spec: { parallelism: 3, completions: 3 } } }];
    expect(counts(job('JobSet', { replicatedJobsStatus: [{ name: 'w', ready: 1 }, { name: 'driver', succeeded: 1 }] }, { spec: { replicatedJobs } }))).toBe('4/7');
  });
  it('reads a replica type without a value', () => expect(counts(job('PyTorchJob', { replicaStatuses: { Master: null } }, { spec: { pytorchReplicaSpecs: { Master: null, Worker: { replicas: 2 } } } }))).toBe('0/3'));
});

it('takes only columns that exist from a link', () => {
  expect(readSort('-name')).toEqual({ sort: 'name', descending: true });
  for (const text of ['', 'constructor', '--name', '__proto__', '-']) expect(readSort(text)).toEqual({ sort: 'created', descending: true });
  expect(names([row('a')], { group: 'constructor' })).toEqual(['[no constructor]', 'a']);
  expect(readRuns('n/jobs.batch/%E0%A4%A,n/jobs.batch/a,n/jobs.batch/a').map((run) => run.name)).toEqual(['%E0%A4%A', 'a']);
});

describe('comparisons', () => {
  const container = (args: string[], more: object = {}) => ({ name: 'pytorch', image: 'i', args, ...more });
  const pytorch = (master: object, worker?: object, replicas = 1): KubeObject =>
    job('PyTorchJob', {}, { spec: { pytorchReplicaSpecs: { Master: { template: { spec: { containers: [master] } } }, ...(worker ? { Worker: { replicas, template: { spec: { containers: [worker] } } } } : {}) } } });
  const named = (...jobs: KubeObject[]): string[] => differences(jobs).map(({ name, values }) => `${name} ${values.map((value) => value ?? '-').join('|')}`);
  it('finds what only workers differ in, and their number', () => {
    const same = container(['--lr', '1']);
    expect(named(pytorch(same, container(['--lr', '1'])), pytorch(same, container(['--lr', '2']), 3))).toEqual(['Worker: replicas 1|3', 'Worker: --lr 1|2']);
    expect(named(pytorch(same, same), pytorch(same, container([])))).toEqual(['Worker: --lr 1|-']);
    expect(named(pytorch(same), pytorch(same, same))).toEqual(['Worker: replicas -|1']);
    expect(named(pytorch(same, same), pytorch(container(['--lr', '2']), container(['--lr', '2'])))).toEqual(['--lr 1|2']);
  });
  it('keeps every value of a repeated option, requests apart from limits, and references', () => {
    expect(named(pytorch(container(['--data', 'a', '--data', 'b'])), pytorch(container(['--data', 'c', '--data', 'b'])))).toEqual(['--data a b|c b']);
    const limited = (memory: string) => container([], { resources: { requests: { memory: '1Gi' }, limits: { memory } } });
    expect(named(pytorch(limited('1Gi')), pytorch(limited('2Gi')))).toEqual(['limits memory 1Gi|2Gi']);
    const secret = (key: string) => container([], { env: [{ name: 'KEY', valueFrom: { secretKeyRef: { name: 's', key } } }] });
    expect(named(pytorch(secret('a')), pytorch(secret('b')))).toHaveLength(1);
  });
  it('tells jobs of one name apart', () => {
    expect(titlesOf(readRuns('a/jobs.batch/x,b/jobs.batch/x'))).toEqual(['a/x', 'b/x']);
    expect(titlesOf(readRuns('a/jobs.batch/x,a/pods/x'))).toEqual(['Job a/x', 'Pod a/x']);
  });
});

describe('queues', () => {
  it('names the flavor of a resource that several flavors have', () => {
    const flavor = (name: string) => ({ name, resources: [{ name: 'cpu', nominalQuota: 1 }] });
    const labels = (...flavors: object[]): string[] => quotaUse(job('ClusterQueue', {}, { spec: { resourceGroups: [{ flavors }] } })).map((each) => each.label);
    expect(labels(flavor('spot'), flavor('on-demand'))).toEqual(['cpu (spot)', 'cpu (on-demand)']);
    expect(labels(flavor('spot'))).toEqual(['cpu']);
  });
  it('waits in the order that the queue says', () => {
    const workload = (name: string) => toQueued({ metadata: { name, namespace: 'n', uid: name, creationTimestamp: `2026-01-01T00:00:0${name}Z` }, spec: {} }, () => '');
    const both = [workload('1'), workload('2'), workload('3')];
    expect(inOrder(both).map((each) => each.job)).toEqual(['1', '2', '3']);
    expect(inOrder(both, new Map([['n/3', 0], ['n/1', 1]])).map((each) => each.job)).toEqual(['3', '1', '2']);
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

it('quotes text that YAML would read as a number, and characters that it does not allow', () => {
  expect(toYaml({ a: '.5', b: '.5e3', c: '.hidden', d: 'one\u0007\ntwo', e: 'a\u2028b\u0085c' })).toBe('a: ".5"\nb: ".5e3"\nc: .hidden\nd: "one\\u0007\\ntwo"\ne: "a\\u2028b\\u0085c"\n');
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

describe('the selected row', () => {
  const lines = (...names: string[]) => names.map((name) => ({ row: row(name) }));

  it('stays selected when other jobs come and go above it', () => {
    expect(findCursor(lines('new', 'a', 'b'), { key: 'a', index: 0 })).toBe(1);
    expect(findCursor(lines('a', 'b'), { key: 'a', index: 0 })).toBe(0);
  });

  it('is no other job when it is gone', () => {
    expect(findCursor(lines('b', 'c'), { key: 'a', index: 0 })).toBe(-1);
    expect(findCursor(lines('b'), { key: '', index: -1 })).toBe(-1);
    expect(findCursor([{ header: 'team', count: 1 }, ...lines('b')], { key: 'b', index: 0 })).toBe(1);
  });
});

it('gives a single point a minute, not years', () => {
  expect([xRange([100], 100, 86_400_100), xRange([1, 9], 1, 5), xRange([], null, null)]).toEqual([[70, 130], [1, 5], [null, null]]);
});

describe('a logarithmic axis', () => {
  it('leaves out what it cannot show', () => {
    const series = { name: 'loss', replica: '', unit: '', points: [[1, 0], [2, -1], [3, 10], [4, NaN]] as [number, number][] };
    expect(prepare([series], undefined, 0, undefined, true)).toEqual([[1, 2, 3, 4], [null, null, 10, null]]);
  });
});

describe('values that cannot be drawn as they are', () => {
  it('are a gap, or the largest and smallest that can', () => {
    const points: [number, number][] = [[1, 1e308], [2, -1e308], [3, 5e-324], [4, Infinity], [5, null as unknown as number], [6, 2]];
    expect(align([points])[1]).toEqual([1e150, -1e150, 0, null, null, 2]);
    expect([short(null), short(NaN), short(-Infinity)]).toEqual(['NaN', 'NaN', '-Infinity']);
  });
});

describe('what a pod requests of its node', () => {
  const container = (cpu: string, more: object = {}) => ({ name: 'c', resources: { requests: { cpu } }, ...more });
  const requested = (spec: object): number | undefined => requestsOf({ ...job('Pod', {}), spec } as Pod)['cpu'];

  it('is that of its containers, or of the largest init container', () => {
    expect(requested({ containers: [container('1'), container('500m')] })).toBe(1.5);
    expect(requested({ containers: [container('1')], initContainers: [container('3'), container('2')] })).toBe(3);
    expect(requested({ containers: [{ name: 'c', resources: { limits: { cpu: '2' } } }] })).toBe(2);
  });

  it('counts sidecars beside both, and the overhead of the sandbox', () => {
    const sidecar = container('1', { restartPolicy: 'Always' });
    expect(requested({ containers: [container('1')], initContainers: [sidecar, container('4')], overhead: { cpu: '250m' } })).toBe(5.25);
    expect(requested({ containers: [container('4')], initContainers: [container('4'), sidecar] })).toBe(5);
  });
});
