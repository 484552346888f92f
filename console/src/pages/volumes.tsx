// Claims and volumes, and which pods mount them.
import type { JSX } from 'preact';
import { checked, whole } from '../api/collection';
import { CLAIMS, PODS, VOLUMES } from '../api/kinds';
import type { KubeObject } from '../api/objects';
import { useCollection, useNow } from '../api/use';
import { duration, toMs } from '../model/time';
import { useView } from '../session';
import { Empty, Failure, Loading } from '../ui/parts';
import { toNodePod } from './use_nodes';

const modesOf = (claim: KubeObject): string => ((claim.spec?.accessModes ?? []) as string[]).join(', ');
const withModes = checked(modesOf);

export function VolumesPage(): JSX.Element {
  const { namespace } = useView();
  const claims = useCollection(CLAIMS, withModes, { namespace });
  const volumes = useCollection(VOLUMES, whole);
  const pods = useCollection(PODS, toNodePod, { namespace });
  const now = useNow(10_000);
  const users = (of: string, name: string): string =>
    [...pods.items.values()].filter((pod) => pod.namespace === of && pod.claims.includes(name) && pod.phase === 'Running').map((pod) => pod.name).join(', ');
  return (
    <main class="content">
      <div class="page-head"><h1>Volumes</h1></div>
      <Failure error={claims.error} what="PersistentVolumeClaims" />
      <Loading of={claims} />
      <div class="stack">
        <section class="card">
          <h2>PersistentVolumeClaims</h2>
          {claims.items.size ? (
            <div class="scroll-x" tabIndex={0} role="region" aria-label="PersistentVolumeClaims">
              <table class="table">
                <thead><tr><th>Claim</th><th>Namespace</th><th>State</th><th class="right">Capacity</th><th>Access</th><th>Class</th><th>Volume</th><th>Used by</th><th class="right">Age</th></tr></thead>
                <tbody>
                  {[...claims.items.values()].map((claim) => (
                    <tr key={claim.metadata.uid}>
                      <td><b>{claim.metadata.name}</b></td>
                      <td class="muted">{claim.metadata.namespace}</td>
                      <td><span class={`state ${claim.status?.phase === 'Bound' ? 'succeeded' : 'waiting'}`}>{claim.status?.phase ?? 'Pending'}</span></td>
                      <td class="right number">{claim.status?.capacity?.storage ?? claim.spec?.resources?.requests?.storage ?? '–'}</td>
                      <td class="muted">{modesOf(claim)}</td>
                      <td class="muted">{claim.spec?.storageClassName ?? '–'}</td>
                      <td class="muted">{claim.spec?.volumeName ?? '–'}</td>
                      <td>{users(claim.metadata.namespace ?? '', claim.metadata.name) || <span class="muted">{pods.error && !pods.loaded ? 'unknown: pods could not be read' : 'no running pod'}</span>}</td>
                      <td class="right number">{duration(now - (toMs(claim.metadata.creationTimestamp) ?? now))}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          ) : claims.loaded && <Empty>There are no claims.</Empty>}
        </section>
        <section class="card">
          <h2>PersistentVolumes</h2>
          {volumes.error && !volumes.loaded ? <p class="muted">{volumes.error.status === 403 ? 'You may not list PersistentVolumes.' : volumes.error.message}</p> : volumes.items.size ? (
            <div class="scroll-x" tabIndex={0} role="region" aria-label="PersistentVolumes">
              <table class="table">
                <thead><tr><th>Volume</th><th>State</th><th class="right">Capacity</th><th>Reclaim policy</th><th>Claim</th><th>Path</th></tr></thead>
                <tbody>
                  {[...volumes.items.values()].map((volume) => (
                    <tr key={volume.metadata.uid}>
                      <td><b>{volume.metadata.name}</b></td>
                      <td>{volume.status?.phase}</td>
                      <td class="right number">{volume.spec?.capacity?.storage}</td>
                      <td class="muted">{volume.spec?.persistentVolumeReclaimPolicy}</td>
                      <td class="muted">{volume.spec?.claimRef ? `${volume.spec.claimRef.namespace}/${volume.spec.claimRef.name}` : '–'}</td>
                      <td class="mono muted">{volume.spec?.hostPath?.path ?? volume.spec?.local?.path ?? volume.spec?.csi?.driver ?? '–'}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          ) : volumes.loaded ? <Empty>There are no volumes.</Empty> : <Loading of={volumes} />}
        </section>
      </div>
    </main>
  );
}
