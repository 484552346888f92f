// Watches and followed logs. A browser opens at most six HTTP/1.1 connections to a server, so all of them share one
// response: `streams` begins it, `streams/ID` opens and closes what it carries. Each line of it names what it belongs to.
import { ApiError, isAbort, readLines, send, type StatusBody } from './http';

export interface Piece {
  event?: unknown;
  text?: string;
}

interface Line extends Piece {
  stream?: string;
  id?: string;
  error?: StatusBody;
  end?: boolean;
}

interface Entry {
  path: string;
  push: (line: Line) => void;
}

const JSON_BODY = { 'Content-Type': 'application/json' };

export class StreamClient {
  private entries = new Map<string, Entry>();
  private opening: string[] = [];
  private closing: string[] = [];
  private identity: string | undefined;
  private controller: AbortController | undefined;
  private scheduled = false;
  private count = 0;

  /** What arrives for `path` (below the API server's root), in batches, until the server ends it or `signal` aborts. */
  async *open(path: string, signal: AbortSignal): AsyncGenerator<Piece[], void> {
    let batch: Line[] = [];
    let wake = (): void => {};
    const push = (line: Line): void => {
      batch.push(line);
      wake();
    };
    const id = String((this.count += 1));
    this.entries.set(id, { path, push });
    this.opening.push(id);
    this.schedule();
    const aborted = (): void => wake();
    signal.addEventListener('abort', aborted);
    try {
      while (!signal.aborted) {
        if (!batch.length) await new Promise<void>((resolve) => (wake = resolve));
        const lines = batch;
        batch = [];
        const pieces = lines.filter((line) => line.event !== undefined || line.text !== undefined);
        if (pieces.length) yield pieces;
        const failure = lines.find((line) => line.error);
        if (failure?.error) throw new ApiError(failure.error.code ?? 0, failure.error.reason ?? '', failure.error.message ?? 'the stream failed');
        if (lines.some((line) => line.end)) return;
      }
    } finally {
      signal.removeEventListener('abort', aborted);
      if (this.entries.delete(id)) {
        const unsent = this.opening.indexOf(id);
        if (unsent >= 0) this.opening.splice(unsent, 1);
        else this.closing.push(id);
        this.schedule();
      }
    }
  }

  // Pages open several at a time; they travel together.
  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    setTimeout(() => {
      this.scheduled = false;
      this.change();
    }, 5);
  }

  private change(): void {
    if (!this.controller) {
      if (this.opening.length) void this.begin();
    } else if (this.identity && (this.opening.length || this.closing.length)) {
      const body = this.takeChange();
      send(`streams/${this.identity}`, { method: 'POST', headers: JSON_BODY, body }).catch((error: unknown) => this.reset(error));
    }
  }

  private takeChange(): string {
    const open = this.opening.map((id) => ({ id, path: this.entries.get(id)?.path }));
    const body = JSON.stringify({ open, close: this.closing });
    this.opening = [];
    this.closing = [];
    return body;
  }

  private async begin(): Promise<void> {
    const controller = new AbortController();
    this.controller = controller;
    this.closing = [];
    try {
      const body = this.takeChange();
      const response = await send('streams', { method: 'POST', headers: JSON_BODY, body, signal: controller.signal });
      for await (const lines of readLines(response)) for (const line of lines) if (line) this.receive(JSON.parse(line) as Line);
      this.reset(new ApiError(0, 'Unreachable', 'the server closed the connection'));
    } catch (error) {
      if (!controller.signal.aborted || !isAbort(error)) this.reset(error);
    }
  }

  private receive(line: Line): void {
    if (line.stream) {
      this.identity = line.stream;
      this.change();
      return;
    }
    const entry = this.entries.get(line.id ?? '');
    if (!entry) return;
    if (line.end || line.error) this.entries.delete(line.id ?? '');
    entry.push(line);
  }

  /** The connection broke: every reader hears of it and opens its path again where it stopped. */
  private reset(error: unknown): void {
    this.controller?.abort();
    this.controller = undefined;
    this.identity = undefined;
    const status = error instanceof ApiError ? error.status : 0;
    const entries = [...this.entries.values()];
    this.entries.clear();
    this.opening = [];
    this.closing = [];
    const code = status === 404 ? 0 : status;
    for (const entry of entries) entry.push({ error: { code, reason: 'Unreachable', message: 'The server does not respond; trying again.' } });
  }
}

export const streams = new StreamClient();
