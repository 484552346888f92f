// Kubernetes quantities: `500m`, `2Gi`, `1500000n`.

const FACTORS: Record<string, number> = {
  n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** NaN if the text is not a quantity. */
export function parseQuantity(text: string | number | undefined): number {
  if (typeof text === 'number') return text;
  const match = /^([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([numkKMGTPE]i?)?$/.exec(text ?? '');
  const factor = match ? FACTORS[match[2] ?? ''] : undefined;
  return match && factor !== undefined ? Number(match[1]) * factor : NaN;
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(value: number): string {
  if (!Number.isFinite(value)) return '–';
  let unit = 0;
  let rest = value;
  while (Math.abs(rest) >= 1024 && unit < UNITS.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${rest >= 100 || unit === 0 ? rest.toFixed(0) : rest.toPrecision(3)} ${UNITS[unit]}`;
}

/** At most four digits, without zeros at the end. */
export function short(value: number | null): string {
  if (value === null) return 'NaN'; // JSON has no other word for it
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

/** Cores in use: thousandths are noise above one. */
export const cores = (value: number): string => (Number.isFinite(value) ? String(Number(value.toFixed(value < 1 ? 3 : 2))) : '–');

const isBytes = (resource: string): boolean => /memory|storage|hugepages/.test(resource);

/** An amount of a resource in its own unit. */
export const amount = (resource: string, value: number): string => (isBytes(resource) ? bytes(value) : short(value));

/** Adds the amounts of several lists of resources. */
export function sum(lists: (Record<string, string> | undefined)[]): Record<string, number> {
  const total: Record<string, number> = {};
  for (const list of lists) {
    for (const [name, text] of Object.entries(list ?? {})) {
      const value = parseQuantity(text);
      if (Number.isFinite(value)) total[name] = (total[name] ?? 0) + value;
    }
  }
  return total;
}
