import { describe, expect, test } from 'vitest';
import { ElasticLog, parseEvent } from '../src/model/elastic';

const LINES: [number, string][] = [
  [1, 'elastic: WorkerJoined worker-0 joined [node a, pid 7]'],
  [2, 'elastic: WorldBegan 2 workers from step 0: all are here [workers 2, generation 1, step 0, urgent false, agree_ms 3.5]'],
  [3, 'elastic: WorldFormed generation 1 made its first step: agree_ms 3 ms [agree_ms 3, form_ms 40, sync_ms 5, first_step_ms 100, total_ms 148]'],
  [4, 'elastic: step 10/200 loss=0.5 records=320'],
  [9, 'elastic: WorkerLost worker-1 died [step 40, phase backward, detect_ms 12]'],
  [10, 'elastic: WorldBegan 1 workers from step 40: worker-1 died [workers 1, generation 2, step 40, urgent true, agree_ms 2]'],
  [11, 'elastic: WorldFormed generation 2 made its first step [detect_ms 12, leave_ms 1, agree_ms 2, form_ms 20, sync_ms 0, first_step_ms 30, total_ms 53]'],
  [12, 'elastic: CheckpointSaved step 50 is durable at /ckpt/step-50 [step 50, sha256 abc]'],
  [20, 'elastic: JobFinished 200 steps, model abc'],
];

describe('the events of the elastic runtime', () => {
  const log = new ElasticLog();
  for (const [seconds, line] of LINES) log.add(seconds, line);

  test('workers over time end with the job', () => {
    expect(log.workers(99)).toEqual([[2, 2], [10, 2], [10, 1], [20, 1]]);
  });
  test('a recovery has its cause, the lost workers and its phases in order', () => {
    const [first, second] = log.recoveries();
    expect(first).toMatchObject({ seconds: 2, workers: 2, step: 0, total: 148, done: true, lost: [] });
    expect(second).toMatchObject({ seconds: 9, workers: 1, step: 40, total: 53, lost: ['worker-1 died'] });
    expect(second?.phases).toEqual([['detect', 12], ['leave', 1], ['agree', 2], ['form the group', 20], ['exchange state', 0], ['first step', 30]]);
  });
  test('checkpoints and losses are counted', () => {
    expect(log.checkpoints()).toEqual([{ seconds: 12, step: 50, message: 'step 50 is durable at /ckpt/step-50' }]);
    expect(log.losses()).toBe(1);
  });
  test('other lines are no events', () => {
    for (const line of ['', 'elastic: step 3/4 loss=1', 'elastic: ', 'elastic: x', ' elastic: WorldBegan 1', 'elastic: WorldBegan a [b] c [d]']) {
      expect(parseEvent(0, line)).toBeUndefined();
    }
  });
  test('memory is bounded, and hostile lines cost little', () => {
    const many = new ElasticLog();
    for (let index = 0; index < 5000; index += 1) many.add(index, `elastic: WorldBegan x [workers ${index}]`);
    expect(many.events.length).toBeLessThanOrEqual(2000);
    // A pattern that backtracks would not end within the time of a test.
    for (const part of ['[', ']', ' ', 'A', ', ', '[a]']) {
      expect(parseEvent(0, `elastic: WorldBegan ${part.repeat(1300)}x]x`)?.facts.size ?? 0).toBe(0);
    }
  });
});
