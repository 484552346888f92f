// Everything that a page may try against the console at another origin: what it has read, or `nothing`.
// Whether something was done without being read, the test asks the server.
async (base) => {
  const root = new URL('.', base).href;
  const api = `${root}k8s/api/v1/namespaces`;
  const evil = JSON.stringify({ metadata: { name: 'evil' } });
  const own = { 'X-Torchyard-Console': '1' };
  const ask = async (url, options) => {
    try {
      const response = await fetch(url, { credentials: 'include', ...options });
      return response.type === 'opaque' ? 'nothing' : `status ${response.status}`;
    } catch {
      return 'nothing';
    }
  };
  const read = (look) => {
    try {
      return `read ${look()}`;
    } catch {
      return 'nothing';
    }
  };
  const load = (tag, attributes) =>
    new Promise((resolve) => {
      const element = Object.assign(document.createElement(tag), attributes);
      element.onload = () => resolve(tag === 'iframe' ? read(() => element.contentDocument.body.innerHTML) : 'loaded');
      element.onerror = () => resolve('nothing');
      document.body.append(element);
    });
  const results = {
    'a request': await ask(api, {}),
    'a request without CORS': await ask(api, { mode: 'no-cors' }),
    'a request with our header': await ask(api, { headers: own }),
    'a write without a preflight': await ask(api, { method: 'POST', mode: 'no-cors', body: evil }),
    'a write with our header': await ask(api, { method: 'POST', body: evil, headers: { ...own, 'Content-Type': 'application/json' } }),
    'a delete': await ask(`${api}/default`, { method: 'DELETE', headers: own }),
    'a sign-out': await ask(`${root}logout`, { method: 'POST', mode: 'no-cors' }),
    'a stream': await ask(`${root}streams`, { method: 'POST', mode: 'no-cors', body: '{}' }),
    'an event source': await new Promise((resolve) => {
      const source = new EventSource(`${api}?watch=true`, { withCredentials: true });
      source.onopen = () => resolve('opened');
      source.onerror = () => resolve('nothing');
    }),
    'a WebSocket': await new Promise((resolve) => {
      const socket = new WebSocket(`${api.replace('http', 'ws')}?watch=true`);
      socket.onopen = () => resolve('opened');
      socket.onerror = () => resolve('nothing');
    }),
    'a frame': await load('iframe', { src: root }),
    'a script': await load('script', { src: api }),
    'an image': await load('img', { src: api }),
    'a style sheet': await load('link', { rel: 'stylesheet', href: api }),
  };
  navigator.sendBeacon(api, evil);
  const answer = Object.assign(document.createElement('iframe'), { name: 'answer' });
  const submitted = new Promise((resolve) => {
    answer.onload = resolve;
  });
  const form = Object.assign(document.createElement('form'), { method: 'POST', action: api, enctype: 'text/plain', target: 'answer' });
  form.append(Object.assign(document.createElement('input'), { name: '{"metadata":{"name":"evil","a":"', value: '"}}' }));
  document.body.append(answer, form);
  form.submit();
  await submitted;
  const opened = window.open(root, 'opened');
  await fetch(location.href); // the window has left its first, empty document, which is ours
  results['a window'] = opened === null ? 'the browser opened none' : opened.closed ? 'nothing' : 'opened';
  if (results['a window'] === 'opened') {
    await new Promise((resolve) => {
      const look = () => (read(() => opened.document.URL) === 'read about:blank' ? requestAnimationFrame(look) : resolve());
      look();
    });
    results['a window'] = read(() => opened.document.title);
  }
  return results;
}
