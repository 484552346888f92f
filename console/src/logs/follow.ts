// Follows the log of one container into a store, across broken connections.
import { serverNow } from '../api/clock';
import { sleep } from '../api/collection';
import { ApiError, isAbort } from '../api/http';
import { PODS, url } from '../api/kinds';
import { streams } from '../api/streams';
import { logSlots } from './slots';
import { type LogLine, parseLine } from './store';

const RETRY_MS = 1000;

export interface Source {
  pod: string;
  namespace: string;
  container: string;
  label: string;
}

/** Names the log among all that this window follows. */
export const keyOfSource = (source: Source): string => `${source.namespace}/${source.pod}/${source.container}`;

export interface LogReader {
  add: (line: LogLine) => void;
  /** Whether the container has ended: its log is read once then. */
  ended: () => boolean;
  /** How many lines are read at the beginning. */
  tail: () => number;
  /** The log has a slot, or has given it up. */
  reads: (active: boolean) => void;
}

/**
 * Continues behind the last line that was read: after a new connection, lines of the same instant may arrive again and
 * are skipped by count. Otherwise every line is new, also one whose time is before that of the line before it: clocks of
 * nodes are set back.
 */
export class Resume {
  private lastTime = 0;
  private atLast = 0;
  private skip = 0;
  private isRepeated = false;

  get since(): string | undefined {
    // The server compares whole seconds.
    return this.lastTime ? new Date(Math.floor(this.lastTime / 1000) * 1000).toISOString() : undefined;
  }

  /** The time of a line that has none, such as the rest of a very long one; `now` for the first line. */
  timeOr(now: number): number {
    return this.lastTime || now;
  }

  reconnect(): void {
    this.skip = this.atLast;
    this.isRepeated = this.lastTime > 0;
  }

  isNew(time: number): boolean {
    if (this.isRepeated) {
      if (time < this.lastTime) return false;
      if (time === this.lastTime && this.skip > 0) {
        this.skip -= 1;
        return false;
      }
      this.isRepeated = false;
    }
    this.atLast = time === this.lastTime ? this.atLast + 1 : 1;
    this.lastTime = time;
    return true;
  }
}

export async function follow(source: Source, index: number, reader: LogReader, signal: AbortSignal): Promise<void> {
  const resume = new Resume();
  while (!signal.aborted) {
    const slot = await logSlots.acquire(keyOfSource(source), signal);
    if (!slot) return;
    reader.reads(true);
    try {
      if (await hasBeenRead(source, index, reader, resume, AbortSignal.any([signal, slot.signal]))) return;
      if (slot.signal.aborted) reader.reads(false);
    } finally {
      slot.release(); // others may read while this one waits
    }
    await sleep(RETRY_MS, signal);
  }
}

/** Reads until the server ends the log; whether nothing will follow. */
async function hasBeenRead(source: Source, index: number, reader: LogReader, resume: Resume, signal: AbortSignal): Promise<boolean> {
  const last = reader.ended();
  try {
    await readOnce(source, index, reader, resume, last, signal);
    return last && !signal.aborted;
  } catch (error) {
    if (signal.aborted || isAbort(error)) return false;
    if (!(error instanceof ApiError)) throw error; // a defect, not the network
    // 400: the container has not started. 404: the pod is gone and its log with it.
    return error.status === 404 || error.status === 403;
  }
}

async function readOnce(source: Source, index: number, reader: LogReader, resume: Resume, last: boolean, signal: AbortSignal): Promise<void> {
  resume.reconnect();
  const query = new URLSearchParams({ container: source.container, timestamps: 'true' });
  if (!last) query.set('follow', 'true');
  const { since } = resume;
  if (since) query.set('sinceTime', since);
  else query.set('tailLines', String(reader.tail()));
  const path = `${url(PODS, source.namespace, source.pod, 'log')}?${query.toString()}`.slice('k8s'.length);
  for await (const pieces of streams.open(path, signal)) {
    const now = serverNow();
    for (const piece of pieces) {
      const lines = (piece.text ?? '').split('\n');
      if (lines.at(-1) === '') lines.pop();
      for (const raw of lines) {
        const line = parseLine(raw, index, resume.timeOr(now));
        if (resume.isNew(line.time)) reader.add(line);
      }
    }
  }
}
