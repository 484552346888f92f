// Times and durations as people read them.

export const toMs = (time: string | undefined): number | undefined => {
  const ms = time ? Date.parse(time) : NaN;
  return Number.isNaN(ms) ? undefined : ms;
};

/** `42s`, `3m07s`, `2h05m`, `4d03h`, as kubectl writes ages. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const two = (value: number): string => String(value).padStart(2, '0');
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m${two(seconds % 60)}s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h${two(Math.floor(seconds / 60) % 60)}m`;
  return `${Math.floor(seconds / 86_400)}d${two(Math.floor(seconds / 3600) % 24)}h`;
}

const clockFormat = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const dateFormat = new Intl.DateTimeFormat('en-GB', { day: '2-digit', month: 'short', year: 'numeric' });

/** With milliseconds, for lines of a log. */
export const preciseClock = (ms: number): string => `${clockFormat.format(ms)}.${String(Math.floor(ms) % 1000).padStart(3, '0')}`;
export const clock = (ms: number): string => clockFormat.format(ms);
export const dateTime = (ms: number): string => `${dateFormat.format(ms)}, ${clock(ms)}`;
