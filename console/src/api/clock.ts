// The time of the API server. Ages and durations are differences to times that it wrote, and the clock of the browser may
// be minutes away from it.

// A `Date` header has whole seconds, and a response takes time: a smaller difference is not a difference of the clocks.
const TOLERANCE_MS = 5000;

let offset = 0;

/** Compares the `Date` of a response with the time at which it arrived. */
export function noteServerTime(date: string | null, arrived = Date.now()): void {
  const time = Date.parse(date ?? '');
  if (Number.isNaN(time)) return;
  const difference = time - arrived;
  offset = Math.abs(difference) > TOLERANCE_MS ? difference : 0;
}

export const serverNow = (): number => Date.now() + offset;
