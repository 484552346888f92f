// What surrounds every page: navigation, the namespace, the theme, help.
import { Component, type ComponentChildren, type ComponentType, type JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { NAMESPACES } from './api/kinds';
import type { KubeObject } from './api/objects';
import { useCollection } from './api/use';
import { activeKeys, useKeys } from './keyboard';
import { JobsPage } from './pages/jobs';
import { go, link, type Route, setQuery, useRoute } from './router';
import { type Session, useView, ViewContext } from './session';
import { chosenTheme, setTheme, type Theme } from './theme';
import { icons } from './ui/icons';
import { Dialog, useCurrentInSight } from './ui/parts';
import { Toasts } from './ui/toasts';

const PAGES = ['overview', 'jobs', 'queues', 'nodes', 'volumes', 'images', 'history'] as const;

export type Page = ComponentType<{ route: Route }>;

// Everything but the list of jobs is loaded when it is first needed, which keeps the first screen small.
const LAZY: Record<string, () => Promise<Page>> = {
  overview: () => import('./pages/overview').then((module) => module.OverviewPage),
  job: () => import('./pages/job/job').then((module) => module.JobPage),
  queues: () => import('./pages/queues').then((module) => module.QueuesPage),
  nodes: () => import('./pages/nodes').then((module) => module.NodesPage),
  volumes: () => import('./pages/volumes').then((module) => module.VolumesPage),
  images: () => import('./pages/images').then((module) => module.ImagesPage),
  history: () => import('./pages/history').then((module) => module.HistoryPage),
  compare: () => import('./pages/compare').then((module) => module.ComparePage),
};
const loaded = new Map<string, Page>([['jobs', JobsPage]]);

function useLazyPage(name: string): Page | string {
  const [, draw] = useState(0);
  const [failed, setFailed] = useState('');
  useEffect(() => {
    const load = Object.hasOwn(LAZY, name) ? LAZY[name] : undefined;
    if (loaded.has(name) || !load) return;
    load()
      .then((page) => {
        loaded.set(name, page);
        draw((turn) => turn + 1);
      })
      .catch(() => setFailed('This page could not be loaded: the server of the console does not respond, or is of another version. Check that it runs, and reload the console.'));
  }, [name]);
  return loaded.get(name) ?? (Object.hasOwn(LAZY, name) ? failed || 'Loading…' : `There is no page ${name}.`);
}

export function Shell({ session }: { session: Session }): JSX.Element {
  const route = useRoute();
  const [help, setHelp] = useState(false);
  const namespace = route.query.get('ns') ?? '';
  const view = useMemo(() => ({ session, namespace }), [session, namespace]);
  const name = route.path[0] ?? 'overview';
  const Current = useLazyPage(name);
  useEffect(() => {
    const job = name === 'job' ? route.path[3] : undefined;
    document.title = `${job ?? name} – Torchyard`;
  }, [name, route.path[3]]);
  const pages = useCurrentInSight(name);
  const keep = namespace ? { ns: namespace } : {};
  useKeys([
    { key: '?', does: 'this help', run: () => setHelp(true) },
    ...PAGES.map((page, index) => ({ key: String(index + 1), does: `go to ${page}`, run: () => go(link([page], keep)) })),
  ]);
  return (
    <ViewContext.Provider value={view}>
      <div class="shell">
        <nav ref={pages} class="nav" aria-label="Pages">
          <div class="brand">
            <img src="./icon.svg" alt="" /> Torchyard
          </div>
          {PAGES.map((page) => (
            <a key={page} class="page" href={link([page], keep)} aria-current={page === (name === 'job' || name === 'compare' ? 'jobs' : name) ? 'page' : undefined}>
              {icons[page]}
              {title(page)}
            </a>
          ))}
          <div class="foot">
            <div>{session.context || 'plane'}</div>
            <div>Torchyard {session.version}</div>
          </div>
        </nav>
        <div class="main">
          <header class="top">
            <NamespaceChoice />
            <span class="grow" />
            <span class="muted user ellipsis" title={`Signed in as ${session.user}`}>{session.user}</span>
            <ThemeSwitch />
            <button class="plain" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick={() => setHelp(true)}>?</button>
          </header>
          {typeof Current === 'string' ? <main class="content"><p class="empty" role="status">{Current}</p></main> : <Boundary key={route.path.join('/')}><Current route={route} /></Boundary>}
        </div>
      </div>
      {help && <Help onClose={() => setHelp(false)} />}
      <Toasts />
    </ViewContext.Provider>
  );
}

/** A defect of one page leaves the navigation, and says what failed. */
class Boundary extends Component<{ children: ComponentChildren }, { failure: string }> {
  override state = { failure: '' };

  static override getDerivedStateFromError(error: unknown): { failure: string } {
    return { failure: String(error) };
  }

  override render(): ComponentChildren {
    if (!this.state.failure) return this.props.children;
    return (
      <main class="content">
        <p class="notice failed" role="alert">This page failed: {this.state.failure}. Reload it; if it fails again, this is a defect of the console.</p>
        <button onClick={() => this.setState({ failure: '' })}>Try again</button>
      </main>
    );
  }
}

const title = (page: string): string => page[0]?.toUpperCase() + page.slice(1);
const nameOf = (object: KubeObject): string => object.metadata.name;

function NamespaceChoice(): JSX.Element {
  const { namespace, session } = useView();
  const namespaces = useCollection(NAMESPACES, nameOf);
  const names = [...namespaces.items.values()].sort();
  if (namespace && !names.includes(namespace)) names.unshift(namespace);
  const choose = (value: string): void => setQuery({ ns: value || undefined });
  const isForbidden = namespaces.error?.status === 403;
  useEffect(() => {
    if (isForbidden && !namespace && session.namespace) choose(session.namespace);
  }, [isForbidden]);
  // A user who may not list namespaces writes one.
  if (isForbidden) {
    return (
      <label>
        <span class="muted">Namespace</span>
        <input type="text" placeholder="all" value={namespace} onChange={(event) => choose(event.currentTarget.value.trim())} />
      </label>
    );
  }
  return (
    <label>
      <span class="muted">Namespace</span>
      <select value={namespace} onChange={(event) => choose(event.currentTarget.value)}>
        <option value="">All</option>
        {names.map((each) => <option key={each} value={each}>{each}</option>)}
      </select>
    </label>
  );
}

const THEMES: Record<Theme, [Theme, string, string]> = {
  system: ['light', '◐', 'Theme: as the system'],
  light: ['dark', '☀', 'Theme: light'],
  dark: ['system', '☾', 'Theme: dark'],
};

function ThemeSwitch(): JSX.Element {
  const [theme, set] = useState(chosenTheme());
  const [next, mark, label] = THEMES[theme];
  const change = (): void => {
    setTheme(next);
    set(next);
  };
  return <button class="plain" aria-label={label} title={label} onClick={change}>{mark}</button>;
}

function Help({ onClose }: { onClose: () => void }): JSX.Element {
  const keys = useRef(activeKeys()).current;
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <dl class="facts">
        {keys.map((each) => [<dt key={each.key}><kbd>{each.key}</kbd></dt>, <dd key={`${each.key}-does`}>{each.does}</dd>])}
      </dl>
      <form method="dialog" class="actions"><button>Close</button></form>
    </Dialog>
  );
}
