// One job: what it is, how it stands, and the tabs that show the rest.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { findKind, type Resource } from '../../api/kinds';
import { useKeys } from '../../keyboard';
import { elasticBounds, QUEUE_LABEL } from '../../model/job_row';
import { runState } from '../../model/state';
import { go, link, type Route } from '../../router';
import '../../style/job.css';
import { Empty, Failure, State, useCurrentInSight } from '../../ui/parts';
import { Actions } from './actions';
import { ElasticTab, isElastic } from './elastic';
import { EventsTab } from './events';
import { LogsTab } from './logs';
import { MetricsTab } from './metrics';
import { SummaryTab } from './summary';
import { useJob, type JobData } from './use_job';
import { useLogs } from './use_logs';
import { useSeries } from './use_series';
import { YamlTab } from './yaml';

const TABS = ['summary', 'logs', 'metrics', 'elastic', 'events', 'yaml'];

export function JobPage({ route }: { route: Route }): JSX.Element {
  const [, namespace = '', resource = '', name = ''] = route.path;
  const kind = findKind(resource);
  if (!kind || !name) return <main class="content"><Empty>There is no kind of job called {resource}.</Empty></main>;
  return <Job key={`${resource}/${namespace}/${name}`} kind={kind} namespace={namespace} name={name} tab={route.query.get('tab') ?? 'summary'} route={route} />;
}

interface JobProps {
  kind: Resource;
  namespace: string;
  name: string;
  tab: string;
  route: Route;
}

function Job({ kind, namespace, name, tab, route }: JobProps): JSX.Element {
  const data = useJob(kind, namespace, name);
  const to = (each: string): string => link(route.path, { ns: route.query.get('ns') ?? undefined, tab: each === 'summary' ? undefined : each });
  useKeys([
    { key: 'l', does: 'logs', run: () => go(to('logs')) },
    { key: 'm', does: 'metrics', run: () => go(to('metrics')) },
    { key: 'e', does: 'events', run: () => go(to('events')) },
    { key: 'y', does: 'YAML', run: () => go(to('yaml')) },
    { key: 's', does: 'summary', run: () => go(to('summary')) },
    { key: 'Escape', does: 'back to the jobs', run: () => go(link(['jobs'], { ns: route.query.get('ns') ?? undefined })) },
  ]);
  const { job } = data;
  if (!job) {
    return (
      <main class="content">
        <Failure error={data.error} what={`${kind.kind} ${name}`} />
        {!data.error && <Empty>{data.loaded ? `There is no ${kind.kind} ${name} in namespace ${namespace}. It may have been deleted: see History.` : 'Loading…'}</Empty>}
      </main>
    );
  }
  return <Loaded data={data} tab={tab} to={to} />;
}

export interface TabProps {
  data: JobData;
}

function Loaded({ data, tab, to }: TabProps & { tab: string; to: (tab: string) => string }): JSX.Element {
  const job = data.job as NonNullable<JobData['job']>;
  const logs = useLogs(data);
  const series = useSeries(data, logs);
  const state = runState(job);
  const labels = job.metadata.labels ?? {};
  const elastic = elasticBounds(job);
  const tabs = useCurrentInSight(tab);
  const body = useMemo(() => ({ data, logs, series }), [data, logs, series]);
  return (
    <main class={`content ${tab === 'logs' ? 'fixed' : ''}`}>
      <div class="page-head">
        <h1>{job.metadata.name}</h1>
        <State word={state.word} phase={state.phase} />
        <span class="tag">{job.kind}</span>
        <span class="tag">{job.metadata.namespace}</span>
        {labels[QUEUE_LABEL] && <span class="tag">queue {labels[QUEUE_LABEL]}</span>}
        {elastic && <span class="tag">elastic {elastic}</span>}
        <span class="grow" />
        <Actions data={data} />
      </div>
      <nav ref={tabs} class="tabs" aria-label="Parts of the job">
        {TABS.filter((each) => each !== 'elastic' || each === tab || isElastic(job, logs.elastic.events.length)).map((each) => (
          <a key={each} href={to(each)} aria-current={each === tab ? 'page' : undefined}>
            {each === 'yaml' ? 'YAML' : each[0]?.toUpperCase() + each.slice(1)}
          </a>
        ))}
      </nav>
      <Failure error={data.failures[0]?.error} what={`Not shown: ${data.failures.map(({ what }) => what).join(', ')}`} />
      {tab === 'summary' && <SummaryTab {...body} to={to} />}
      {tab === 'logs' && <LogsTab {...body} />}
      {tab === 'metrics' && <MetricsTab {...body} />}
      {tab === 'elastic' && <ElasticTab {...body} />}
      {tab === 'events' && <EventsTab data={data} />}
      {tab === 'yaml' && <YamlTab data={data} />}
    </main>
  );
}
