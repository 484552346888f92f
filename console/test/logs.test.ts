import { describe, expect, it } from 'vitest';
import { Resume } from '../src/logs/follow';
import { cleanLine, isError, LogStore, parseLine } from '../src/logs/store';

const line = (time: number, source: number, text = `${source}@${time}`) => ({ time, source, text, error: isError(text) });
const texts = (store: LogStore): string[] => store.view.map((each) => each.text);

describe('merged logs', () => {
  it('sorts the lines of several sources by time, also when one is late', () => {
    const store = new LogStore();
    [line(1, 0), line(3, 0), line(2, 1)].forEach((each) => store.add(each));
    store.flush();
    [line(2.5, 1), line(4, 0)].forEach((each) => store.add(each));
    store.flush();
    expect(texts(store)).toEqual(['0@1', '1@2', '1@2.5', '0@3', '0@4']);
  });

  it('keeps the order of lines with equal times', () => {
    const store = new LogStore();
    ['a', 'b', 'c'].forEach((text) => store.add(line(1, 0, text)));
    store.flush();
    ['d', 'e'].forEach((text) => store.add(line(1, 0, text)));
    store.flush();
    expect(texts(store)).toEqual(['a', 'b', 'c', 'd', 'e']);
  });

  it('filters by source and text, and what arrives later too', () => {
    const store = new LogStore();
    store.add(line(1, 0, 'Loss 1'));
    store.add(line(2, 1, 'loss 2'));
    store.flush();
    store.setFilter({ text: 'LOSS', regex: false, sources: new Set([1]) });
    store.add(line(3, 1, 'other'));
    store.add(line(4, 1, 'loss 4'));
    store.flush();
    expect(texts(store)).toEqual(['loss 2', 'loss 4']);
    store.setFilter({ text: 'loss [14]', regex: true, sources: undefined });
    expect(texts(store)).toEqual(['Loss 1', 'loss 4']);
    store.setFilter({ text: 'loss [', regex: true, sources: undefined });
    expect(texts(store)).toEqual([]);
  });

  it('drops the oldest lines above its limit and says how many', () => {
    const store = new LogStore(100);
    for (let time = 0; time < 1000; time += 1) {
      store.add(line(time, 0));
      store.flush();
    }
    expect(store.lines.length).toBeLessThanOrEqual(110);
    expect(store.lines.length + store.dropped).toBe(1000);
    expect(store.view).toEqual(store.lines);
  });

  it('keeps fewer lines if they are long', () => {
    const store = new LogStore(100, 10_000);
    for (let time = 0; time < 100; time += 1) store.add(line(time, 0, 'x'.repeat(1000)));
    store.flush();
    expect(store.lines.length).toBe(9);
    expect(store.lines.length + store.dropped).toBe(100);
    store.add(line(200, 0, 'x'.repeat(50_000))); // longer than all that is kept
    store.flush();
    expect(store.lines.length).toBe(1);
    expect(store.view).toEqual(store.lines);
  });

  it('finds the first error', () => {
    const store = new LogStore();
    ['fine', 'no errors here', 'Traceback (most recent call last):', 'ValueError: x'].forEach((text, time) => store.add(line(time, 0, text)));
    store.flush();
    expect(store.firstError()).toBe(2);
  });
});

describe('lines', () => {
  it('reads the time with its fraction', () => {
    const read = parseLine('2026-01-02T03:04:05.123456789Z hello world', 2, 0);
    expect(read.time).toBeCloseTo(Date.parse('2026-01-02T03:04:05Z') + 123.456789, 3);
    expect(read.text).toBe('hello world');
  });
  it('takes a line without a time as it is', () => expect(parseLine('hello', 0, 7)).toMatchObject({ time: 7, text: 'hello' }));
  it('removes escape sequences and keeps what a progress bar drew last', () => {
    expect(cleanLine('\u001b[31mred\u001b[0m')).toBe('red');
    expect(cleanLine(' 1%|\r 50%|\r100%|\r')).toBe('100%|');
  });
});

it('continues a log behind its last line', () => {
  const resume = new Resume();
  const read = (times: number[]): number[] => times.filter((time) => resume.isNew(time));
  expect(resume.since).toBeUndefined();
  expect(read([1000, 1000, 1500, 1500])).toEqual([1000, 1000, 1500, 1500]);
  resume.reconnect();
  expect(resume.since).toBe('1970-01-01T00:00:01.000Z');
  expect(read([1000, 1000, 1500, 1500, 1500, 1600])).toEqual([1500, 1600]);
});

it('shows lines whose time goes back, and the rest of a line that the server has split', () => {
  const resume = new Resume();
  const read = (times: number[]): number[] => times.filter((time) => resume.isNew(time));
  expect(read([5000, 4000, 4500])).toEqual([5000, 4000, 4500]); // the clock of the node was set back
  expect(resume.timeOr(9_000_000)).toBe(4500);
  expect(read([resume.timeOr(9_000_000), 4600])).toEqual([4500, 4600]);
  resume.reconnect();
  expect(resume.since).toBe('1970-01-01T00:00:04.000Z');
  expect(read([4000, 4500, 4500, 4600, 4700])).toEqual([4700]);
});
