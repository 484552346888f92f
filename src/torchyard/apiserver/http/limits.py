"""The limits of the HTTP server. Deadlines and sizes are kube-apiserver's unless a comment says otherwise."""

from __future__ import annotations

from dataclasses import dataclass

BODY_LIMIT = 3 << 20
MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class HttpLimits:
    # Seconds for the TLS handshake, and for the head of a request: Go's ReadHeaderTimeout covers both.
    handshake_seconds: float = 32.0
    head_seconds: float = 32.0
    # Seconds without a request after which a connection is closed.
    idle_seconds: float = 90.0
    # Seconds for the body of a request, and for a client to read a response: the request timeout.
    body_seconds: float = 60.0
    response_seconds: float = 60.0
    # Seconds without reading after which a client loses its response to another request of the same user.
    stalled_seconds: float = 2.0
    # Seconds that a client has to read a rejection before the connection is closed under its unread body.
    linger_seconds: float = 1.0
    head_bytes: int = MEGABYTE
    # Heads longer than this are counted; all of them together are limited. This limit is ours.
    counted_head_bytes: int = 16 << 10
    total_head_bytes: int = 64 * MEGABYTE
    # Bodies that are being read, for one user and for all. These limits are ours.
    user_body_bytes: int = 64 * MEGABYTE
    total_body_bytes: int = 256 * MEGABYTE
    # Connections in all, those without an authenticated request, and those of one user. These limits are ours.
    connections: int = 8192
    unauthenticated_connections: int = 1024
    user_connections: int = 4096
    # Requests of one user that wait for their turn, and how long they wait.
    queue_length: int = 512
    queue_seconds: float = 15.0
    # How long requests may run before the queue decides again whose turn it is.
    slice_seconds: float = 0.01
    # Responses that wait for their clients to read them, for one user and for all. These limits are ours.
    user_response_bytes: int = 64 * MEGABYTE
    total_response_bytes: int = 256 * MEGABYTE

    @property
    def sweep_seconds(self) -> float:
        """How often deadlines are checked."""
        deadlines = (self.head_seconds, self.idle_seconds, self.body_seconds, self.response_seconds, self.queue_seconds)
        return min(2.0, min(deadlines) / 4)


def limits_for(open_files: int, *, connections: int = 0) -> HttpLimits:
    """The limits of a process that may open so many files; `connections` is the number asked for, 0 for the default.

    A quarter of the files, at most 512, is left to the store, the pods and everything else.
    """
    available = max(16, open_files - max(32, min(512, open_files // 4)))
    total = min(connections or 32768, available)
    return HttpLimits(
        connections=total,
        unauthenticated_connections=min(1024, max(8, total // 2)),
        user_connections=max(8, total // 2),
    )
