"""Who is connected, and whose connection is closed when there are too many.

A connection that has not authenticated itself is the first to go, the oldest one of the address that has most of them;
then an idle connection of the user who has most. Connections with a request under way are never closed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from torchyard.apiserver.http.limits import HttpLimits

log = logging.getLogger(__name__)

# How often the same thing is logged.
_LOG_SECONDS = 10.0


class ClientPeer(Protocol):
    """A connection, or one whose handshake is not complete."""

    address: str
    user_name: str  # empty: not authenticated
    idle_since: float

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        ...

    def evict(self) -> None: ...


class ConnectionTable:
    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self.peers: dict[ClientPeer, None] = {}  # in order of their arrival
        self._anonymous: dict[ClientPeer, None] = {}
        self.evicted = 0
        self.refused = 0
        self._logged_at = float("-inf")

    def add(self, peer: ClientPeer) -> None:
        self.peers[peer] = None
        self._anonymous[peer] = None

    def remove(self, peer: ClientPeer) -> None:
        self.peers.pop(peer, None)
        self._anonymous.pop(peer, None)

    def authenticated(self, peer: ClientPeer) -> None:
        self._anonymous.pop(peer, None)

    @property
    def unauthenticated_count(self) -> int:
        return len(self._anonymous)

    def make_room(self, *, is_short_of_files: bool) -> bool:
        """Make room for one more connection; False if there is none to close."""
        limits = self._limits
        if len(self._anonymous) >= limits.unauthenticated_connections:
            return self._evict(self._unauthenticated(), "too many unauthenticated connections")
        if len(self.peers) >= limits.connections or is_short_of_files:
            reason = "too many open files" if is_short_of_files else "too many connections"
            return self._evict(self._unauthenticated(), reason) or self._evict(self._idle(), reason)
        return True

    def refuse(self, address: str) -> None:
        self.refused += 1
        self._log("connection refused: address=%s connections=%d refused=%d", address, len(self.peers), self.refused)

    def _unauthenticated(self) -> list[ClientPeer]:
        return self._oldest_of_largest((peer for peer in self._anonymous if peer.is_idle), lambda peer: peer.address)

    def _idle(self) -> list[ClientPeer]:
        return self._oldest_of_largest((peer for peer in self.peers if peer.is_idle), lambda peer: peer.user_name)

    def _oldest_of_largest(self, peers: Iterable[ClientPeer], key: Callable[[ClientPeer], str]) -> list[ClientPeer]:
        """Those that have been idle longest, of the group with most peers.

        Several at once: a flood of connections would make the search for each of them expensive.
        """
        groups: dict[str, list[ClientPeer]] = {}
        for peer in peers:
            groups.setdefault(key(peer), []).append(peer)
        largest = max(groups.values(), key=len, default=[])
        return sorted(largest, key=lambda peer: peer.idle_since)[: 1 + len(largest) // 32]

    def _evict(self, peers: list[ClientPeer], reason: str) -> bool:
        if not peers:
            return False
        self.evicted += len(peers)
        self._log(
            "connections closed to make room: reason=%r closed=%d address=%s user=%r connections=%d evicted=%d",
            *(reason, len(peers), peers[0].address, peers[0].user_name, len(self.peers), self.evicted),
        )
        for peer in peers:
            self.remove(peer)
            peer.evict()
        return True

    def _log(self, message: str, *values: object) -> None:
        now = time.monotonic()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            log.warning(message, *values)
