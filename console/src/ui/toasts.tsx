// Short messages about what an action did.
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';

interface Toast {
  id: number;
  text: string;
  failed: boolean;
}

let toasts: Toast[] = [];
let count = 0;
const listeners = new Set<() => void>();

function change(next: Toast[]): void {
  toasts = next;
  for (const listener of listeners) listener();
}

export function toast(text: string, failed = false): void {
  const id = (count += 1);
  change([...toasts, { id, text, failed }].slice(-4));
  setTimeout(() => change(toasts.filter((each) => each.id !== id)), failed ? 12_000 : 5000);
}

export function Toasts(): JSX.Element {
  const [, draw] = useState(0);
  useEffect(() => {
    const listener = (): void => draw((turn) => turn + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.map((each) => (
        <div key={each.id} class={`notice ${each.failed ? 'failed' : 'running'}`}>{each.text}</div>
      ))}
    </div>
  );
}
