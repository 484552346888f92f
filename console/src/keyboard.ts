// Keys as in k9s. Pages register what a key does while they are shown; the help lists it.
import { useEffect, useRef } from 'preact/hooks';

export interface Key {
  key: string;
  does: string;
  run: () => void;
}

let layers: { current: Key[] }[] = [];

export const activeKeys = (): Key[] => {
  const known = new Map<string, Key>();
  for (const layer of layers) for (const key of layer.current) known.set(key.key, key);
  return [...known.values()];
};

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName));

const isSearch = (target: EventTarget | null): boolean => target instanceof HTMLInputElement && target.type === 'search';

export function listenToKeys(): void {
  window.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    if (isTyping(event.target)) {
      // Enter keeps what was searched for, Escape clears it (the browser does).
      if (event.key === 'Escape' || (event.key === 'Enter' && isSearch(event.target))) (event.target as HTMLElement).blur();
      return;
    }
    const key = activeKeys().find((each) => each.key === event.key);
    if (!key || (event.key === 'Enter' && event.target instanceof HTMLElement && event.target.closest('a,button'))) return;
    event.preventDefault();
    key.run();
  });
}

/** The keys of the latest rendering count: one that follows another at once acts on what is shown, not on what was. */
export function useKeys(keys: Key[]): void {
  const layer = useRef(keys);
  layer.current = keys;
  useEffect(() => {
    layers = [...layers, layer];
    return () => {
      layers = layers.filter((each) => each !== layer);
    };
  }, []);
}
