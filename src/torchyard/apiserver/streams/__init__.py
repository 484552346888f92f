"""The streaming protocols of Kubernetes for exec, attach, port-forward and logs.

Supports channel WebSockets of version 4 and 5, and SPDY/3.1, raw or inside a WebSocket. The protocol modules do not
depend on HTTP or processes; callers provide both ends through `interfaces`.

Read in this order:

- `pod_handler`: handles the subresources log, exec, attach and portforward; the server calls this.
- `log_options`: the query parameters of a log request.
- `interfaces`: the connection to the client, and the process or port in the pod.
- `upgrade`: upgrades an HTTP connection to a WebSocket or a raw connection.
- `websocket_channels`: remote command and port-forward over channel WebSockets.
- `websocket_responses`: watches and logs over WebSockets.
- `spdy_handlers`: remote command and port-forward over SPDY.
- `spdy`, `spdy_dictionary`: SPDY frames, streams and header compression.
"""
