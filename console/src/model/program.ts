// The options of a job's program (`--lr 0.1`), its environment, image and resources, flat: what runs are compared by.
import type { Container, KubeObject } from '../api/objects';

const SHELLS = ['sh', 'bash', '/bin/sh', '/bin/bash'];

function podSpecs(job: KubeObject): { containers?: Container[] }[] {
  const spec = job.spec ?? {};
  switch (job.kind) {
    case 'Pod':
      return [spec];
    case 'Job':
      return [spec.template?.spec ?? {}];
    case 'JobSet':
      return (spec.replicatedJobs ?? []).map((each: { template?: { spec?: { template?: { spec?: object } } } }) => each.template?.spec?.template?.spec ?? {});
    case 'TrainJob':
      return [{ containers: [{ name: 'trainer', ...(spec.trainer ?? {}), resources: spec.trainer?.resourcesPerNode }] }];
    default:
      return Object.values((spec.pytorchReplicaSpecs ?? {}) as Record<string, { template?: { spec?: object } }>).map((each) => each.template?.spec ?? {});
  }
}

/** Words as a shell splits them, without expansions. */
export function splitWords(text: string): string[] {
  return [...text.matchAll(/(?:"((?:\\.|[^"\\])*)"|'([^']*)'|((?:\\.|[^\s\\'"])+))/g)].map((match) => match[1] ?? match[2] ?? match[3] ?? '');
}

export function settingsOf(job: KubeObject): Map<string, string> {
  const settings = new Map<string, string>();
  const container = podSpecs(job)[0]?.containers?.[0];
  if (!container) return settings;
  let words = [...(container.command ?? []), ...(container.args ?? [])];
  if (words.length === 3 && SHELLS.includes(words[0] ?? '') && words[1] === '-c') words = splitWords(words[2] ?? '');
  const others: string[] = [];
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] ?? '';
    const next = words[at + 1];
    if (/^--[^=]+=/.test(word)) settings.set(word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1));
    else if (/^--.+/.test(word) && next !== undefined && !next.startsWith('--')) {
      settings.set(word, next);
      at += 1;
    } else if (/^--.+/.test(word)) settings.set(word, 'true');
    else others.push(word);
  }
  settings.set('arguments', others.join(' '));
  settings.set('image', container.image ?? '');
  for (const each of container.env ?? []) if (each.value !== undefined) settings.set(`env ${each.name}`, each.value);
  for (const [name, value] of Object.entries({ ...container.resources?.limits, ...container.resources?.requests })) settings.set(name, String(value));
  return settings;
}

/** The settings in which jobs differ: a name and the value of each job. */
export function differences(jobs: KubeObject[]): { name: string; values: (string | undefined)[] }[] {
  const all = jobs.map(settingsOf);
  const names = [...new Set(all.flatMap((each) => [...each.keys()]))];
  return names
    .map((name) => ({ name, values: all.map((each) => each.get(name)) }))
    .filter(({ values }) => new Set(values).size > 1);
}
