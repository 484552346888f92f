// Small parts that every page uses.
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Collection } from '../api/collection';
import type { ApiError } from '../api/http';
import type { Phase } from '../model/state';
import { useView } from '../session';

const MARKS: Record<Phase, string> = { running: '●', succeeded: '✓', failed: '✕', waiting: '◷' };

export const State = ({ word, phase }: { word: string; phase: Phase }): JSX.Element => (
  <span class={`state ${phase}`}>
    <span aria-hidden="true">{MARKS[phase]}</span>
    {word}
  </span>
);

/** A share of something; the text says the numbers, because a colour alone says nothing to some. */
export function Bar({ share, label }: { share: number; label: string }): JSX.Element {
  const percent = Math.max(0, Math.min(100, share * 100));
  const tone = share >= 1 ? 'full' : share >= 0.8 ? 'warm' : '';
  return (
    <div class="bar" role="meter" aria-label={label} aria-valuenow={Math.round(percent)} aria-valuemin={0} aria-valuemax={100}>
      <i class={tone} style={{ width: `${percent}%` }} />
    </div>
  );
}

export const Empty = ({ children }: { children: ComponentChildren }): JSX.Element => <p class="empty">{children}</p>;

export function Failure({ error, what }: { error: ApiError | undefined; what: string }): JSX.Element | null {
  const { namespace } = useView();
  if (!error) return null;
  const hint = namespace ? 'Ask for the right.' : 'Choose a namespace in which you may, or ask for the right.';
  return (
    <p class="notice failed" role="alert">
      {what}: {error.message}{error.status === 403 && `${/[.!]$/.test(error.message) ? '' : '.'} ${hint}`}
    </p>
  );
}

export const Loading = ({ of }: { of: { loaded: boolean; error?: ApiError | undefined } }): JSX.Element | null =>
  of.loaded || of.error ? null : <p class="empty" role="status">Loading…</p>;

/** What a table leaves out: a list without this line looks complete. */
export const Rest = ({ of, shown }: { of: number; shown: number }): JSX.Element | null =>
  of > shown ? <p class="muted" role="status">and {(of - shown).toLocaleString('en')} more</p> : null;

export const failuresOf = (collections: Collection<unknown>[]): ApiError[] => {
  const errors = collections.flatMap((each) => (each.error ? [each.error] : []));
  return errors.filter((error, index) => errors.findIndex((other) => other.message === error.message) === index);
};

/** Keeps the current one of a row of links in sight: a phone shows only a part of the row. */
export function useCurrentInSight(current: string): { current: HTMLElement | null } {
  const row = useRef<HTMLElement>(null);
  useEffect(() => {
    row.current?.querySelector('[aria-current=page]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [current]);
  return row;
}

interface DialogProps {
  title: string;
  wide?: boolean;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, wide, onClose, children }: DialogProps): JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    // The dialog leaves the page without being closed, so the browser does not give the focus back.
    const before = document.activeElement;
    ref.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog ref={ref} class={wide ? 'wide' : ''} aria-label={title} onClose={onClose} onCancel={onClose}>
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}
