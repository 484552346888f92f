import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { checked, Collection } from '../src/api/collection';
import { JOBS } from '../src/api/kinds';
import type { KubeObject } from '../src/api/objects';
import { streams } from '../src/api/streams';
import { forgetIdle, sharedCollection } from '../src/api/use';

const nameOf = (object: KubeObject): string => object.metadata.name;
const job = (name: unknown): object => ({ metadata: { name, namespace: 'n', uid: name } });
const page = (names: unknown[], resourceVersion: string, next = ''): object => ({ metadata: { resourceVersion, continue: next }, items: names.map(job) });

type Answer = object | Error;
let lists: string[] = [];
let watches: string[] = [];

/** Answers lists in this order, the last one for ever; watches end with `watch`, or stay open. */
function serve(answers: Answer[], watch?: () => Promise<void>): void {
  vi.stubGlobal('fetch', (path: string) => {
    lists.push(path);
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(new Response(JSON.stringify(answer)));
  });
  vi.spyOn(streams, 'open').mockImplementation(async function* (path: string, signal: AbortSignal) {
    watches.push(path);
    if (watch) await watch();
    else await new Promise((resolve) => signal.addEventListener('abort', resolve));
  } as typeof streams.open);
}

describe('a live list', () => {
  let stop = (): void => {};

  beforeEach(() => {
    [lists, watches] = [[], []];
    vi.useFakeTimers();
    vi.stubGlobal('indexedDB', undefined);
  });

  afterEach(() => {
    stop();
    vi.useRealTimers();
    vi.restoreAllMocks();
    vi.unstubAllGlobals();
  });

  const start = (): Collection<string> => {
    const collection = new Collection(JOBS, nameOf);
    stop = collection.subscribe(() => {});
    return collection;
  };

  it('begins again when the connection breaks between two pages', async () => {
    serve([page(['a'], '7', 'next'), new TypeError('network'), page(['a'], '8', 'next'), page(['b'], '8')]);
    const collection = start();
    await vi.advanceTimersByTimeAsync(2000);
    expect([...collection.items.values()]).toEqual(['a', 'b']);
    expect(collection.loaded).toBe(true);
    expect(collection.error).toBeUndefined();
    expect(watches).toHaveLength(1);
    expect(watches[0]).toContain('resourceVersion=8');
  });

  it('waits longer and longer for a server that ends every watch at once', async () => {
    serve([page(['a'], '7')], () => Promise.resolve());
    start();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(watches.length).toBeGreaterThan(3);
    expect(watches.length).toBeLessThan(12);
  });

  it('waits longer and longer for a server that calls every version too old', async () => {
    const { ApiError } = await import('../src/api/http');
    serve([page(['a'], '7')], () => Promise.reject(new ApiError(410, 'Expired', 'too old resource version')));
    const collection = start();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(lists.length).toBeGreaterThan(3);
    expect(lists.length).toBeLessThan(12);
    expect([...collection.items.values()]).toEqual(['a']);
  });

  it('shows the other objects beside one without a name', async () => {
    serve([{ items: [null, {}, { metadata: null }, job('a')] }]);
    const collection = start();
    await vi.advanceTimersByTimeAsync(100);
    expect([...collection.items.values()]).toEqual(['a']);
    expect(collection.loaded).toBe(true);
  });

  it('has another version than every other list, so that a page which returns to a namespace shows its own', async () => {
    serve([page(['a'], '7')]);
    const [first, second] = [new Collection(JOBS, nameOf, { namespace: 'a' }), new Collection(JOBS, nameOf, { namespace: 'b' })];
    const stops = [first.subscribe(() => {}), second.subscribe(() => {})];
    stop = () => stops.forEach((each) => each());
    await vi.advanceTimersByTimeAsync(100);
    expect(first.loaded && second.loaded).toBe(true);
    expect(first.version).not.toBe(second.version);
  });
});

it('is shared by the function of its rows, whatever its name, while someone reads it', () => {
  const mapping = (): ((object: KubeObject) => string) => ({ same: (object: KubeObject) => object.metadata.name }).same;
  const [first, second] = [mapping(), mapping()];
  const collection = sharedCollection(JOBS, first, { namespace: 'n' });
  expect(sharedCollection(JOBS, first, { namespace: 'n' })).toBe(collection);
  expect(sharedCollection(JOBS, second, { namespace: 'n' })).not.toBe(collection);
  expect(sharedCollection(JOBS, first, { namespace: 'other' })).not.toBe(collection);
  serve([page([], '1')]);
  const stop = collection.subscribe(() => undefined);
  forgetIdle(collection, first, JOBS, { namespace: 'n' });
  expect(sharedCollection(JOBS, first, { namespace: 'n' })).toBe(collection);
  stop();
  forgetIdle(collection, first, JOBS, { namespace: 'n' });
  expect(sharedCollection(JOBS, first, { namespace: 'n' })).not.toBe(collection);
});

it('leaves out an object of which a page could not draw a part', () => {
  const withParts = checked((object) => object.spec.parts.map((part: { name: string }) => part.name));
  const object = (parts: unknown): KubeObject => ({ ...(job('a') as KubeObject), spec: { parts } });
  expect(withParts(object([{ name: 'x' }])).metadata.name).toBe('a');
  for (const odd of [undefined, 7, [null]]) expect(() => withParts(object(odd))).toThrow();
});
