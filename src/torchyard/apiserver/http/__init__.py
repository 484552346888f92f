"""The HTTP/1.1 server: a fast path for plain requests, aiohttp for all others.

Read in this order:
- `server`: the listening socket and its connections;
- `connection`: one connection of the fast path;
- `request_head`: the heads of plain requests, parsed;
- `response_head`: the heads of all responses, written;
- `write_buffer`: the writes of one event-loop iteration, sent together;
- `fallback`: aiohttp, for upgrades, chunked bodies, old versions and malformed requests.
"""
