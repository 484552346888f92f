// Nodes with their pods, and what both use.
import { useMemo } from 'preact/hooks';
import { checked } from '../api/collection';
import type { ApiError } from '../api/http';
import { NODE_METRICS, NODES, PODS, url } from '../api/kinds';
import { conditionsOf, type KubeObject, type Pod } from '../api/objects';
import { useCollection, useGet } from '../api/use';
import { parseQuantity } from '../model/quantity';
import { requestsOf } from '../model/requests';

export interface NodePod {
  name: string;
  namespace: string;
  node: string;
  phase: string;
  owner: { kind: string; name: string } | undefined;
  job: string;
  requests: Record<string, number>;
  images: { image: string; id: string }[];
  claims: string[];
}

export function toNodePod(object: KubeObject): NodePod {
  const pod = object as Pod;
  const owner = pod.metadata.ownerReferences?.find((each) => each.controller);
  const labels = pod.metadata.labels ?? {};
  const statuses = pod.status?.containerStatuses ?? [];
  return {
    name: pod.metadata.name,
    namespace: pod.metadata.namespace ?? '',
    node: pod.spec.nodeName ?? '',
    phase: pod.status?.phase ?? 'Pending',
    owner: owner ? { kind: owner.kind, name: owner.name } : undefined,
    job: labels['training.kubeflow.org/job-name'] ?? labels['jobset.sigs.k8s.io/jobset-name'] ?? owner?.name ?? pod.metadata.name,
    requests: requestsOf(pod),
    images: pod.spec.containers.map((each) => ({ image: each.image ?? '', id: statuses.find((one) => one.name === each.name)?.imageID ?? '' })),
    claims: (pod.spec.volumes ?? []).flatMap((volume: { persistentVolumeClaim?: { claimName: string } }) => volume.persistentVolumeClaim?.claimName ?? []),
  };
}

/** The names of its conditions that are true. */
export const trueConditions = (node: KubeObject): string[] =>
  conditionsOf(node).flatMap((each) => (each.status === 'True' ? [String(each.type)] : []));

export interface NodeImage {
  names?: string[];
  sizeBytes?: number;
}

/** The images that a node reports, each by the name that people use. */
export const imagesOf = (node: KubeObject): { name: string; size: number | undefined }[] =>
  ((node.status?.images ?? []) as NodeImage[]).flatMap(({ names, sizeBytes }) => {
    const name = names?.find((each) => !each.includes('@')) ?? names?.[0];
    return name ? [{ name, size: sizeBytes }] : [];
  });

/** All pages that show nodes share one list. */
export const toNode = checked((node) => [nodeUse(node, { pods: [], usage: new Map() }), trueConditions(node), imagesOf(node)]);

interface NodeMetrics {
  items?: { metadata: { name: string }; usage?: Record<string, string> }[];
}

export interface Nodes {
  rows: KubeObject[];
  pods: NodePod[];
  usage: Map<string, Record<string, string>>;
  error: ApiError | undefined;
  podsError: ApiError | undefined;
  loaded: boolean;
}

export function useNodes(): Nodes {
  const nodes = useCollection(NODES, toNode);
  const pods = useCollection(PODS, toNodePod);
  const metrics = useGet<NodeMetrics>(url(NODE_METRICS), 5000);
  return useMemo(() => {
    const usage = new Map((metrics.value?.items ?? []).map((each) => [each.metadata.name, each.usage ?? {}]));
    return { rows: [...nodes.items.values()], pods: [...pods.items.values()], usage, error: nodes.error, podsError: pods.loaded ? undefined : pods.error, loaded: nodes.loaded };
  }, [nodes.version, pods.version, metrics.value]);
}

export interface ResourceUse {
  resource: string;
  requested: number;
  used: number | undefined;
  total: number;
}

const SHOWN = /^(cpu|memory|nvidia\.com\/.*|amd\.com\/.*|.*\/gpu.*)$/;

/** What pods that have not ended request, and what metrics.k8s.io measures, of the allocatable resources. */
export function nodeUse(node: KubeObject, nodes: Pick<Nodes, 'pods' | 'usage'>): ResourceUse[] {
  const own = nodes.pods.filter((pod) => pod.node === node.metadata.name && pod.phase !== 'Succeeded' && pod.phase !== 'Failed');
  const usage = nodes.usage.get(node.metadata.name);
  const allocatable = (node.status?.allocatable ?? {}) as Record<string, string>;
  const amounts = Object.entries(allocatable).map(([resource, text]): [string, number] => [resource, parseQuantity(text)]);
  return amounts.filter(([resource, total]) => SHOWN.test(resource) && Number.isFinite(total)).map(([resource, total]) => ({
    resource,
    total,
    requested: own.reduce((all, pod) => all + (pod.requests[resource] ?? 0), 0),
    used: usage?.[resource] === undefined ? undefined : parseQuantity(usage[resource]),
  }));
}
