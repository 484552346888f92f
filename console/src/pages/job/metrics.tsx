// Curves: what the program prints, and what its replicas use.
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { RESOURCE_NAMES, type Series, stepName } from '../../model/metrics';
import { clock } from '../../model/time';
import { Chart } from '../../ui/chart';
import { Empty, Rest } from '../../ui/parts';
import type { TabData } from './tab_data';

export function MetricsTab({ series }: TabData): JSX.Element {
  const metrics = series.series.filter((each) => !RESOURCE_NAMES.includes(each.name));
  const usage = series.series.filter((each) => RESOURCE_NAMES.includes(each.name));
  return (
    <div class="stack">
      {series.lostBefore !== undefined && <p class="notice">Samples before {clock(series.lostBefore * 1000)} are not kept any more.</p>}
      {!series.kept && <p class="muted">The server keeps no samples of this job: curves come from the log lines and from what its replicas use while this page is open.</p>}
      {metrics.length ? <Curves series={metrics} /> : <Empty>No metrics yet. Print them as name=value, for example: loss=0.25 step=10</Empty>}
      {usage.length > 0 && <Curves series={usage} title="Use" />}
    </div>
  );
}

const byName = (series: Series[]): [string, Series[]][] => {
  const groups = new Map<string, Series[]>();
  for (const each of series) groups.set(each.name, [...(groups.get(each.name) ?? []), each]);
  return [...groups].sort(([a], [b]) => rank(a) - rank(b));
};

// A loss is what people look for first.
const rank = (name: string): number => (/loss/i.test(name) ? 0 : /acc/i.test(name) ? 1 : /^(epoch|step|iter|batch|global_step)/i.test(name) ? 9 : 5);

const MANY = 8;

export function Curves({ series, limit = 60, title = 'Metrics' }: { series: Series[]; limit?: number; title?: string }): JSX.Element {
  const [bySteps, setBySteps] = useState(false);
  const [smooth, setSmooth] = useState(0);
  const [logarithmic, setLogarithmic] = useState(false);
  const [text, setText] = useState('');
  const step = stepName(series.map((each) => each.name));
  const all = useMemo(() => byName(series), [series]);
  const matching = text ? all.filter(([name]) => name.toLowerCase().includes(text.toLowerCase())) : all;
  const groups = matching.slice(0, limit);
  const steps = bySteps && step ? series.filter((each) => each.name === step) : undefined;
  const isUse = title === 'Use';
  return (
    <section aria-label={title}>
      <div class="page-head">
        <h2>{title}</h2>
        <span class="grow" />
        {limit > 4 && all.length > MANY && <input type="search" placeholder="Search metrics" aria-label="Search metrics" value={text} onInput={(event) => setText(event.currentTarget.value)} />}
        {step && <button class="chip" aria-pressed={bySteps} onClick={() => setBySteps(!bySteps)}>by {step}</button>}
        {!isUse && <button class="chip" aria-pressed={logarithmic} onClick={() => setLogarithmic(!logarithmic)}>logarithmic</button>}
        {!isUse && (
          <label><span class="muted">smooth</span><input type="range" min="0" max="0.95" step="0.05" value={smooth} onInput={(event) => setSmooth(Number(event.currentTarget.value))} /></label>
        )}
      </div>
      <div class="grid">
        {groups.map(([name, group]) => <div key={name} class="card"><Chart title={name} series={group} steps={steps} smooth={smooth} logarithmic={logarithmic} /></div>)}
      </div>
      {text && !matching.length && <Empty>No metric matches.</Empty>}
      {limit > 4 && <Rest of={matching.length} shown={limit} />}
    </section>
  );
}
