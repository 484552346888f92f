// A plot of one metric, one line a replica. uPlot is loaded when the first plot is drawn.
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type uPlot from 'uplot';
import { prepare, xRange, yRange } from '../model/curves';
import { lastOf, type Series } from '../model/metrics';
import { bytes, short } from '../model/quantity';
import { clock } from '../model/time';
import { isDark } from '../theme';

const LIGHT = ['#1257b8', '#c2410c', '#1a6b38', '#8a3ab9', '#8a5a00', '#0b6e75', '#b0246b', '#4a5568'];
const DARK = ['#7fb5ff', '#ff9160', '#6fd391', '#d0a2f7', '#eabf62', '#62d2da', '#ff94c8', '#b6c0cd'];
const AMOUNTS = ['bytes', 'cores', 'gpus']; // units of which there is none or some
const MAX_LINES = 16;
const MAX_READOUT = 6;

let loading: Promise<typeof uPlot> | undefined;
const load = (): Promise<typeof uPlot> => (loading ??= Promise.all([import('uplot'), import('uplot/dist/uPlot.min.css')]).then(([module]) => module.default));

// uPlot writes times as Americans do.
const twentyFourHours = (UPlot: typeof uPlot) => (template: string): ((date: Date) => string) =>
  UPlot.fmtDate(template.replace(/\{h\}/g, '{HH}').replace(/\{aa\}/g, '').replace('{M}/{D}/{YY}', '{DD} {MMM}').replace('{M}/{D}', '{DD} {MMM}'));

export interface ChartProps {
  title: string;
  series: Series[];
  steps?: Series[] | undefined;
  smooth?: number;
  logarithmic?: boolean;
  height?: number;
  /** Whole numbers that change from one moment to the next, such as a number of workers. */
  stepped?: boolean;
  /** The x values are not times: plain numbers. */
  relative?: ((series: Series) => number) | undefined;
}

/** What the lines have at the cursor: the nearest point at or before it. */
export function valueAt(column: (number | null)[], index: number): number | undefined {
  for (let at = index; at >= 0; at -= 1) {
    const value = column[at];
    if (value !== null && value !== undefined) return value;
  }
  return undefined;
}

export function Chart({ title, series, steps, smooth = 0, logarithmic = false, height = 170, stepped = false, relative }: ChartProps): JSX.Element {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const readout = useRef<HTMLSpanElement>(null);
  const zoomed = useRef(false);
  const [theme, setTheme] = useState(0);
  const lines = series.slice(0, MAX_LINES);
  const unit = lines[0]?.unit ?? '';
  const points = lines.reduce((sum, each) => sum + each.points.length, 0);
  const newest = lines[0]?.points.at(-1)?.[0];
  const data = useMemo(() => prepare(lines, steps, smooth, relative, logarithmic), [points, newest, steps, smooth, lines.length, relative, logarithmic]);
  const labelOf = (each: Series): string => each.replica || (lines.length > 1 ? 'whole job' : each.name);
  const names = lines.map(labelOf).join('|');
  const plain = Boolean(steps ?? relative);
  const fromZero = stepped || AMOUNTS.includes(unit);
  const format = (value: number): string => (unit === 'bytes' ? bytes(value) : short(value));
  const colours = isDark() ? DARK : LIGHT;

  useEffect(() => {
    const changed = (): void => setTheme((turn) => turn + 1);
    window.addEventListener('themechange', changed);
    return () => window.removeEventListener('themechange', changed);
  }, []);

  useEffect(() => {
    let gone = false;
    const target = element.current;
    if (!target) return undefined;
    const resize = new ResizeObserver(() => plot.current?.setSize({ width: target.clientWidth, height }));
    void load().then((UPlot) => {
      if (gone) return;
      zoomed.current = false;
      const style = getComputedStyle(document.documentElement);
      const axis = { stroke: style.getPropertyValue('--muted'), grid: { stroke: style.getPropertyValue('--line'), width: 1 }, ticks: { show: false } };
      plot.current = new UPlot(
        {
          width: target.clientWidth,
          height,
          legend: { show: false },
          cursor: { y: false, bind: { dblclick: (_, __, handler) => (event) => ((zoomed.current = false), handler(event)) } },
          hooks: {
            setSelect: [(self) => void (zoomed.current ||= self.select.width > 0)],
            setCursor: [
              // Text of the element, not state: the cursor moves more often than pages are drawn.
              (self) => {
                const index = self.cursor.idx;
                if (!readout.current) return;
                if (index === null || index === undefined) return void (readout.current.textContent = '');
                const x = self.data[0][index] as number;
                const values = lines.flatMap((each, line) => {
                  const value = valueAt(self.data[line + 1] as (number | null)[], index);
                  return value === undefined ? [] : [lines.length > 1 ? `${labelOf(each)} ${format(value)}` : format(value)];
                });
                readout.current.textContent = [plain ? short(x) : clock(x * 1000), ...values.slice(0, MAX_READOUT), ...(values.length > MAX_READOUT ? ['…'] : [])].join(' · ');
              },
            ],
          },
          fmtDate: twentyFourHours(UPlot),
          scales: { x: { time: !plain, range: (self, min, max) => xRange(self.data[0], min, max) }, y: logarithmic ? { distr: 3 } : { range: (_, min, max) => yRange(min, max, fromZero) ?? UPlot.rangeNum(min, max, 0.1, true) } },
          axes: [axis, { ...axis, size: 62, ...(stepped ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] } : {}), values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : format(tick))) }],
          series: [{}, ...lines.map((each, index) => ({ label: labelOf(each), stroke: colours[index % colours.length] as string, width: 1.5, spanGaps: true, ...(stepped ? { paths: (UPlot.paths.stepped as uPlot.Series.SteppedPathBuilderFactory)({ align: 1 }) } : {}), points: { show: each.points.length < 3 } }))],
        },
        data as unknown as uPlot.AlignedData,
        target,
      );
      resize.observe(target);
    });
    return () => {
      gone = true;
      resize.disconnect();
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [names, plain, logarithmic, unit, theme, height, stepped]);

  useEffect(() => {
    plot.current?.setData(data as unknown as uPlot.AlignedData, !zoomed.current);
    if (zoomed.current) plot.current?.redraw();
  }, [data]);

  const last = lines.map(lastOf).filter((value) => value !== undefined);
  const summary = `${title}: last ${last.slice(0, 4).map(format).join(', ')}`;
  return (
    <figure class="chart" aria-label={summary} role="img">
      <figcaption class="row"><b>{title}{unit && unit !== 'bytes' ? ` (${unit})` : ''}</b><span class="muted number">{last.length === 1 ? format(last[0] as number) : ''}</span></figcaption>
      <span ref={readout} class="readout muted number" aria-hidden="true" />
      <div ref={element} />
      {lines.length > 1 && (
        <div class="legend">
          {lines.map((each, index) => (
            <span key={each.replica} ref={(node) => { if (node) node.style.color = colours[index % colours.length] as string; }}>{labelOf(each)}</span>
          ))}
          {series.length > MAX_LINES && <em>and {series.length - MAX_LINES} more</em>}
        </div>
      )}
    </figure>
  );
}
