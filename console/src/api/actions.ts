// What users do to jobs, and whether they may.
import { getJson, send } from './http';
import { type Resource, url } from './kinds';
import type { KubeObject } from './objects';

const MERGE = { 'Content-Type': 'application/merge-patch+json' };
const JSON_BODY = { 'Content-Type': 'application/json' };

export async function patch(kind: Resource, object: KubeObject, change: object): Promise<void> {
  const target = url(kind, object.metadata.namespace, object.metadata.name);
  await send(target, { method: 'PATCH', headers: MERGE, body: JSON.stringify(change) });
}

/** Deletes this object, not a later one of the same name. */
export async function remove(kind: Resource, object: KubeObject): Promise<void> {
  const target = url(kind, object.metadata.namespace, object.metadata.name);
  const body = JSON.stringify({ propagationPolicy: 'Background', preconditions: { uid: object.metadata.uid } });
  await send(target, { method: 'DELETE', headers: JSON_BODY, body });
}

/** The server reads YAML itself, so the pages need no parser for it. */
export async function createYaml(kind: Resource, namespace: string, text: string): Promise<KubeObject> {
  const response = await send(url(kind, namespace), { method: 'POST', headers: { 'Content-Type': 'application/yaml' }, body: text });
  return (await response.json()) as KubeObject;
}

export async function create(kind: Resource, namespace: string, object: unknown): Promise<KubeObject> {
  const response = await send(url(kind, namespace), { method: 'POST', headers: JSON_BODY, body: JSON.stringify(object) });
  return (await response.json()) as KubeObject;
}

export const get = (kind: Resource, namespace: string, name: string): Promise<KubeObject> => getJson(url(kind, namespace, name));

const decisions = new Map<string, Promise<boolean>>();

/** Asks the API server once a minute and right; it refuses anyway what is not allowed. */
export function mayI(verb: string, kind: Resource, namespace: string): Promise<boolean> {
  const key = `${verb} ${kind.group}/${kind.plural} ${namespace} ${Math.floor(Date.now() / 60_000)}`;
  let decision = decisions.get(key);
  if (!decision) {
    decision = review(verb, kind, namespace).catch(() => true); // the server decides when the action is sent
    decisions.set(key, decision);
  }
  return decision;
}

async function review(verb: string, kind: Resource, namespace: string): Promise<boolean> {
  const resourceAttributes = { verb, group: kind.group, resource: kind.plural, namespace };
  const response = await send('k8s/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
    method: 'POST',
    headers: JSON_BODY,
    body: JSON.stringify({ apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec: { resourceAttributes } }),
  });
  const answer = (await response.json()) as { status?: { allowed?: boolean } };
  return answer.status?.allowed ?? false;
}
