// The events of a job, its workload and its pods, newest first.
import type { JSX } from 'preact';
import { useNow } from '../../api/use';
import { lastSeen } from '../../model/explain';
import { dateTime, duration, toMs } from '../../model/time';
import { Empty, Rest } from '../../ui/parts';
import type { JobData } from './use_job';

const MAX_ROWS = 500;

export function EventsTab({ data }: { data: JobData }): JSX.Element {
  const now = useNow(5000);
  if (data.failures.some(({ what }) => what === 'Events')) return <Empty>Events could not be read.</Empty>;
  if (!data.events.length) return <Empty>No events. The server keeps them for an hour.</Empty>;
  return (
    <div class="card scroll-x" tabIndex={0} role="region" aria-label="Events">
      <table class="table phone">
        <thead><tr><th>Age</th><th>Type</th><th>Reason</th><th>Object</th><th>Message</th></tr></thead>
        <tbody>
          {[...data.events].reverse().slice(0, MAX_ROWS).map((event) => {
            const seen = toMs(lastSeen(event)) ?? now;
            return (
              <tr key={event.metadata.uid}>
                <td class="number muted" title={dateTime(seen)}>{duration(now - seen)}</td>
                <td><span class={`state ${event.type === 'Warning' ? 'waiting' : 'running'}`}>{event.type}</span></td>
                <td>{event.reason}{(event.count ?? 1) > 1 ? <span class="muted"> ×{event.count}</span> : null}</td>
                <td class="muted">{event.involvedObject?.kind}/{event.involvedObject?.name}</td>
                <td class="wide">{event.message}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      <Rest of={data.events.length} shown={MAX_ROWS} />
    </div>
  );
}
