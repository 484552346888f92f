// Links to the experiment trackers that a job's environment names. Only http(s): a job's author chooses these values.
import type { JSX } from 'preact';
import type { KubeObject, Pod } from '../../api/objects';

const TRACKERS: [string, string[]][] = [
  ['TensorBoard', ['TENSORBOARD_URL']],
  ['MLflow', ['MLFLOW_TRACKING_URI']],
  ['Weights & Biases', ['WANDB_RUN_URL', 'WANDB_BASE_URL']],
];

export function trackingLinks(variables: { name: string; value?: string }[]): { name: string; url: string }[] {
  const links: { name: string; url: string }[] = [];
  for (const [name, keys] of TRACKERS) {
    const value = variables.find((each) => keys.includes(each.name))?.value ?? '';
    if (/^https?:\/\/[^\s]+$/i.test(value)) links.push({ name, url: value });
  }
  return links;
}

export function TrackingLinks({ pods }: { job: KubeObject; pods: Pod[] }): JSX.Element | null {
  const links = trackingLinks(pods.flatMap((pod) => pod.spec.containers.flatMap((each) => each.env ?? [])));
  if (!links.length) return null;
  return (
    <p class="row">
      {links.map((each) => <a key={each.name} class="button" href={each.url} target="_blank" rel="noopener noreferrer">{each.name} ↗</a>)}
    </p>
  );
}
