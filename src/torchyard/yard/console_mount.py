"""The place of the console in the API server. Its modules are loaded with the first request to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchyard.apiserver.access.authentication import User
from torchyard.apiserver.request.request import Query, Request
from torchyard.apiserver.request.response import Response
from torchyard.apiserver.routing.router import Router
from torchyard.yard.sample_collector import SampleCollector
from torchyard.yard.settings import PlaneSettings

if TYPE_CHECKING:
    from torchyard.yard.plane_console import PlaneConsole

PREFIX = "/console"


class ConsoleMount:
    """`hosts` are the names of this server: those of its certificate."""

    def __init__(
        self, router: Router, settings: PlaneSettings, samples: SampleCollector, *, hosts: frozenset[str]
    ) -> None:
        self._router, self._settings, self._samples, self._hosts = router, settings, samples, hosts
        self._loaded: PlaneConsole | None = None

    def serves(self, path: str) -> bool:
        return path.startswith(PREFIX) and (len(path) == len(PREFIX) or path[len(PREFIX)] == "/")

    def authenticate(self, path: str, headers: Mapping[str, str]) -> User | None:
        return self._console().authenticate(headers) if "Cookie" in headers else None

    def authorize(self, method: str, path: str, query: Query, user: User, size: int) -> None:
        self._console().authorize(method, path.removeprefix(PREFIX), query, user, size)

    async def handle(self, request: Request) -> Response:
        return await self._console().handle(request, request.path.removeprefix(PREFIX))

    def _console(self) -> PlaneConsole:
        if self._loaded is None:
            from torchyard.yard.plane_console import PlaneConsole

            self._loaded = PlaneConsole(self._router, self._settings, self._samples, hosts=self._hosts)
        return self._loaded
