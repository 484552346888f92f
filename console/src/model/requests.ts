// What a pod requests of its node, as the scheduler counts it.
import type { Container, Pod } from '../api/objects';
import { sum } from './quantity';

type Amounts = Record<string, number>;

/** A limit without a request is the request. */
const ofContainers = (containers: Container[]): Amounts => sum(containers.map((each) => ({ ...each.resources?.limits, ...each.resources?.requests })));

const combine = (a: Amounts, b: Amounts, how: (x: number, y: number) => number): Amounts =>
  Object.fromEntries([...new Set([...Object.keys(a), ...Object.keys(b)])].map((name) => [name, how(a[name] ?? 0, b[name] ?? 0)]));

const add = (x: number, y: number): number => x + y;

/** Init containers run one after the other beside the sidecars before them, so the largest of them counts, not their sum. */
export function requestsOf(pod: Pod): Amounts {
  const sidecars: Container[] = [];
  let starting: Amounts = {};
  for (const each of pod.spec.initContainers ?? []) {
    if (each.restartPolicy === 'Always') sidecars.push(each);
    starting = combine(starting, ofContainers(each.restartPolicy === 'Always' ? sidecars : [...sidecars, each]), Math.max);
  }
  const needed = combine(ofContainers([...pod.spec.containers, ...sidecars]), starting, Math.max);
  return combine(needed, sum([pod.spec.overhead]), add);
}
