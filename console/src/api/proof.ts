// What shows that a request comes from these pages and not from a program that has only received the cookie: browsers
// send cookies to every port of a machine. The key is given once, at sign-in. It is kept as a key that cannot be read
// out, in a database that belongs to this origin with its port; what is sent is an HMAC of it, held in memory.

const TEXT = new TextEncoder().encode('torchyard console');
const [DATABASE, STORE, ENTRY] = ['torchyard-console', 'keys', 'proof'];

let proof: Promise<string> | undefined;

/** The proof of the session; empty if this browser has none. */
export function currentProof(): Promise<string> {
  proof ??= load();
  return proof;
}

/** Reads the key again. */
export function readProof(): Promise<string> {
  proof = load();
  return proof;
}

/** Keeps the key of a new session. Without a database, the session lasts until the page is loaded again. */
export async function keepKey(hex: string): Promise<void> {
  const bytes = Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  const key = await crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
  proof = compute(key);
  await proof;
  await inStore('readwrite', (store) => store.put(key, ENTRY)).catch(() => undefined);
}

async function load(): Promise<string> {
  const key = await inStore<CryptoKey | undefined>('readonly', (store) => store.get(ENTRY) as IDBRequest<CryptoKey | undefined>).catch(() => undefined);
  return key ? compute(key) : '';
}

async function compute(key: CryptoKey): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.sign('HMAC', key, TEXT));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function inStore<T>(mode: IDBTransactionMode, act: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
    opening.onerror = () => reject(opening.error ?? new Error('the database cannot be opened'));
    opening.onsuccess = () => {
      const database = opening.result;
      const request = act(database.transaction(STORE, mode).objectStore(STORE));
      request.onsuccess = () => {
        database.close();
        resolve(request.result);
      };
      request.onerror = () => {
        database.close();
        reject(request.error ?? new Error('the key cannot be read'));
      };
    };
  });
}
