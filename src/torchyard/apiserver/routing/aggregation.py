"""Groups and versions that extension API servers serve."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from torchyard.api.objects import Object
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.wire.discovery import AggregatedApi


class Aggregation(Protocol):
    """Answers the requests to the groups and versions of APIServices."""

    def find(self, group: str, version: str) -> Object | None:
        """The APIService of a group and version; None if this server serves it itself."""
        ...

    def served(self) -> Iterable[AggregatedApi]: ...

    async def forward(self, api_service: Object, request: Request) -> Response:
        """The response to a request that is authorized."""
        ...
