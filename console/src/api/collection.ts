// A live copy of a list: a list in pages, then a watch from its resource version. Rows are mapped when they arrive, so
// that ten thousand jobs keep only what the pages show of them.
import { ApiError, getJson, isAbort } from './http';
import { type Resource, url } from './kinds';
import { type KubeObject, keyOf } from './objects';
import { streams } from './streams';

const PAGE = 500;
const NOTIFY_MS = 200;
const MAX_BACKOFF_MS = 15_000;
const ABSENT_RETRY_MS = 30_000;
const FIRST_BACKOFF_MS = 500;
// A server that ends watches sooner than this is not asked again at once.
const SHORT_WATCH_MS = 1000;

export interface Selection {
  namespace?: string;
  labels?: string;
  fields?: string;
}

interface ListPage {
  metadata?: { resourceVersion?: string; continue?: string };
  items?: KubeObject[] | null;
}

interface WatchEvent {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  object: KubeObject & { code?: number; message?: string };
}

export type Mapping<T> = (object: KubeObject) => T | undefined;

// A page that goes from one namespace to another and back reads two collections in turn: had both seen as many changes, it
// would go on showing what it computed from the other one.
let versions = 0;
const nextVersion = (): number => (versions += 1);

export class Collection<T> {
  readonly items = new Map<string, T>();
  /** Rises with every change; what is computed from the items depends on it. No two collections have the same one. */
  version = nextVersion();
  /** The first list is complete. */
  loaded = false;
  /** The server does not serve the resource. */
  absent = false;
  error: ApiError | undefined;

  /** Objects that have another form than their kind, with what was wrong. */
  private readonly unreadable = new Map<string, string>();
  private readonly listeners = new Set<() => void>();
  private controller: AbortController | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** Where the watch goes on; empty until a list is complete. */
  private resourceVersion = '';

  constructor(
    readonly resource: Resource,
    private readonly map: Mapping<T>,
    private readonly selection: Selection = {},
  ) {}

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    if (this.listeners.size === 1) this.start();
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size === 0) this.stop();
    };
  }

  get isIdle(): boolean {
    return this.listeners.size === 0;
  }

  private start(): void {
    const controller = new AbortController();
    this.controller = controller;
    void this.run(controller.signal);
  }

  private stop(): void {
    this.controller?.abort();
    this.controller = undefined;
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private async run(signal: AbortSignal): Promise<void> {
    let backoff = FIRST_BACKOFF_MS;
    while (!signal.aborted) {
      try {
        if (!this.resourceVersion) await this.list(signal);
        const began = performance.now();
        await this.watch(signal);
        if (performance.now() - began >= SHORT_WATCH_MS) {
          backoff = FIRST_BACKOFF_MS;
        } else {
          await sleep(backoff, signal);
          backoff = Math.min(MAX_BACKOFF_MS, backoff * 2);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (isAbort(error)) continue;
        const wait = this.failed(error, backoff);
        backoff = Math.min(MAX_BACKOFF_MS, backoff * 2);
        await sleep(wait, signal);
      }
    }
  }

  private failed(error: unknown, backoff: number): number {
    if (error instanceof ApiError && error.status) {
      if (error.status === 410) {
        this.resourceVersion = '';
        return backoff > FIRST_BACKOFF_MS ? backoff : 0; // a list that has expired again is no reason to hurry
      }
      this.absent = error.status === 404;
      this.error = this.absent ? undefined : error;
      this.loaded = this.absent || this.loaded;
    } else {
      // The connection broke; the watch continues where it stopped.
      this.error = new ApiError(0, 'Unreachable', 'The server does not respond; trying again.');
    }
    this.notify();
    return this.absent || this.error?.status === 403 ? ABSENT_RETRY_MS : backoff;
  }

  private query(parameters: Record<string, string>): string {
    const { namespace = '', labels, fields } = this.selection;
    const query = new URLSearchParams(parameters);
    if (labels) query.set('labelSelector', labels);
    if (fields) query.set('fieldSelector', fields);
    return `${url(this.resource, namespace)}?${query.toString()}`;
  }

  private async list(signal: AbortSignal): Promise<void> {
    const seen = new Set<string>();
    let next = '';
    let resourceVersion = '';
    do {
      const query: Record<string, string> = { limit: String(PAGE), ...(next ? { continue: next } : {}) };
      const page = await getJson<ListPage>(this.query(query), signal);
      for (const object of page.items ?? []) {
        if (!isObject(object)) continue;
        seen.add(keyOf(object));
        this.put(object);
      }
      next = page.metadata?.continue ?? '';
      resourceVersion = page.metadata?.resourceVersion ?? '';
      this.notify();
    } while (next);
    for (const key of [...this.items.keys(), ...this.unreadable.keys()]) if (!seen.has(key)) this.forget(key);
    // Not before the last page: a list that breaks in between begins again, it does not go on with a watch.
    this.resourceVersion = resourceVersion;
    this.loaded = true;
    this.absent = false;
    this.error = this.unreadableError();
    this.notify();
  }

  private async watch(signal: AbortSignal): Promise<void> {
    const query = this.query({ watch: '1', allowWatchBookmarks: 'true', resourceVersion: this.resourceVersion });
    if (this.error) {
      this.error = this.unreadableError();
      this.notify();
    }
    for await (const pieces of streams.open(query.slice('k8s'.length), signal)) {
      for (const piece of pieces) this.apply(piece.event as WatchEvent);
      this.error = this.unreadableError();
      this.notify();
    }
  }

  private apply(event: WatchEvent): void {
    if (event.type === 'ERROR') {
      throw new ApiError(event.object.code ?? 500, 'Watch', event.object.message ?? 'the watch ended');
    }
    if (!event.object?.metadata) return;
    this.resourceVersion = event.object.metadata.resourceVersion ?? this.resourceVersion;
    if (event.type === 'BOOKMARK') return;
    if (!isObject(event.object)) return;
    if (event.type === 'DELETED') this.forget(keyOf(event.object));
    else this.put(event.object);
  }

  private forget(key: string): void {
    this.items.delete(key);
    this.unreadable.delete(key);
  }

  private unreadableError(): ApiError | undefined {
    const [first] = this.unreadable;
    if (!first) return undefined;
    return new ApiError(0, 'Unreadable', `${this.resource.kind} ${first[0]} cannot be shown (${first[1]})${this.unreadable.size > 1 ? `, nor ${this.unreadable.size - 1} others` : ''}`);
  }

  private put(object: KubeObject): void {
    // Lists omit the kind of their items.
    object.kind ??= this.resource.kind;
    object.apiVersion ??= this.resource.group
      ? `${this.resource.group}/${this.resource.version}`
      : this.resource.version;
    let row: T | undefined;
    try {
      row = this.map(object);
      this.unreadable.delete(keyOf(object));
    } catch (error) {
      this.unreadable.set(keyOf(object), String(error)); // one odd object must not hide all others
    }
    if (row === undefined) this.items.delete(keyOf(object));
    else this.items.set(keyOf(object), row);
  }

  private notify(): void {
    this.version = nextVersion();
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      for (const listener of [...this.listeners]) listener();
    }, this.loaded ? NOTIFY_MS : 0);
  }
}

/** What is not an object of Kubernetes is left out: a proxy in between may answer in its own words. */
const isObject = (object: KubeObject | null | undefined): object is KubeObject => Boolean(object?.metadata?.name);

export const whole = (object: KubeObject): KubeObject => object;

/** The whole object, if what the pages will read of it can be read: they compute it again when they are drawn. */
export const checked = (read: (object: KubeObject) => unknown) => (object: KubeObject): KubeObject => {
  read(object);
  return object;
};

export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
