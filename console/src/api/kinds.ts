// The resources that the pages read, and their URLs.

export interface Resource {
  kind: string;
  group: string;
  version: string;
  plural: string;
  namespaced: boolean;
}

const resource = (kind: string, group: string, version: string, plural: string, namespaced = true): Resource => ({
  kind,
  group,
  version,
  plural,
  namespaced,
});

export const PYTORCHJOBS = resource('PyTorchJob', 'kubeflow.org', 'v1', 'pytorchjobs');
export const TRAINJOBS = resource('TrainJob', 'trainer.kubeflow.org', 'v1alpha1', 'trainjobs');
export const JOBSETS = resource('JobSet', 'jobset.x-k8s.io', 'v1alpha2', 'jobsets');
export const JOBS = resource('Job', 'batch', 'v1', 'jobs');
export const PODS = resource('Pod', '', 'v1', 'pods');
export const EVENTS = resource('Event', '', 'v1', 'events');
export const NODES = resource('Node', '', 'v1', 'nodes', false);
export const NAMESPACES = resource('Namespace', '', 'v1', 'namespaces', false);
export const CLAIMS = resource('PersistentVolumeClaim', '', 'v1', 'persistentvolumeclaims');
export const VOLUMES = resource('PersistentVolume', '', 'v1', 'persistentvolumes', false);
export const CONFIG_MAPS = resource('ConfigMap', '', 'v1', 'configmaps');
export const WORKLOADS = resource('Workload', 'kueue.x-k8s.io', 'v1beta2', 'workloads');
export const LOCAL_QUEUES = resource('LocalQueue', 'kueue.x-k8s.io', 'v1beta2', 'localqueues');
export const CLUSTER_QUEUES = resource('ClusterQueue', 'kueue.x-k8s.io', 'v1beta2', 'clusterqueues', false);
export const POD_METRICS = resource('PodMetrics', 'metrics.k8s.io', 'v1beta1', 'pods');
export const NODE_METRICS = resource('NodeMetrics', 'metrics.k8s.io', 'v1beta1', 'nodes', false);

export const JOB_KINDS: readonly Resource[] = [PYTORCHJOBS, TRAINJOBS, JOBSETS, JOBS, PODS];

/** `pytorchjobs.kubeflow.org`, as kubectl writes it. */
export const qualified = (of: Resource): string => (of.group ? `${of.plural}.${of.group}` : of.plural);

export const findKind = (name: string): Resource | undefined => JOB_KINDS.find((kind) => qualified(kind) === name);

export function url(of: Resource, namespace = '', name = '', subresource = ''): string {
  const base = of.group ? `k8s/apis/${of.group}/${of.version}` : `k8s/api/${of.version}`;
  const scope = of.namespaced && namespace ? `/namespaces/${encodeURIComponent(namespace)}` : '';
  const tail = (name ? `/${encodeURIComponent(name)}` : '') + (subresource ? `/${subresource}` : '');
  return `${base}${scope}/${of.plural}${tail}`;
}
