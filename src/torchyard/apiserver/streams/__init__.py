"""exec, attach, port-forward: the streaming protocols of Kubernetes, over any duplex of bytes or messages.

`channels`, `spdy` and `forward` know neither HTTP nor processes: a caller brings the wire and what lies at the other
end (`ends`). Channel WebSockets of version 4 and 5, SPDY/3.1 raw or inside a WebSocket. `pods` ties them to requests.
"""
