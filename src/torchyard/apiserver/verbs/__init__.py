"""One verb per file. A verb is handed the server's parts and a call, and answers a record or raises a Status."""
