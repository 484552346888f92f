// Nodes and their devices: how full, who uses them, and how that changed while the page is open.
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { serverNow } from '../api/clock';
import type { KubeObject } from '../api/objects';
import { SeriesBuilder } from '../model/metrics';
import { amount } from '../model/quantity';
import { link, type Route } from '../router';
import '../style/job.css';
import { Chart } from '../ui/chart';
import { Empty, Failure, Loading, Rest, State } from '../ui/parts';
import { Meter } from './overview';
import { type NodePod, nodeUse, trueConditions, useNodes } from './use_nodes';

const MAX_PODS = 200;

export function NodesPage({ route }: { route: Route }): JSX.Element {
  const nodes = useNodes();
  const chosen = route.query.get('node');
  const history = useRef(new SeriesBuilder());
  useEffect(() => {
    for (const [name, usage] of nodes.usage) {
      const node = nodes.rows.find((each) => each.metadata.name === name);
      if (!node || !usage) continue;
      for (const each of nodeUse(node, nodes)) {
        if (each.used !== undefined) history.current.put(name, each.resource, each.resource === 'memory' ? 'bytes' : each.resource === 'cpu' ? 'cores' : '', serverNow() / 1000, each.used);
      }
    }
  }, [nodes.usage]);
  const rows = nodes.rows.filter((node) => !chosen || node.metadata.name === chosen);
  return (
    <main class="content">
      <div class="page-head"><h1>Nodes</h1>{chosen && <a class="button" href={link(['nodes'])}>Show all</a>}</div>
      <Failure error={nodes.error} what="Nodes" />
      {nodes.error?.message !== nodes.podsError?.message && <Failure error={nodes.podsError} what="Pods are not shown" />}
      <Loading of={nodes} />
      <div class="stack">
        {rows.map((node) => <NodeCard key={node.metadata.uid} node={node} nodes={nodes} history={history.current} />)}
        {nodes.loaded && !rows.length && <Empty>{chosen ? `There is no node ${chosen}.` : 'There are no nodes.'}</Empty>}
      </div>
    </main>
  );
}

interface NodeCardProps {
  node: KubeObject;
  nodes: ReturnType<typeof useNodes>;
  history: SeriesBuilder;
}

function NodeCard({ node, nodes, history }: NodeCardProps): JSX.Element {
  const name = node.metadata.name;
  const conditions = trueConditions(node);
  const ready = conditions.includes('Ready');
  const pressure = conditions.filter((each) => each.endsWith('Pressure'));
  const info = (node.status?.nodeInfo ?? {}) as { architecture?: string; kubeletVersion?: string; osImage?: string };
  const pods = nodes.pods.filter((pod) => pod.node === name && pod.phase === 'Running');
  const uses = nodeUse(node, nodes);
  const curves = [...history.series.values()].filter((each) => each.replica === name && each.points.length > 1);
  return (
    <section class="card">
      <div class="page-head">
        <h2>{name}</h2>
        <State word={ready ? 'Ready' : 'NotReady'} phase={ready ? 'succeeded' : 'failed'} />
        {node.spec?.unschedulable && <span class="tag">unschedulable</span>}
        {pressure.map((each) => <span key={each} class="state waiting">{each}</span>)}
        <span class="muted">{[info.architecture, info.osImage, info.kubeletVersion, node.metadata.labels?.['nvidia.com/gpu.product']].filter(Boolean).join(' · ')}</span>
      </div>
      <div class="two-columns">
        <div>
          <h3 class="muted">Used</h3>
          {uses.map((each) => each.used === undefined ? null : <Meter key={each.resource} name={each.resource} used={each.used} total={each.total} />)}
          <h3 class="muted">Requested by pods</h3>
          {uses.map((each) => <Meter key={each.resource} name={each.resource} used={each.requested} total={each.total} />)}
        </div>
        <div class="stack">
          {curves.map((each) => <Chart key={each.name} title={each.name} series={[{ ...each, replica: '' }]} height={110} />)}
        </div>
      </div>
      <h3 class="muted">Pods</h3>
      {nodes.podsError ? <p class="muted">Pods could not be read.</p> : <PodTable pods={pods} />}
    </section>
  );
}

function PodTable({ pods }: { pods: NodePod[] }): JSX.Element {
  if (!pods.length) return <Empty>No pod runs here.</Empty>;
  const sorted = [...pods].sort((a, b) => (b.requests['cpu'] ?? 0) - (a.requests['cpu'] ?? 0));
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label="Pods">
      <table class="table">
        <thead><tr><th>Pod</th><th>Job</th><th>Namespace</th><th>Requests</th></tr></thead>
        <tbody>
          {sorted.slice(0, MAX_PODS).map((pod) => (
            <tr key={`${pod.namespace}/${pod.name}`}>
              <td>{pod.name}</td>
              <td><a href={link(['jobs'], { q: `${pod.namespace}/${pod.job}` })}>{pod.job}</a></td>
              <td class="muted">{pod.namespace}</td>
              <td class="number muted">{Object.entries(pod.requests).map(([resource, value]) => `${resource} ${amount(resource, value)}`).join(', ')}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <Rest of={sorted.length} shown={MAX_PODS} />
    </div>
  );
}
