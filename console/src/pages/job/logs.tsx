// The merged log of all replicas: filter by rank, search, follow, jump to the first error.
import type { JSX } from 'preact';
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useKeys } from '../../keyboard';
import type { LogLine } from '../../logs/store';
import { preciseClock } from '../../model/time';
import { parseRoute } from '../../router';
import { Empty } from '../../ui/parts';
import { VirtualList } from '../../ui/virtual_list';
import type { TabData } from './tab_data';
import { wantLogs } from './use_logs';

const ROW = 18;
const CHARACTER = 7.6;
const MAX_CHARACTERS = 4000;

/** A line of a megabyte would take seconds to lay out. */
const shown = (text: string): string => (text.length <= MAX_CHARACTERS ? text : `${text.slice(0, MAX_CHARACTERS)} … ${(text.length - MAX_CHARACTERS).toLocaleString('en')} characters more`);

export function LogsTab({ logs }: TabData): JSX.Element {
  const asked = useMemo(() => parseRoute(location.hash).query, []);
  const [text, setText] = useState('');
  const [regex, setRegex] = useState(false);
  const [rank, setRank] = useState(asked.get('rank') ?? '');
  const [showTime, setShowTime] = useState(false);
  const [following, setFollowing] = useState(asked.get('at') !== 'error');
  const [reveal, setReveal] = useState({ index: -1, turn: 0 });
  const search = useRef<HTMLInputElement>(null);
  const { store, sources } = logs;

  const labels = [...new Set(sources.map((source) => source.label))];
  const filter = useMemo(() => {
    const chosen = rank ? new Set(sources.flatMap((source, index) => (source.label === rank ? [index] : []))) : undefined;
    return { text, regex, sources: chosen };
  }, [text, regex, rank, sources.length]);
  useMemo(() => store.setFilter(filter), [filter]);
  useEffect(() => {
    wantLogs(rank ? sources.filter((source) => source.label === rank) : []);
    return () => wantLogs([]);
  }, [rank, sources.length]);
  const unread = [...logs.unread].filter((source) => !rank || source.label === rank).length;

  const jumpToError = useCallback((): void => {
    const index = store.firstError();
    if (index < 0) return;
    setFollowing(false);
    setReveal((before) => ({ index, turn: before.turn + 1 }));
  }, [store]);
  const wish = useRef(asked.get('at') === 'error');
  useEffect(() => {
    if (!wish.current || store.firstError() < 0) return;
    wish.current = false;
    jumpToError();
  }, [logs.version]);
  useKeys([
    { key: '/', does: 'search the log', run: () => search.current?.focus() },
    { key: 'f', does: 'follow', run: () => setFollowing((before) => !before) },
    { key: 'E', does: 'first error', run: jumpToError },
  ]);

  const longest = useMemo(() => store.view.slice(-2000).reduce((most, line) => Math.max(most, Math.min(line.text.length, MAX_CHARACTERS + 40)), 0), [logs.version, filter]);
  const onFollow = useCallback((atEnd: boolean) => setFollowing(atEnd), []);
  const errors = store.firstError() >= 0;
  return (
    <>
      <div class="row" role="group" aria-label="Log">
        <input ref={search} type="search" placeholder="Search the log" aria-label="Search the log" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button class="chip" aria-pressed={regex} title="Search with a regular expression" onClick={() => setRegex(!regex)}>.*</button>
        <label>
          <span class="hidden">Replica</span>
          <select value={rank} onChange={(event) => setRank(event.currentTarget.value)}>
            <option value="">All replicas</option>
            {labels.map((label) => <option key={label} value={label}>{label}</option>)}
          </select>
        </label>
        <button class="chip" aria-pressed={following} onClick={() => setFollowing(!following)}>follow</button>
        <button class="chip" aria-pressed={showTime} onClick={() => setShowTime(!showTime)}>time</button>
        <button class="chip" disabled={!errors} onClick={jumpToError}>first error</button>
        <span class="muted number" role="status">{store.view.length} lines{store.dropped ? `, ${store.dropped} older ones not shown` : ''}{unread ? `, ${unread} of ${sources.length} logs not read yet${rank ? '' : ': choose a replica to read its log first'}` : ''}</span>
      </div>
      <div class="list-gap" />
      {store.view.length ? (
        <VirtualList
          class="log"
          label="Log"
          count={store.view.length}
          rowHeight={ROW}
          reveal={reveal}
          depends={[store.version, sources.length, showTime, reveal.index]}
          follow={following}
          onFollow={onFollow}
          minWidth={longest * CHARACTER + 220}
          render={(index, top, slot) => <Line key={slot} line={store.view[index] as LogLine} top={top} label={sources[store.view[index]?.source ?? 0]?.label ?? ''} showTime={showTime} hit={index === reveal.index} />}
        />
      ) : (
        <Empty>{store.lines.length ? 'No line matches.' : 'No log lines yet.'}</Empty>
      )}
    </>
  );
}

interface LineProps {
  line: LogLine;
  top: number;
  label: string;
  showTime: boolean;
  hit: boolean;
}

const Line = ({ line, top, label, showTime, hit }: LineProps): JSX.Element => (
  <div class={`line ${line.error ? 'error' : ''} ${hit ? 'hit' : ''}`} style={{ top: `${top}px` }}>
    {showTime && <span class="time">{preciseClock(line.time)}</span>}
    <span class={`who ${showTime ? '' : 'time-less'} c${line.source % 8}`}>{label}</span>
    <span>{shown(line.text)}</span>
  </div>
);
