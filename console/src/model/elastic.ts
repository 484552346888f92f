// What an elastic job went through, read from the lines that its coordinator prints in its pod:
// `elastic: WorkerLost worker-1 died [step 40, detect_ms 3.2]`.

export interface ElasticEvent {
  seconds: number;
  reason: string;
  message: string;
  facts: Map<string, string>;
}

export interface Recovery {
  seconds: number; // when the cause was seen
  cause: string;
  lost: string[]; // messages about workers that were lost
  workers: number; // of the new world
  step: number;
  phases: [string, number][]; // name, milliseconds; in the order in which they happen
  total: number | undefined;
  done: boolean;
}

export interface Checkpoint {
  seconds: number;
  step: number;
  message: string;
}

// Neither quantifier can match what the one after it matches: the time is linear in the length of the line.
const EVENT = /^elastic: ([A-Z][A-Za-z]{2,40})(?: ([^[]*))?(?:\[([^\]]*)\])?$/;
const MAX_EVENTS = 2000;
const PHASES: [string, string][] = [
  ['detect_ms', 'detect'],
  ['leave_ms', 'leave'],
  ['agree_ms', 'agree'],
  ['form_ms', 'form the group'],
  ['sync_ms', 'exchange state'],
  ['first_step_ms', 'first step'],
];
const LOSSES = new Set(['WorkerLost', 'WorkerHung', 'WorkerKilled', 'WorkerExited']);

export function parseEvent(seconds: number, line: string): ElasticEvent | undefined {
  if (!line.startsWith('elastic: ') || line.length > 4000) return undefined;
  const match = EVENT.exec(line);
  if (!match) return undefined;
  const facts = new Map<string, string>();
  for (const pair of (match[3] ?? '').split(', ')) {
    const space = pair.indexOf(' ');
    if (space > 0) facts.set(pair.slice(0, space), pair.slice(space + 1));
  }
  return { seconds, reason: match[1] ?? '', message: (match[2] ?? '').trim(), facts };
}

const number = (event: ElasticEvent, name: string): number => Number(event.facts.get(name) ?? NaN);

/** Grows by log lines; the oldest events are dropped beyond a limit. */
export class ElasticLog {
  events: ElasticEvent[] = [];
  version = 0;

  add(seconds: number, line: string): void {
    const event = parseEvent(seconds, line);
    if (!event) return;
    this.events.push(event);
    if (this.events.length > MAX_EVENTS) this.events.splice(0, MAX_EVENTS / 10);
    this.version += 1;
  }

  /** The number of workers in the world, as steps. */
  workers(now: number): [number, number][] {
    const points: [number, number][] = [];
    for (const event of this.events) {
      const workers = number(event, 'workers');
      if (event.reason !== 'WorldBegan' || !Number.isFinite(workers)) continue;
      const before = points.at(-1);
      if (before) points.push([event.seconds, before[1]]);
      points.push([event.seconds, workers]);
    }
    const last = points.at(-1);
    if (last) {
      const end = this.events.find((event) => event.reason === 'JobFinished' || event.reason === 'JobFailed');
      points.push([Math.max(end?.seconds ?? now, last[0]), last[1]]);
    }
    return points;
  }

  /** Each change of the world with its phases, the newest last. */
  recoveries(): Recovery[] {
    const recoveries: Recovery[] = [];
    let lost: ElasticEvent[] = [];
    for (const event of this.events) {
      if (LOSSES.has(event.reason)) lost.push(event);
      else if (event.reason === 'WorldBegan') {
        const agree = number(event, 'agree_ms');
        recoveries.push({
          seconds: lost[0]?.seconds ?? event.seconds,
          cause: event.message,
          lost: lost.map((each) => each.message),
          workers: number(event, 'workers'),
          step: number(event, 'step'),
          phases: Number.isFinite(agree) ? [['agree', agree]] : [],
          total: undefined,
          done: false,
        });
        lost = [];
      } else if (event.reason === 'WorldFormed') {
        const recovery = recoveries.at(-1);
        if (recovery && !recovery.done) finish(recovery, event);
      }
    }
    return recoveries;
  }

  checkpoints(): Checkpoint[] {
    const saved = this.events.filter((event) => event.reason === 'CheckpointSaved');
    return saved.map((event) => ({ seconds: event.seconds, step: number(event, 'step'), message: event.message }));
  }

  /** How many workers were lost. */
  losses(): number {
    return this.events.filter((event) => event.reason === 'WorkerLost').length;
  }
}

function finish(recovery: Recovery, event: ElasticEvent): void {
  const known = new Map(PHASES);
  const durations = [...event.facts].filter(([name]) => name.endsWith('_ms') && name !== 'total_ms');
  const order = (name: string): number => {
    const index = PHASES.findIndex(([each]) => each === name);
    return index < 0 ? PHASES.length : index;
  };
  durations.sort(([a], [b]) => order(a) - order(b));
  const before = recovery.phases.filter(([name]) => !durations.some(([other]) => known.get(other) === name));
  recovery.phases = [...durations.map(([name, value]): [string, number] => [known.get(name) ?? name.replace(/_ms$/, '').replace(/_/g, ' '), Number(value)]), ...before].filter(([, value]) => Number.isFinite(value));
  const total = number(event, 'total_ms');
  recovery.total = Number.isFinite(total) ? total : undefined;
  recovery.done = true;
}
