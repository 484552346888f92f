"""How many connections the node holds for pods: each takes open files of the plane, which a pod must not exhaust."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections import Counter

log = logging.getLogger(__name__)

_PER_POD = 4096
_RETRY_SECONDS = 0.1


class ConnectionLimit:
    """Counts connections by the address of the pod: a sixteenth of the files by default, for one pod half of that."""

    def __init__(self, total: int | None = None) -> None:
        self._total = total or max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 16)
        self._per_pod = min(_PER_POD, max(8, self._total // 2))
        self._open: Counter[str] = Counter()
        self._refused: set[str] = set()

    def acquire(self, pod: str) -> bool:
        """Count one more connection; False if the pod, or all pods together, have too many."""
        if self._open[pod] >= self._per_pod or self._open.total() >= self._total:
            if pod not in self._refused:  # once, until it has none
                self._refused.add(pod)
                log.warning("too many connections: pod=%s connections=%d", pod, self._open[pod])
            return False
        self._open[pod] += 1
        return True

    def release(self, pod: str, _: object = None) -> None:
        """Count one less; the second argument is for callbacks of tasks."""
        self._open[pod] -= 1
        if self._open[pod] <= 0:
            del self._open[pod]
            self._refused.discard(pod)


async def accept(server: socket.socket, limit: ConnectionLimit) -> tuple[socket.socket, str]:
    """The next connection within the limit, and the pod's address. Others are closed at once.

    Not `loop.sock_accept`: it can lose a connection that it accepts while it is being cancelled.
    """
    while True:
        try:
            client, address = server.accept()
        except BlockingIOError:
            await _readable(server)
            continue
        except OSError as error:
            # No files left, or the client has gone: neither ends the server.
            log.warning("cannot accept a connection: error=%r", str(error))
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        if limit.acquire(address[0]):
            client.setblocking(False)
            return client, address[0]
        with contextlib.suppress(OSError):
            client.close()


def close_when_done(client: socket.socket, task: asyncio.Task[None]) -> None:
    """Close a connection with its task, even if that was cancelled before it ran."""
    task.add_done_callback(lambda _: client.close())


async def _readable(server: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(server, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(server)
