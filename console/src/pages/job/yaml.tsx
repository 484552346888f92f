// The object as YAML, without the managed fields unless they are asked for.
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { Json, KubeObject } from '../../api/objects';
import { toYaml } from '../../model/yaml';
import { toast } from '../../ui/toasts';
import type { JobData } from './use_job';

export function YamlTab({ data }: { data: JobData }): JSX.Element {
  const [managed, setManaged] = useState(false);
  const job = data.job as KubeObject;
  const text = useMemo(() => {
    const { managedFields, ...metadata } = job.metadata;
    const shown = { ...job, metadata: managed ? { ...metadata, managedFields } : metadata };
    return toYaml(shown as unknown as Json);
  }, [job, managed]);
  const copy = (): void => {
    navigator.clipboard.writeText(text).then(() => toast('Copied'), () => toast('The browser does not allow copying here', true));
  };
  return (
    <div class="stack">
      <div class="row">
        <button onClick={copy}>Copy</button>
        <label><input type="checkbox" checked={managed} onChange={(event) => setManaged(event.currentTarget.checked)} /> managed fields</label>
      </div>
      <pre class="yaml mono" tabIndex={0} role="region" aria-label="YAML">{text}</pre>
    </div>
  );
}
