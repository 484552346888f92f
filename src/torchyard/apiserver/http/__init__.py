"""The HTTP/1.1 server: a fast path for plain requests, aiohttp for all others.

Read in this order:
- `server`: the listening socket and its connections;
- `connection`: one connection of the fast path;
- `head`: request heads parsed, response heads written;
- `write_buffer`: the writes of one event-loop iteration, sent together;
- `fallback`: aiohttp, for upgrades, chunked bodies and malformed requests.
"""
