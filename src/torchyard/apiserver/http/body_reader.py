"""The body of one request, while it is being read."""

from __future__ import annotations

from torchyard.api import errors
from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.http.chunked import ChunkedDecoder, MalformedChunk
from torchyard.apiserver.http.limits import BODY_LIMIT
from torchyard.apiserver.http.request_head import CHUNKED, RequestHead


class BodyReader:
    def __init__(self, head: RequestHead, user: User, reserved: int) -> None:
        self.head = head
        self.user = user
        self.reserved = reserved  # bytes that count towards the limits
        self.is_complete = False
        self._decoder = ChunkedDecoder(BODY_LIMIT) if head.content_length == CHUNKED else None
        self._content = b""

    def feed(self, buffer: bytearray) -> bool:
        """Take the body from the front of the buffer; returns whether more of it is there. Raises 400 and 413."""
        if self._decoder is None:
            size = self.head.content_length
            if len(buffer) >= size:
                self._content = bytes(buffer[:size])
                del buffer[:size]
                self.is_complete = True
            return False
        try:
            is_unfinished = self._decoder.feed(buffer)
        except MalformedChunk as error:
            raise errors.bad_request(str(error)) from None
        if self._decoder.is_too_large:
            raise errors.too_large(BODY_LIMIT)
        if self._decoder.is_complete:
            self._content = self._decoder.body()
            self.is_complete = True
        return is_unfinished

    def content(self) -> bytes:
        return self._content
