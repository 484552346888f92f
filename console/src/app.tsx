// Signs in with the code of the link, then shows the pages or says how to get a link.
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ApiError, getJson, send, whenSignedOut } from './api/http';
import { keepKey } from './api/proof';
import type { Session } from './session';
import { Shell } from './shell';

type Status = { session: Session } | { signedOut: string } | { failed: string } | 'loading';

/** The one-time code of a login link. It leaves the address bar and the history at once. */
function takeCode(): string {
  const match = /^#login=([^&]+)/.exec(location.hash);
  if (match) history.replaceState(null, '', location.pathname);
  return match?.[1] ?? '';
}

async function signIn(): Promise<Session> {
  const code = takeCode();
  if (code) {
    const response = await send('login', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ code }) });
    await keepKey(response.headers.get('X-Torchyard-Console-Key') ?? '');
  }
  return getJson<Session>('session');
}

export function App(): JSX.Element {
  const [status, setStatus] = useState<Status>('loading');
  useEffect(() => {
    const load = (): void => {
      signIn()
        .then((session) => setStatus({ session }))
        .catch((error: unknown) => {
          const refused = error instanceof ApiError && error.status >= 400 && error.status < 500;
          setStatus(refused ? { signedOut: error.message } : { failed: String(error instanceof Error ? error.message : error) });
        });
    };
    whenSignedOut(() => setStatus({ signedOut: 'the session has ended' }));
    load();
    // Another link, opened in this window, only changes the fragment.
    const changed = (): void => {
      if (location.hash.startsWith('#login=')) load();
    };
    window.addEventListener('hashchange', changed);
    return () => window.removeEventListener('hashchange', changed);
  }, []);
  if (status === 'loading') return <p class="empty" role="status">Loading…</p>;
  if ('session' in status) return <Shell session={status.session} />;
  return (
    <main class="sign-in">
      <div class="card">
        <h1>Sign in</h1>
        {'signedOut' in status ? (
          <>
            <p class="muted">The console opens with a link that works once. Run this command to get one:</p>
            <pre>yard console</pre>
            <p class="muted">{status.signedOut}</p>
          </>
        ) : (
          <>
            <p class="notice failed" role="alert">{status.failed}</p>
            <button onClick={() => location.reload()}>Try again</button>
          </>
        )}
      </div>
    </main>
  );
}
