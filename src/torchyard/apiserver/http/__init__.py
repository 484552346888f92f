"""The HTTP/1.1 server: its limits, its connections, and aiohttp for connections that are upgraded.

Read in this order:
- `limits`: sizes, numbers and deadlines;
- `server`: the server, its connections and their deadlines;
- `listener`: accepts connections and shakes hands;
- `connection_table`: who is connected, and whose connection is closed when there are too many;
- `connection`: one connection: its requests, its user, its deadlines;
- `request_reader`: takes requests from the bytes of a connection;
- `request_head`: the heads of requests, parsed;
- `body_reader`, `chunked`: the bodies of requests that did not come with their heads; chunked bodies;
- `fair_queue`: whose request runs next;
- `response_writer`: writes whole responses and streams, no faster than the client reads;
- `response_head`: the heads of all responses, written;
- `write_buffer`: the writes of one event-loop iteration, sent together;
- `upgrade_handler`: aiohttp, for exec, attach and port-forward;
- `metrics`: connections and requests that wait, in Prometheus' text format.
"""
