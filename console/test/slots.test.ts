import { describe, expect, it } from 'vitest';
import { LogSlots, type Slot, tailOf } from '../src/logs/slots';

const never = new AbortController().signal;

/** The logs that have a slot, in the order in which they got it. */
async function acquireAll(slots: LogSlots, keys: string[]): Promise<{ granted: string[]; slotOf: Map<string, Slot> }> {
  const granted: string[] = [];
  const slotOf = new Map<string, Slot>();
  for (const key of keys) {
    void slots.acquire(key, never).then((slot) => {
      granted.push(key);
      if (slot) slotOf.set(key, slot);
    });
  }
  await settle();
  return { granted, slotOf };
}

const settle = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
};

describe('the slots of logs', () => {
  it('are given in order, and to the next one when a log has ended', async () => {
    const slots = new LogSlots(2);
    const { granted, slotOf } = await acquireAll(slots, ['a', 'b', 'c', 'd']);
    expect(granted).toEqual(['a', 'b']);
    slotOf.get('b')?.release();
    slotOf.get('b')?.release(); // twice is once
    await settle();
    expect(granted).toEqual(['a', 'b', 'c']);
  });

  it('go to the log that is wanted, and back', async () => {
    const slots = new LogSlots(2);
    const { granted, slotOf } = await acquireAll(slots, ['a', 'b', 'c', 'd']);
    slots.want(new Set(['d']));
    await settle();
    expect(granted).toEqual(['a', 'b', 'd']);
    expect(slotOf.get('a')?.signal.aborted).toBe(true);
    expect(slotOf.get('b')?.signal.aborted).toBe(false);
    slots.want(new Set());
    slotOf.get('d')?.release();
    await settle();
    expect(granted).toEqual(['a', 'b', 'd', 'c']);
  });

  it('are not given to a log whose page was left', async () => {
    const slots = new LogSlots(1);
    const first = await slots.acquire('a', never);
    const leave = new AbortController();
    const second = slots.acquire('b', leave.signal);
    leave.abort();
    expect(await second).toBeUndefined();
    expect(await slots.acquire('b', leave.signal)).toBeUndefined();
    first?.release();
    expect(await slots.acquire('c', never)).toBeDefined();
  });
});

describe('the first lines of many logs', () => {
  it('are fewer, so that the page does not read what it drops', () => {
    expect([1, 20, 50, 500].map(tailOf)).toEqual([5000, 5000, 2000, 500]);
  });
});
