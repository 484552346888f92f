// Serves the built pages and forwards to `kubectl proxy`, for work on the pages without a console server:
//   kubectl proxy --port 8001 & node dev/server.mjs 8080 http://127.0.0.1:8001
// It authenticates nobody: loopback only.
import { readFile } from 'node:fs/promises';
import { createServer, request as httpRequest } from 'node:http';
import { extname, join, normalize } from 'node:path';

const [port = '8080', upstream = 'http://127.0.0.1:8001'] = process.argv.slice(2);
const root = join(import.meta.dirname, '../../src/torchyard/console/static');
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'";
const streams = new Map();

function openPath(stream, { id, path }) {
  const put = (line) => stream.response.write(`${JSON.stringify({ id, ...line })}\n`);
  const isLog = path.split('?')[0].endsWith('/log');
  const request = httpRequest(upstream + path, (reply) => {
    let rest = '';
    reply.setEncoding('utf8');
    reply.on('data', (chunk) => {
      if (reply.statusCode >= 400) return void (rest += chunk);
      const lines = (rest + chunk).split('\n');
      rest = lines.pop();
      if (isLog && lines.length) put({ text: `${lines.join('\n')}\n` });
      if (!isLog) for (const line of lines) if (line) put({ event: JSON.parse(line) });
    });
    reply.on('end', () => {
      if (reply.statusCode >= 400) return put({ error: JSON.parse(rest) });
      if (isLog && rest) put({ text: rest });
      put({ end: true });
    });
  });
  request.on('error', () => {});
  request.end();
  stream.open.set(id, request);
}

async function handleStreams(url, body, response) {
  const change = JSON.parse(body || '{}');
  const identity = url.pathname.split('/')[3];
  let stream = streams.get(identity);
  if (!identity) {
    stream = { response, open: new Map() };
    const name = String(Math.random()).slice(2);
    streams.set(name, stream);
    response.writeHead(200, { 'Content-Type': 'application/x-ndjson' });
    response.write(`${JSON.stringify({ stream: name })}\n`);
    response.on('close', () => {
      streams.delete(name);
      for (const request of stream.open.values()) request.destroy();
    });
  }
  if (!stream) return void response.writeHead(404).end('{}');
  for (const id of change.close ?? []) stream.open.get(id)?.destroy();
  for (const opening of change.open ?? []) openPath(stream, opening);
  if (identity) response.writeHead(204).end();
}

function forward(request, url, body, response) {
  const headers = { accept: request.headers.accept ?? '*/*' };
  if (request.headers['content-type']) headers['content-type'] = request.headers['content-type'];
  const target = httpRequest(upstream + url.pathname.slice('/console/k8s'.length) + url.search, { method: request.method, headers }, (reply) => {
    response.writeHead(reply.statusCode, { 'Content-Type': reply.headers['content-type'] ?? 'text/plain' });
    reply.pipe(response);
  });
  target.on('error', (error) => response.writeHead(503).end(String(error)));
  target.end(body);
}

createServer(async (request, response) => {
  const url = new URL(request.url, 'http://localhost');
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (url.pathname.startsWith('/console/k8s/')) return forward(request, url, body, response);
  if (url.pathname.startsWith('/console/streams')) return handleStreams(url, body.toString(), response);
  if (url.pathname === '/console/session') {
    return response.end(JSON.stringify({ user: 'developer', groups: [], context: 'development', plane: false, version: 'dev' }));
  }
  const name = normalize(url.pathname.replace(/^\/console\/?/, '') || 'index.html');
  try {
    const content = await readFile(join(root, name));
    response.writeHead(200, { 'Content-Type': TYPES[extname(name)] ?? 'application/octet-stream', 'Content-Security-Policy': CSP });
    response.end(content);
  } catch {
    response.writeHead(404).end('{"message": "not found"}');
  }
}).listen(Number(port), '127.0.0.1', () => console.log(`http://127.0.0.1:${port}/console/`));
