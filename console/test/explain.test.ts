import { expect, it } from 'vitest';
import type { KubeObject } from '../src/api/objects';
import { explain } from '../src/model/explain';

const job = (message: string): KubeObject => ({
  apiVersion: 'kubeflow.org/v1',
  kind: 'PyTorchJob',
  metadata: { name: 'mnist', namespace: 'default', uid: 'u', creationTimestamp: '2026-01-01T00:00:00Z' },
  status: { conditions: [{ type: 'Running', status: 'True', message }] },
});

it.each([
  ['PyTorchJob mnist is running.', 'PyTorchJob mnist is Running'],
  ['one of two workers is missing', 'PyTorchJob mnist is Running: one of two workers is missing'],
])('says the state once: %s', (message, first) => expect(explain(job(message), [], undefined, [])[0]).toBe(first));
