// Images: those that pods use, and those that nodes report.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { NODES, PODS } from '../api/kinds';
import type { KubeObject } from '../api/objects';
import { useCollection } from '../api/use';
import { bytes } from '../model/quantity';
import { link } from '../router';
import { useView } from '../session';
import { Empty, Failure, Loading } from '../ui/parts';
import { imagesOf, type NodePod, toNode, toNodePod } from './use_nodes';

interface ImageRow {
  name: string;
  ids: Set<string>;
  running: number;
  jobs: Set<string>;
  nodes: Set<string>;
  size: number | undefined;
}

export function imageRows(pods: Iterable<NodePod>, nodes: Iterable<KubeObject>): ImageRow[] {
  const rows = new Map<string, ImageRow>();
  const at = (name: string): ImageRow => {
    let row = rows.get(name);
    if (!row) rows.set(name, (row = { name, ids: new Set(), running: 0, jobs: new Set(), nodes: new Set(), size: undefined }));
    return row;
  };
  for (const pod of pods) {
    for (const { image, id } of pod.images) {
      const row = at(image);
      if (id) row.ids.add(id);
      if (pod.phase === 'Running') row.running += 1;
      row.jobs.add(`${pod.namespace}/${pod.job}`);
      if (pod.node) row.nodes.add(pod.node);
    }
  }
  for (const node of nodes) {
    for (const { name, size } of imagesOf(node)) {
      const row = at(name);
      row.size = size;
      row.nodes.add(node.metadata.name);
    }
  }
  return [...rows.values()].sort((a, b) => b.running - a.running || (a.name < b.name ? -1 : 1));
}

export function ImagesPage(): JSX.Element {
  const { namespace } = useView();
  const pods = useCollection(PODS, toNodePod, { namespace });
  const nodes = useCollection(NODES, toNode);
  const rows = useMemo(() => imageRows(pods.items.values(), nodes.items.values()), [pods.version, nodes.version]);
  return (
    <main class="content">
      <div class="page-head"><h1>Images</h1></div>
      <Failure error={pods.error} what="Pods" />
      <Loading of={pods} />
      {rows.length ? (
        <div class="card scroll-x" tabIndex={0} role="region" aria-label="Images">
          <table class="table">
            <thead><tr><th>Image</th><th>Digest</th><th class="right">Size</th><th class="right">Running pods</th><th>Jobs</th><th>Nodes</th></tr></thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.name}>
                  <td class="mono"><b>{row.name}</b></td>
                  <td class="mono muted">{[...row.ids].map((id) => id.replace(/^.*sha256:/, '').slice(0, 12)).join(', ') || '–'}</td>
                  <td class="right number">{row.size === undefined ? '–' : bytes(row.size)}</td>
                  <td class="right number">{row.running}</td>
                  <td class="tags">{[...row.jobs].slice(0, 5).map((job) => <a key={job} class="tag" href={link(['jobs'], { q: job })}>{job}</a>)}{row.jobs.size > 5 && <span class="muted">and {row.jobs.size - 5} more</span>}</td>
                  <td class="muted">{[...row.nodes].join(', ')}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ) : pods.loaded && <Empty>No pod uses an image.</Empty>}
      {nodes.error && !nodes.loaded && rows.length > 0 && <p class="muted">Sizes are unknown, and images that no pod uses are not shown: {nodes.error.status === 403 ? 'you may not list nodes.' : nodes.error.message}</p>}
    </main>
  );
}
