// Follows the log of one container into a store, across broken connections.
import { sleep } from '../api/collection';
import { ApiError, isAbort } from '../api/http';
import { PODS, url } from '../api/kinds';
import { streams } from '../api/streams';
import { type LogLine, parseLine } from './store';

const TAIL = 5000;
const RETRY_MS = 1000;

export interface Source {
  pod: string;
  namespace: string;
  container: string;
  label: string;
}

/** Continues behind the last line that was read: lines of the same instant may arrive again and are skipped by count. */
export class Resume {
  private lastTime = 0;
  private atLast = 0;
  private skip = 0;

  get since(): string | undefined {
    // The server compares whole seconds.
    return this.lastTime ? new Date(Math.floor(this.lastTime / 1000) * 1000).toISOString() : undefined;
  }

  reconnect(): void {
    this.skip = this.atLast;
  }

  isNew(time: number): boolean {
    if (time < this.lastTime) return false;
    if (time > this.lastTime) {
      this.lastTime = time;
      this.atLast = 1;
      this.skip = 0;
      return true;
    }
    if (this.skip > 0) {
      this.skip -= 1;
      return false;
    }
    this.atLast += 1;
    return true;
  }
}

export async function follow(source: Source, index: number, add: (line: LogLine) => void, ended: () => boolean, signal: AbortSignal): Promise<void> {
  const resume = new Resume();
  while (!signal.aborted) {
    const last = ended();
    try {
      const complete = await readOnce(source, index, add, resume, last, signal);
      if (last && complete) return;
      if (!last && complete) await sleep(RETRY_MS, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (isAbort(error)) continue;
      // 400: the container has not started. 404: the pod is gone and its log with it.
      if (error instanceof ApiError && (error.status === 404 || error.status === 403)) return;
      if (!(error instanceof ApiError)) throw error; // a defect, not the network
      await sleep(RETRY_MS, signal);
    }
  }
}

async function readOnce(source: Source, index: number, add: (line: LogLine) => void, resume: Resume, last: boolean, signal: AbortSignal): Promise<boolean> {
  resume.reconnect();
  const query = new URLSearchParams({ container: source.container, timestamps: 'true' });
  if (!last) query.set('follow', 'true');
  const { since } = resume;
  if (since) query.set('sinceTime', since);
  else query.set('tailLines', String(TAIL));
  const path = `${url(PODS, source.namespace, source.pod, 'log')}?${query.toString()}`.slice('k8s'.length);
  for await (const pieces of streams.open(path, signal)) {
    const now = Date.now();
    for (const piece of pieces) {
      const lines = (piece.text ?? '').split('\n');
      if (lines.at(-1) === '') lines.pop();
      for (const raw of lines) {
        const line = parseLine(raw, index, now);
        if (resume.isNew(line.time)) add(line);
      }
    }
  }
  return true;
}
