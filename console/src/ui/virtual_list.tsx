// A list that draws only the rows in sight: ten thousand rows cost as much as fifty.
import type { ComponentChildren, JSX, Ref } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';

const OVERSCAN = 5;

export interface VirtualListProps {
  count: number;
  rowHeight: number;
  label: string;
  class?: string;
  header?: ComponentChildren;
  headerHeight?: number;
  /** `slot` is the key of the row: rows that leave the window give their elements to those that enter it. */
  render: (index: number, top: number, slot: number) => JSX.Element;
  /** What `render` depends on. Rows are drawn again only if one of these changes, not while the list scrolls. */
  depends: unknown[];
  /** A row to bring into sight; the number after it repeats the wish. */
  reveal?: { index: number; turn: number } | undefined;
  /** Stay at the end while the list grows. */
  follow?: boolean;
  onFollow?: (atEnd: boolean) => void;
  listRef?: Ref<HTMLDivElement>;
  minWidth?: number;
  /** The columns of a grid, for the header and all rows: `--columns` of the list, and no style of each row. */
  columns?: string;
}

export function VirtualList(props: VirtualListProps): JSX.Element {
  const { count, rowHeight, headerHeight = 0, reveal, follow = false, onFollow } = props;
  const own = useRef<HTMLDivElement>(null);
  const ref = (props.listRef as { current: HTMLDivElement | null } | undefined) ?? own;
  const [window_, setWindow] = useState({ top: 0, height: 600 });
  const followed = useRef(0);

  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return undefined;
    const measure = (): void => setWindow({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    let frame = 0;
    const scrolled = (): void => {
      if (frame) return;
      frame = requestAnimationFrame(() => {
        frame = 0;
        measure();
        const atEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - 2 * rowHeight;
        // Scrolling up by hand ends following; our own scrolling to the end does not.
        if (onFollow && element.scrollTop < followed.current - rowHeight) onFollow(false);
        else if (onFollow && atEnd) onFollow(true);
        followed.current = element.scrollTop;
      });
    };
    element.addEventListener('scroll', scrolled, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', scrolled);
      cancelAnimationFrame(frame);
    };
  }, [rowHeight, onFollow]);

  useLayoutEffect(() => {
    const element = ref.current;
    if (!element || !follow) return;
    element.scrollTop = element.scrollHeight;
    followed.current = element.scrollTop;
  }, [count, follow]);

  useEffect(() => {
    const element = ref.current;
    if (!element || !reveal || reveal.index < 0) return;
    const top = reveal.index * rowHeight;
    const visible = element.clientHeight - headerHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + rowHeight > element.scrollTop + visible) element.scrollTop = top - visible + 2 * rowHeight;
  }, [reveal?.index, reveal?.turn]);

  const first = Math.max(0, Math.floor(window_.top / rowHeight) - OVERSCAN);
  const last = Math.min(count, Math.ceil((window_.top + window_.height) / rowHeight) + OVERSCAN);
  const rows: JSX.Element[] = [];
  // As many slots as rows fit, so that no two rows of a window share one.
  const slots = Math.ceil(window_.height / rowHeight) + 2 * OVERSCAN + 1;
  // Preact leaves an element alone if it gets the same object again.
  const cache = useMemo(() => new Map<number, JSX.Element>(), [...props.depends, slots]);
  for (let index = first; index < last; index += 1) {
    const row = cache.get(index) ?? props.render(index, index * rowHeight, index % slots);
    cache.set(index, row);
    rows.push(row);
  }
  for (const index of cache.keys()) if (index < first || index >= last) cache.delete(index);
  const size = { height: `${count * rowHeight}px`, ...(props.minWidth ? { minWidth: `${props.minWidth}px` } : {}) };
  const grid = props.columns ? { '--columns': props.columns, '--width': `${props.minWidth ?? 0}px` } : {};
  return (
    <div ref={ref} style={grid} class={`vlist ${props.class ?? ''}`} tabIndex={0} role="region" aria-label={props.label}>
      {props.header}
      <div class="vspace" style={size}>{rows}</div>
    </div>
  );
}
