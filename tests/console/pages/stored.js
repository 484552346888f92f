// What the pages have left where a script, or someone who looks over a shoulder, can read it.
async () => {
  const databases = {};
  for (const { name } of await indexedDB.databases()) {
    const database = await new Promise((resolve) => {
      const opening = indexedDB.open(name);
      opening.onsuccess = () => resolve(opening.result);
    });
    for (const store of database.objectStoreNames) {
      const values = await new Promise((resolve) => {
        const reading = database.transaction(store).objectStore(store).getAll();
        reading.onsuccess = () => resolve(reading.result);
      });
      const described = values.map((value) => (value instanceof CryptoKey ? `a key, extractable: ${value.extractable}` : value));
      databases[`${name}/${store}`] = described;
    }
  }
  return JSON.stringify({
    databases,
    local: { ...localStorage },
    session: { ...sessionStorage },
    caches: await caches.keys(),
    cookie: document.cookie,
    name: window.name,
    url: location.href,
    referrer: document.referrer,
    html: document.documentElement.outerHTML,
  });
}
