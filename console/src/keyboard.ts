// Keys as in k9s. Pages register what a key does while they are shown; the help lists it.
import { useEffect } from 'preact/hooks';

export interface Key {
  key: string;
  does: string;
  run: () => void;
}

let layers: Key[][] = [];

export const activeKeys = (): Key[] => {
  const known = new Map<string, Key>();
  for (const layer of layers) for (const key of layer) known.set(key.key, key);
  return [...known.values()];
};

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName));

export function listenToKeys(): void {
  window.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    if (isTyping(event.target)) {
      if (event.key === 'Escape') (event.target as HTMLElement).blur();
      return;
    }
    const key = activeKeys().find((each) => each.key === event.key);
    if (!key || (event.key === 'Enter' && event.target instanceof HTMLElement && event.target.closest('a,button'))) return;
    event.preventDefault();
    key.run();
  });
}

export function useKeys(keys: Key[]): void {
  useEffect(() => {
    layers = [...layers, keys];
    return () => {
      layers = layers.filter((layer) => layer !== keys);
    };
  });
}
