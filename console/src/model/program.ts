// The options of a job's program (`--lr 0.1`), its environment, image and resources, flat: what runs are compared by.
import type { Container, KubeObject } from '../api/objects';

const PREFIX = ': ';
const SHELLS = ['sh', 'bash', '/bin/sh', '/bin/bash'];

type PodSpec = { containers?: Container[] | null };
type Template = { spec?: PodSpec } | undefined;

/** The pods of a job by the name of their part: `Master`, `Worker`; the only part of a job has no name. */
function podSpecs(job: KubeObject): [string, PodSpec][] {
  const spec = job.spec ?? {};
  switch (job.kind) {
    case 'Pod':
      return [['', spec]];
    case 'Job':
      return [['', spec.template?.spec ?? {}]];
    case 'JobSet':
      return (spec.replicatedJobs ?? []).map((each: { name?: string; template?: { spec?: { template?: Template } } }) => [each.name ?? '', each.template?.spec?.template?.spec ?? {}]);
    case 'TrainJob':
      return [['', { containers: [{ name: 'trainer', ...(spec.trainer ?? {}), resources: spec.trainer?.resourcesPerNode }] }]];
    default:
      return Object.entries((spec.pytorchReplicaSpecs ?? {}) as Record<string, { template?: Template } | null>).map(([type, each]) => [type, each?.template?.spec ?? {}]);
  }
}

/** How many replicas each part has, and what a TrainJob runs in. */
function shapeOf(job: KubeObject): [string, string][] {
  const spec = job.spec ?? {};
  const counts: [string, unknown][] = [];
  if (job.kind === 'Job') counts.push(['parallelism', spec.parallelism ?? 1], ['completions', spec.completions]);
  if (job.kind === 'TrainJob') counts.push(['nodes', spec.trainer?.numNodes ?? 1], ['processes per node', spec.trainer?.numProcPerNode], ['runtime', spec.runtimeRef?.name]);
  for (const each of (job.kind === 'JobSet' ? spec.replicatedJobs : undefined) ?? []) {
    counts.push([`${each.name}: replicas`, each.replicas ?? 1], [`${each.name}: parallelism`, each.template?.spec?.parallelism ?? 1]);
  }
  for (const [type, each] of Object.entries((spec.pytorchReplicaSpecs ?? {}) as Record<string, { replicas?: number } | null>)) counts.push([`${type}: replicas`, each?.replicas ?? 1]);
  return counts.flatMap(([name, value]) => (value === undefined ? [] : [[name, String(value)]]));
}

/** Words as a shell splits them, without expansions. */
export function splitWords(text: string): string[] {
  return [...text.matchAll(/(?:"((?:\\.|[^"\\])*)"|'([^']*)'|((?:\\.|[^\s\\'"])+))/g)].map((match) => match[1] ?? match[2] ?? match[3] ?? '');
}

export function settingsOf(job: KubeObject): Map<string, string> {
  const settings = new Map<string, string>(shapeOf(job));
  let isFirst = true;
  for (const [part, spec] of podSpecs(job)) {
    for (const [index, container] of (spec.containers ?? []).entries()) {
      const prefix = isFirst ? '' : `${[part, index ? container.name : ''].filter(Boolean).join(' ')}${PREFIX}`;
      isFirst = false;
      for (const [name, value] of containerSettings(container)) settings.set(prefix + name, value);
    }
  }
  return settings;
}

function containerSettings(container: Container): Map<string, string> {
  const settings = new Map<string, string>();
  const add = (name: string, value: string): void => {
    const before = settings.get(name);
    settings.set(name, before === undefined ? value : `${before} ${value}`); // an option that is given several times
  };
  let words = [...(container.command ?? []), ...(container.args ?? [])];
  if (words.length === 3 && SHELLS.includes(words[0] ?? '') && words[1] === '-c') words = splitWords(words[2] ?? '');
  const others: string[] = [];
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] ?? '';
    const next = words[at + 1];
    if (/^--[^=]+=/.test(word)) add(word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1));
    else if (/^--.+/.test(word) && next !== undefined && !next.startsWith('--')) {
      add(word, next);
      at += 1;
    } else if (/^--.+/.test(word)) add(word, 'true');
    else others.push(word);
  }
  settings.set('arguments', others.join(' '));
  settings.set('image', container.image ?? '');
  for (const each of container.env ?? []) settings.set(`env ${each.name}`, each.value ?? (each.valueFrom ? JSON.stringify(each.valueFrom) : ''));
  for (const part of ['requests', 'limits'] as const) {
    for (const [name, value] of Object.entries(container.resources?.[part] ?? {})) settings.set(`${part} ${name}`, String(value));
  }
  return settings;
}

/** Whether a part of a job, if it has this part, has the same setting as the first container: a second line says nothing new. */
function isLikeFirst(settings: Map<string, string>, name: string): boolean {
  const at = name.indexOf(PREFIX);
  if (at < 0) return false;
  const part = name.slice(0, at + PREFIX.length);
  if (![...settings.keys()].some((each) => each.startsWith(part))) return true;
  return settings.get(name) === settings.get(name.slice(at + PREFIX.length));
}

/** The settings in which jobs differ: a name and the value of each job. */
export function differences(jobs: KubeObject[]): { name: string; values: (string | undefined)[] }[] {
  const all = jobs.map(settingsOf);
  const names = [...new Set(all.flatMap((each) => [...each.keys()]))];
  return names
    .map((name) => ({ name, values: all.map((each) => each.get(name)) }))
    .filter(({ name, values }) => new Set(values).size > 1 && !all.every((each) => isLikeFirst(each, name)));
}
