"""Which endpoint each client was given, for Services with `sessionAffinity: ClientIP`."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

Endpoint = tuple[str, int]
# More clients than this are not remembered: the oldest ones get another endpoint.
MAX_CLIENTS = 65536


class SessionAffinity:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._endpoints: dict[Hashable, tuple[Endpoint, float]] = {}  # and when it was used last; oldest first

    def get(self, key: Hashable, seconds: float, endpoints: tuple[Endpoint, ...]) -> Endpoint | None:
        """The endpoint of a client, while it is ready and was used within so many seconds."""
        endpoint, used = self._endpoints.get(key, (None, 0.0))
        if endpoint is None or endpoint not in endpoints or self._clock() - used >= seconds:
            return None
        return endpoint

    def put(self, key: Hashable, endpoint: Endpoint) -> None:
        self._endpoints.pop(key, None)
        if len(self._endpoints) >= MAX_CLIENTS:
            del self._endpoints[next(iter(self._endpoints))]
        self._endpoints[key] = (endpoint, self._clock())
