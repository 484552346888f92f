// The runs that a link to the comparison names.
import { findKind, type Resource } from '../api/kinds';
import { decode } from '../router';

export interface Run {
  kind: Resource;
  namespace: string;
  name: string;
}

export function readRuns(text: string): Run[] {
  const runs = text.split(',').filter(Boolean).map((part) => part.split('/').map(decode));
  const known = runs.flatMap(([namespace = '', resource = '', name = '']) => {
    const kind = findKind(resource);
    return kind && name ? [{ kind, namespace, name }] : [];
  });
  // A run that is named twice would be compared with itself.
  return known.filter((run, index) => known.findIndex((other) => other.kind === run.kind && other.namespace === run.namespace && other.name === run.name) === index);
}

/** The names of the runs; with their namespaces, and kinds, where names alone would be the same. */
export function titlesOf(runs: Run[]): string[] {
  const spellings = [(run: Run) => run.name, (run: Run) => `${run.namespace}/${run.name}`, (run: Run) => `${run.kind.kind} ${run.namespace}/${run.name}`];
  const unique = spellings.find((spell) => new Set(runs.map(spell)).size === runs.length);
  return runs.map(unique ?? ((run) => run.name));
}
