// Requests to the server that serves the pages. URLs are relative, so that the pages work below any prefix.
import { noteServerTime } from './clock';
import { currentProof, readProof } from './proof';

export interface StatusBody {
  message?: string;
  reason?: string;
  code?: number;
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

// A page of another origin cannot send these headers without a preflight, which the server refuses.
const HEADER = { 'X-Torchyard-Console': '1' };
const PROOF = 'X-Torchyard-Console-Proof';

let onSignedOut = (): void => {};

/** Call `handler` when the server no longer knows the user. */
export function whenSignedOut(handler: () => void): void {
  onSignedOut = handler;
}

export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  const proof = await currentProof();
  let response = await request(path, init, proof);
  if (response.status === 401) {
    const newer = await readProof(); // another window may have signed in meanwhile
    if (newer && newer !== proof) response = await request(path, init, newer);
  }
  if (response.ok) return response;
  if (response.status === 401) onSignedOut();
  throw await toError(response);
}

async function request(path: string, init: RequestInit, proof: string): Promise<Response> {
  const headers = { ...HEADER, ...(proof ? { [PROOF]: proof } : {}), ...(init.headers as Record<string, string> | undefined) };
  try {
    const response = await fetch(path, { ...init, headers, credentials: 'same-origin', cache: 'no-store' });
    // Other responses have the time of the process that serves the pages.
    if (path.startsWith('k8s/')) noteServerTime(response.headers.get('Date'));
    return response;
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiError(0, 'Unreachable', 'The server of the console does not respond.');
  }
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await send(path, { headers: { Accept: 'application/json' }, signal: signal ?? null });
  return (await response.json()) as T;
}

async function toError(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => '');
  try {
    const body = JSON.parse(text) as StatusBody;
    return new ApiError(response.status, body.reason ?? '', body.message ?? response.statusText);
  } catch {
    return new ApiError(response.status, '', text.trim() || `${response.status} ${response.statusText}`);
  }
}

export const isAbort = (error: unknown): boolean => error instanceof DOMException && error.name === 'AbortError';

/** The lines of a response as they arrive; the last one without a line end too. */
export async function* readLines(response: Response): AsyncGenerator<string[], void> {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      const lines = rest.split('\n');
      rest = done ? '' : (lines.pop() ?? '');
      if (done && lines.at(-1) === '') lines.pop();
      if (lines.length) yield lines;
      if (done) return;
    }
  } finally {
    void reader.cancel().catch(() => {});
  }
}
