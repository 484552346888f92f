// The budget of the first screen: what index.html loads before the first page is drawn, compressed.
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

const BUDGET = 100_000;
const root = join(import.meta.dirname, '../../src/torchyard/console/static');
const html = readFileSync(join(root, 'index.html'), 'utf8');
const first = ['index.html', ...[...html.matchAll(/(?:src|href)="\.\/([^"]+)"/g)].map((match) => match[1])];
// Modules that a module of the first screen imports, but not those that it loads with import().
for (const name of first) {
  if (!name.endsWith('.js')) continue;
  for (const match of readFileSync(join(root, name), 'utf8').matchAll(/(?:import|from)\s*"\.\/([^"]+\.js)"/g)) {
    if (!first.includes(`assets/${match[1]}`)) first.push(`assets/${match[1]}`);
  }
}
const packed = (name) => gzipSync(readFileSync(join(root, name)), { level: 9 }).length;

let total = 0;
for (const name of first) {
  const size = packed(name);
  total += size;
  console.log(`${String(size).padStart(8)}  ${name}`);
}
for (const name of readdirSync(join(root, 'assets')).map((file) => `assets/${file}`)) {
  if (!first.includes(name)) console.log(`${String(packed(name)).padStart(8)}  ${name} (loaded when needed)`);
}
console.log(`first screen: ${total} bytes compressed, budget ${BUDGET}`);
if (total > BUDGET) {
  console.error(`The first screen is ${total - BUDGET} bytes over its budget: load a part of it with import().`);
  process.exit(1);
}
