// Routes are in the fragment of the URL: every page is a deep link, and the server needs to know none of them.
import { useEffect, useState } from 'preact/hooks';

export interface Route {
  path: string[];
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  return { path: path.split('/').filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

export function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a link that someone shortened
  }
}

export function link(path: string[], query: Record<string, string | undefined> = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) parameters.set(name, value);
  const text = parameters.toString();
  return `#/${path.map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

/** Keeps the namespace that the pages show, for the way back. */
export const jobLink = (job: { namespace: string; resource: string; name: string }, tab = ''): string =>
  link(['job', job.namespace, job.resource, job.name], { tab, ns: parseRoute(globalThis.location?.hash ?? '').query.get('ns') ?? undefined });

export function go(target: string): void {
  location.hash = target;
}

/** Changes the query of the current page. Typing does not fill the browser's history. */
export function setQuery(changes: Record<string, string | undefined>): void {
  const route = parseRoute(location.hash);
  const query: Record<string, string | undefined> = { ...Object.fromEntries(route.query), ...changes };
  history.replaceState(null, '', link(route.path, query));
  window.dispatchEvent(new HashChangeEvent('hashchange'));
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const listener = (): void => setRoute(parseRoute(location.hash));
    window.addEventListener('hashchange', listener);
    return () => window.removeEventListener('hashchange', listener);
  }, []);
  return route;
}
