// A job as a manifest again, under another name: without what the server and the controllers wrote into it.
import type { Json, KubeObject } from '../api/objects';

const CONTROLLER_LABELS = ['controller-uid', 'job-name', 'batch.kubernetes.io/controller-uid', 'batch.kubernetes.io/job-name'];
const OWN_ANNOTATIONS = ['kubectl.kubernetes.io/last-applied-configuration', 'batch.kubernetes.io/job-tracking', 'torchyard.dev/progress', 'torchyard.dev/trainer-status'];
const LETTERS = 'bcdfghjklmnpqrstvwxz2456789';
const SUFFIX = new RegExp(`-[${LETTERS}]{5}$`);

export function newName(name: string, random: () => number = Math.random): string {
  const suffix = Array.from({ length: 5 }, () => LETTERS[Math.floor(random() * LETTERS.length)]).join('');
  return `${name.replace(SUFFIX, '').slice(0, 57).replace(/-+$/, '')}-${suffix}`;
}

const without = (from: Record<string, string> | undefined, keys: string[]): Record<string, string> =>
  Object.fromEntries(Object.entries(from ?? {}).filter(([key]) => !keys.includes(key)));

/** The names of the ConfigMaps in which `yard run` keeps the files of a script. */
export const workspaceNames = (job: KubeObject): string[] => {
  const pattern = new RegExp(`"name":"(${escape(job.metadata.name)}-workspace(?:-\\d+)?)"`, 'g');
  return [...new Set([...JSON.stringify(job.spec ?? {}).matchAll(pattern)].map((match) => match[1] ?? ''))];
};

const escape = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

export function renamed(job: KubeObject, name: string): KubeObject {
  const { metadata } = job;
  const workspaces = workspaceNames(job);
  let text = JSON.stringify(job.spec ?? {});
  for (const old of workspaces) text = text.replaceAll(`"name":"${old}"`, `"name":"${name}${old.slice(metadata.name.length)}"`);
  const spec = JSON.parse(text) as Record<string, Json> & { template?: { metadata?: { labels?: Record<string, string> } }; runPolicy?: Record<string, Json> };
  delete spec['suspend'];
  if (spec.runPolicy) delete spec.runPolicy['suspend'];
  if (job.kind === 'Job') {
    if (!spec['manualSelector']) delete spec['selector'];
    delete spec['manualSelector'];
    const template = spec.template?.metadata;
    if (template?.labels) template.labels = without(template.labels, CONTROLLER_LABELS);
  }
  if (job.kind === 'Pod') for (const key of ['nodeName', 'ephemeralContainers', 'priority', 'preemptionPolicy']) delete spec[key];
  const labels = without(metadata.labels, CONTROLLER_LABELS);
  return {
    apiVersion: job.apiVersion ?? '',
    kind: job.kind ?? '',
    metadata: {
      name,
      namespace: metadata.namespace,
      annotations: { ...without(metadata.annotations, OWN_ANNOTATIONS), 'torchyard.dev/rerun-of': metadata.name },
      ...(Object.keys(labels).length ? { labels } : {}),
    } as unknown as KubeObject['metadata'],
    spec,
  };
}
