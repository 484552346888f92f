// Hooks: components that read collections are drawn again when these change.
import { useEffect, useMemo, useReducer, useState } from 'preact/hooks';
import { Collection, type Mapping, type Selection } from './collection';
import { serverNow } from './clock';
import { ApiError, getJson, isAbort } from './http';
import type { Resource } from './kinds';

// A collection lives a little longer than its last reader: a user who goes back finds it filled.
const KEEP_MS = 20_000;
// By the function that maps the rows, not by its name: a minified name is that of other functions, too.
const shared = new Map<Mapping<unknown>, Map<string, Collection<unknown>>>();

export function sharedCollection<T>(resource: Resource, map: Mapping<T>, selection: Selection): Collection<T> {
  const key = keyOf(resource, selection);
  let collections = shared.get(map);
  if (!collections) shared.set(map, (collections = new Map<string, Collection<unknown>>()));
  let collection = collections.get(key) as Collection<T> | undefined;
  if (!collection) {
    collection = new Collection(resource, map, selection);
    collections.set(key, collection as Collection<unknown>);
  }
  return collection;
}

const keyOf = (resource: Resource, { namespace, labels, fields }: Selection): string => [resource.group, resource.plural, namespace, labels, fields].join('|');

/** Without readers a collection is forgotten: otherwise each job that was looked at would stay in memory. */
export function forgetIdle<T>(collection: Collection<T>, map: Mapping<T>, resource: Resource, selection: Selection): void {
  const collections = shared.get(map);
  const key = keyOf(resource, selection);
  if (collection.isIdle && collections?.get(key) === collection) collections.delete(key);
}

/** `map` must be a function of a module: pages with the same one share a collection. */
export function useCollection<T>(resource: Resource, map: Mapping<T>, selection: Selection = {}): Collection<T> {
  const { namespace, labels, fields } = selection;
  const [, draw] = useReducer<number, void>((count) => count + 1, 0);
  const collection = useMemo(
    () => sharedCollection(resource, map, selection),
    [resource, map, namespace, labels, fields],
  );
  useEffect(() => {
    const unsubscribe = collection.subscribe(() => draw());
    return () => {
      setTimeout(() => {
        unsubscribe();
        forgetIdle(collection, map, resource, selection);
      }, KEEP_MS);
    };
  }, [collection]);
  return collection;
}

export interface Answer<T> {
  value?: T;
  error?: ApiError;
  reload: () => void;
}

/** A GET, repeated every `period` milliseconds if one is given. An empty path asks nothing. */
export function useGet<T>(path: string, period = 0): Answer<T> {
  const [state, setState] = useState<{ path: string; value?: T; error?: ApiError }>({ path });
  const [turn, reload] = useReducer<number, void>((count) => count + 1, 0);
  useEffect(() => {
    if (!path) return undefined;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async (): Promise<void> => {
      try {
        const value = await getJson<T>(path, controller.signal);
        setState({ path, value });
      } catch (error) {
        if (isAbort(error)) return;
        const failure = error instanceof ApiError ? error : new ApiError(0, 'Unreadable', `The answer of the server cannot be read: ${String(error)}`);
        setState((before) => ({ ...(before.path === path ? before : { path }), error: failure }));
        if (failure.status === 404 || failure.status === 403) return;
      }
      if (period) timer = setTimeout(() => void ask(), period);
    };
    void ask();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [path, period, turn]);
  const current = state.path === path ? state : {};
  return { ...current, reload: () => reload() } as Answer<T>;
}

/** The time of the server, for durations that grow: draws again every `period` milliseconds. */
export function useNow(period = 1000): number {
  const [now, setNow] = useState(serverNow());
  useEffect(() => {
    const timer = setInterval(() => setNow(serverNow()), period);
    return () => clearInterval(timer);
  }, [period]);
  return now;
}
