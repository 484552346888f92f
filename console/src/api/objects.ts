// Kubernetes objects as the pages read them: every field may be missing.

export interface OwnerReference {
  apiVersion?: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
}

export interface Metadata {
  name: string;
  namespace?: string;
  uid: string;
  resourceVersion?: string;
  creationTimestamp: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: OwnerReference[];
  generateName?: string;
  [field: string]: unknown;
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

// The kinds differ too much for one exact type; what the pages read of them is checked where it is read.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Fields = any;

export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: Metadata;
  spec?: Fields;
  status?: Fields;
  [field: string]: unknown;
}

export interface Terminated {
  exitCode: number;
  reason?: string;
  message?: string;
  startedAt?: string;
  finishedAt?: string;
}

export interface ContainerStatus {
  name: string;
  ready?: boolean;
  restartCount?: number;
  image?: string;
  imageID?: string;
  state?: ContainerState;
  lastState?: ContainerState;
}

export interface ContainerState {
  waiting?: { reason?: string; message?: string };
  running?: { startedAt?: string };
  terminated?: Terminated;
}

export interface Container {
  name: string;
  image?: string;
  command?: string[];
  args?: string[];
  /** `Always` makes an init container a sidecar. */
  restartPolicy?: string;
  env?: { name: string; value?: string; valueFrom?: Fields }[];
  resources?: { limits?: Record<string, string>; requests?: Record<string, string> };
}

export interface Pod extends KubeObject {
  spec: {
    nodeName?: string;
    containers: Container[];
    initContainers?: Container[];
    overhead?: Record<string, string>;
    volumes?: Fields[];
  };
  status?: {
    phase?: string;
    message?: string;
    reason?: string;
    startTime?: string;
    conditions?: Condition[];
    containerStatuses?: ContainerStatus[];
    initContainerStatuses?: ContainerStatus[];
  };
}

export const conditionsOf = (object: KubeObject): Condition[] =>
  (object.status as { conditions?: Condition[] } | undefined)?.conditions ?? [];

export const findCondition = (object: KubeObject, type: string): Condition | undefined =>
  conditionsOf(object).find((condition) => condition.type === type);

export const isTrue = (object: KubeObject, type: string): boolean => findCondition(object, type)?.status === 'True';

export const hasController = (object: KubeObject): boolean =>
  (object.metadata.ownerReferences ?? []).some((owner) => owner.controller);

export const keyOf = (object: KubeObject): string => `${object.metadata.namespace ?? ''}/${object.metadata.name}`;
