// How many logs are followed at a time: a response carries a limited number of them, and a job may have hundreds of replicas.

export interface Slot {
  /** Aborted when another log is wanted more. */
  signal: AbortSignal;
  release: () => void;
}

interface Holder {
  key: string;
  controller: AbortController;
}

interface Waiting {
  key: string;
  grant: (slot: Slot | undefined) => void;
}

export class LogSlots {
  private readonly held = new Set<Holder>(); // oldest first
  private waiting: Waiting[] = [];
  private wanted: ReadonlySet<string> = new Set();

  constructor(private readonly limit: number) {}

  /** Waits for a slot; undefined if `signal` aborts meanwhile. */
  async acquire(key: string, signal: AbortSignal): Promise<Slot | undefined> {
    if (signal.aborted) return undefined;
    return new Promise((resolve) => {
      const cancel = (): void => {
        this.waiting = this.waiting.filter((each) => each !== entry);
        resolve(undefined);
      };
      const entry: Waiting = {
        key,
        grant: (slot) => {
          signal.removeEventListener('abort', cancel);
          resolve(slot);
        },
      };
      signal.addEventListener('abort', cancel);
      this.waiting.push(entry);
      this.makeRoom();
      this.grantNext();
    });
  }

  /** These logs come first: others give their slots up, and go on where they stopped when there is room again. */
  want(keys: ReadonlySet<string>): void {
    this.wanted = keys;
    this.makeRoom();
    this.grantNext();
  }

  private makeRoom(): void {
    let missing = this.waiting.filter((each) => this.wanted.has(each.key)).length - (this.limit - this.held.size);
    for (const holder of [...this.held].filter((each) => !this.wanted.has(each.key))) {
      if (missing <= 0) return;
      missing -= 1;
      this.held.delete(holder);
      holder.controller.abort();
    }
  }

  private grantNext(): void {
    while (this.held.size < this.limit && this.waiting.length) {
      const preferred = this.waiting.findIndex((each) => this.wanted.has(each.key));
      const [entry] = this.waiting.splice(Math.max(0, preferred), 1) as [Waiting];
      const holder: Holder = { key: entry.key, controller: new AbortController() };
      this.held.add(holder);
      const release = (): void => {
        if (this.held.delete(holder)) this.grantNext();
      };
      entry.grant({ signal: holder.controller.signal, release });
    }
  }
}

/** How many of its last lines are read of each log first: the page keeps 50,000 lines of all of them. */
export const tailOf = (logs: number): number => Math.max(500, Math.min(5000, Math.floor(100_000 / Math.max(1, logs))));

// Half of what the server allows in one response: the rest is for the watches, and for logs that are just being closed.
export const logSlots = new LogSlots(64);
