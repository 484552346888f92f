"""Takes requests from the bytes that a client sends, as they come."""

from __future__ import annotations

from typing import Protocol

from torchyard.apiserver.http.limits import BODY_LIMIT, HttpLimits
from torchyard.apiserver.http.request_head import (
    HEAD_TOO_LARGE,
    RequestHead,
    find_head_end,
    parse_head,
    parse_plain_head,
)


class HeadBudget(Protocol):
    """What the heads of all connections share."""

    limits: HttpLimits
    head_bytes: int  # of long heads that are incomplete


class RequestReader:
    """The bytes of one connection that are not handled yet, and the requests at their front."""

    def __init__(self, budget: HeadBudget) -> None:
        self.buffer = bytearray()
        self._budget = budget
        self._searched = 0  # how much of the buffer has no end of a head
        self._counted = 0  # of the budget
        self._last_method = ""

    @property
    def is_waiting_for_head(self) -> bool:
        """Whether a head has begun to arrive and is incomplete."""
        return self._searched > 0

    def next_request(self, data: bytes = b"") -> tuple[RequestHead, bytes | None] | None:
        """Add bytes, and take the next request, once its head is complete. Raises `MalformedRequest`.

        The body is None if it is incomplete or too large: it remains in the buffer, from its first byte on. A request
        that upgrades the connection remains there with its head.
        """
        buffer = self.buffer
        if not buffer and data.endswith(b"\r\n\r\n"):  # nearly always these bytes are one head
            head = parse_plain_head(data)
            if head is not None and not head.content_length:
                self._last_method = head.method
                return head, b""
        buffer += data
        end = buffer.find(b"\r\n\r\n", self._searched) + 4
        head = parse_plain_head(bytes(buffer[:end])) if end >= 4 else None
        if head is None:
            end = self._find_special_end()
            if end < 0:
                return None
            head = parse_head(bytes(buffer[:end]))
            if head.is_upgrade:
                return head, None
        size = head.content_length
        is_complete = 0 <= size <= len(buffer) - end and size <= BODY_LIMIT
        body = bytes(buffer[end : end + size]) if is_complete else None
        del buffer[: end + size if is_complete else end]
        self._last_method = head.method
        self._searched = 0
        if self._counted:
            self._count(0)
        return head, body

    def clear(self) -> None:
        """Forget all bytes: nothing the client has sent counts any more."""
        self.buffer = bytearray()
        self._count(0)

    def _find_special_end(self) -> int:
        """Where the head of a request that is not plain ends, or -1 if it is incomplete."""
        buffer, limits = self.buffer, self._budget.limits
        if self._last_method == "POST":  # as Go, for old clients that send a line break after the body
            strays = len(buffer[:4]) - len(buffer[:4].lstrip(b"\r\n"))
            del buffer[:strays]
        end = find_head_end(buffer, self._searched)
        size = len(buffer) if end < 0 else end
        if end < 0:
            self._searched = max(0, size - 3)
            self._count(size)
        if size > limits.head_bytes or (end < 0 and self._budget.head_bytes > limits.total_head_bytes):
            raise HEAD_TOO_LARGE
        return end

    def _count(self, size: int) -> None:
        counted = size if size > self._budget.limits.counted_head_bytes else 0
        if counted != self._counted:
            self._budget.head_bytes += counted - self._counted
            self._counted = counted
