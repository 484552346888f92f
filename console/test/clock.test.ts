import { afterEach, describe, expect, it, vi } from 'vitest';
import { noteServerTime, serverNow } from '../src/api/clock';

describe('the time of the server', () => {
  afterEach(() => {
    noteServerTime(new Date().toUTCString());
    vi.useRealTimers();
  });

  it('is followed when the clock of the browser is minutes away', () => {
    vi.useFakeTimers({ now: Date.parse('2026-01-01T12:00:00Z') });
    noteServerTime('Thu, 01 Jan 2026 12:10:00 GMT');
    expect(serverNow()).toBe(Date.parse('2026-01-01T12:10:00Z'));
    noteServerTime('Thu, 01 Jan 2026 11:30:00 GMT');
    expect(serverNow()).toBe(Date.parse('2026-01-01T11:30:00Z'));
  });

  it('is that of the browser when the difference may be that of a slow response, or the header is missing', () => {
    vi.useFakeTimers({ now: Date.parse('2026-01-01T12:00:00Z') });
    noteServerTime('Thu, 01 Jan 2026 11:59:57 GMT');
    noteServerTime(null);
    noteServerTime('yesterday');
    expect(serverNow()).toBe(Date.now());
  });
});
