"""An application below a path of its own, such as the web console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response


class MountedApp(Protocol):
    """Answers all requests below its prefix, those of anonymous users too. Paths still have their escapes."""

    def serves(self, path: str) -> bool: ...

    def authenticate(self, path: str, headers: Mapping[str, str]) -> User | None:
        """The user of a request without credentials of the API server, such as one with a cookie."""
        ...

    def authorize(self, method: str, path: str, query: Query, user: User, size: int) -> None:
        """Raise a `StatusError` unless the user may send a body of this size, which is negative if unknown."""
        ...

    async def handle(self, request: Request) -> Response: ...
