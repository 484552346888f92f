// Stop, resume, rerun, delete: what a user may not do is disabled, with the reason.
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { create, createYaml, get, mayI, patch, remove } from '../../api/actions';
import { CONFIG_MAPS, qualified } from '../../api/kinds';
import type { Json, KubeObject } from '../../api/objects';
import { QUEUE_LABEL } from '../../model/job_row';
import { newName, renamed, workspaceNames } from '../../model/rerun';
import { isSuspended, runState, suspendPatch } from '../../model/state';
import { toYaml } from '../../model/yaml';
import { go, jobLink, link } from '../../router';
import { Dialog } from '../../ui/parts';
import { toast } from '../../ui/toasts';
import type { JobData } from './use_job';

type Open = 'stop' | 'delete' | 'rerun' | undefined;

function useRight(verb: string, data: JobData): boolean {
  const [allowed, setAllowed] = useState(true);
  useEffect(() => {
    void mayI(verb, data.kind, data.namespace).then(setAllowed);
  }, [verb, data.kind, data.namespace]);
  return allowed;
}

async function act(text: string, work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work();
    toast(text);
    return true;
  } catch (error) {
    toast(error instanceof Error ? error.message : String(error), true);
    return false;
  }
}

const refused = (allowed: boolean, verb: string, kind: string): string => (allowed ? '' : `You may not ${verb} ${kind}s in this namespace.`);

export function Actions({ data }: { data: JobData }): JSX.Element {
  const job = data.job as KubeObject;
  const [open, setOpen] = useState<Open>();
  const kind = job.kind ?? '';
  const state = runState(job);
  const [mayPatch, mayDelete, mayCreate] = [useRight('patch', data), useRight('delete', data), useRight('create', data)];
  const queue = job.metadata.labels?.[QUEUE_LABEL];
  const suspended = isSuspended(job);
  const name = job.metadata.name;
  const noStop = refused(mayPatch, 'patch', kind) || (kind === 'Pod' ? 'A Pod cannot be suspended; delete it.' : state.done ? `It has finished (${state.word}).` : '');
  const noResume = noStop || (queue ? `Queue ${queue} starts it in its turn.` : '');
  const close = (): void => setOpen(undefined);
  const setSuspend = (suspend: boolean): Promise<boolean> => act(`${name} ${suspend ? 'suspended' : 'resumed'}`, () => patch(data.kind, job, suspendPatch(kind, suspend)));
  return (
    <div class="row tight">
      {suspended ? (
        <button disabled={Boolean(noResume)} title={noResume || 'Start it again'} onClick={() => void setSuspend(false)}>Resume</button>
      ) : (
        <button disabled={Boolean(noStop)} title={noStop || 'Suspend it: its pods are deleted, the job stays'} onClick={() => setOpen('stop')}>Stop</button>
      )}
      <button disabled={!mayCreate} title={refused(mayCreate, 'create', kind) || 'Run it again, with changes'} onClick={() => setOpen('rerun')}>Rerun</button>
      <button class="danger" disabled={!mayDelete} title={refused(mayDelete, 'delete', kind) || undefined} onClick={() => setOpen('delete')}>Delete</button>
      {open === 'stop' && (
        <Confirm title={`Stop ${name}?`} verb="Stop" onClose={close} run={() => setSuspend(true)}>
          Its pods are deleted and what they have not saved is lost. The job stays; Resume starts it again.
        </Confirm>
      )}
      {open === 'delete' && (
        <Confirm title={`Delete ${name}?`} verb="Delete" onClose={close} run={() => act(`${name} deleted`, () => remove(data.kind, job)).then((ok) => (ok && go(link(['jobs'])), ok))}>
          The {kind}, its pods and their logs are deleted. This cannot be undone.
        </Confirm>
      )}
      {open === 'rerun' && <Rerun data={data} job={job} onClose={close} />}
    </div>
  );
}

interface ConfirmProps {
  title: string;
  verb: string;
  onClose: () => void;
  run: () => Promise<unknown>;
  children: JSX.Element | string | (JSX.Element | string)[];
}

export function Confirm({ title, verb, onClose, run, children }: ConfirmProps): JSX.Element {
  const confirm = (): void => {
    onClose();
    void run();
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{children}</p>
      <div class="actions">
        <button onClick={onClose}>Cancel</button>
        <button class="primary" onClick={confirm}>{verb}</button>
      </div>
    </Dialog>
  );
}

/** The files of a script travel with it, under the new name; they are deleted with the new job. */
async function copyFiles(job: KubeObject, created: KubeObject): Promise<void> {
  const namespace = job.metadata.namespace ?? '';
  for (const old of workspaceNames(job)) {
    const files = await get(CONFIG_MAPS, namespace, old);
    const owner = { apiVersion: created.apiVersion, kind: created.kind, name: created.metadata.name, uid: created.metadata.uid, blockOwnerDeletion: true };
    const metadata = { name: created.metadata.name + old.slice(job.metadata.name.length), namespace, ownerReferences: [owner] };
    await create(CONFIG_MAPS, namespace, { apiVersion: 'v1', kind: 'ConfigMap', metadata, binaryData: files['binaryData'], data: files['data'] });
  }
}

function Rerun({ data, job, onClose }: { data: JobData; job: KubeObject; onClose: () => void }): JSX.Element {
  const [text, setText] = useState(() => toYaml(renamed(job, newName(job.metadata.name)) as unknown as Json));
  const [error, setError] = useState('');
  const run = async (): Promise<void> => {
    try {
      const created = await createYaml(data.kind, data.namespace, text);
      await copyFiles(job, created);
      toast(`${created.metadata.name} created`);
      onClose();
      go(jobLink({ namespace: data.namespace, resource: qualified(data.kind), name: created.metadata.name }));
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  return (
    <Dialog title={`Run ${job.metadata.name} again`} wide onClose={onClose}>
      <p class="muted">Change what should be different: arguments, environment, resources, the name.</p>
      <textarea class="mono" aria-label="Manifest" spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      {error && <p class="notice failed" role="alert">{error}</p>}
      <div class="actions">
        <button onClick={onClose}>Cancel</button>
        <button class="primary" onClick={() => void run()}>Run</button>
      </div>
    </Dialog>
  );
}
