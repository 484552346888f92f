"""Exceptions injected into controllers: at the points where they wait, and before or after their requests.

Each point is a line of `torchyard.controllers` or `torchyard.kube`. At one of its first visits, chosen by the seed, an
exception is raised there instead of the result. The server's own code is left alone: a request either fails before it
is made, or its answer is lost, and a watch fails at its start or during it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import torchyard
from torchyard.api.objects import Object
from torchyard.kube import supervisor
from torchyard.kube.client import ApiResponse
from torchyard.kube.local import LocalTransport

_ROOT = str(Path(torchyard.__file__).parent)
_TARGETS = (f"{_ROOT}/controllers/", f"{_ROOT}/kube/")
_EXEMPT = supervisor.__file__  # what restarts the others
_TRANSPORT = sys.modules[LocalTransport.__module__].__file__

_VISITS = (1, 1, 1, 2, 3)  # many points are visited only once or twice

Point = tuple[str, int]


class InjectedError(RuntimeError):
    """An error that no code expects."""


class Injector:
    """Decides at which visit of each point an error is raised. `stop` ends that."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._chosen: dict[tuple[str, Point], int] = {}
        self._visits: dict[tuple[str, Point], int] = {}
        self.raised: list[tuple[str, Point]] = []
        self._is_active = True

    def stop(self) -> None:
        self._is_active = False

    @property
    def points(self) -> int:
        """How many points were visited."""
        return len(self._visits)

    def strikes(self, kind: str, point: Point) -> bool:
        key = (kind, point)
        visit = self._visits[key] = self._visits.get(key, 0) + 1
        chosen = self._chosen.setdefault(key, self._random.choice(_VISITS))
        if not self._is_active or visit != chosen:
            return False
        self.raised.append(key)
        return True


class InjectedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine that may get an exception where it waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], injector: Injector) -> None:
        self._coroutine, self._injector = coroutine, injector
        self._waits = False

    def send(self, value: Any) -> Any:
        point = _waiting_point(self._coroutine) if self._waits else None
        self._waits = True
        if point is not None and self._injector.strikes("wait", point):
            return self._coroutine.throw(InjectedError(f"injected at {point[0]}:{point[1]}"))
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError("only tasks run it")


def _waiting_point(coroutine: Any) -> Point | None:
    """The innermost line of a controller that waits; None inside the server and in the supervisor."""
    point: Point | None = None
    while coroutine is not None:
        code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "ag_code", None)
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        if code is not None and frame is not None:
            name = code.co_filename
            if name.startswith(f"{_ROOT}/apiserver/") or name.startswith(f"{_ROOT}/yard/"):
                return None
            if name.startswith(_TARGETS):
                point = None if name == _EXEMPT else (name.removeprefix(f"{_ROOT}/"), frame.f_lineno)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return point


def task_factory(injector: Injector) -> Callable[..., asyncio.Task[Any]]:
    """A task factory for the event loop of a plane."""

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(InjectedCoroutine(coroutine, injector), loop=loop, **options)

    return make


def _caller() -> Point | None:
    """The line of a controller that makes the current request."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_TARGETS) and name not in (_TRANSPORT, f"{_ROOT}/kube/client.py"):
            return None if name == _EXEMPT else (name.removeprefix(f"{_ROOT}/"), frame.f_lineno)
        frame = frame.f_back
    return None


def injected_request(
    original: Callable[..., Awaitable[ApiResponse]], injector: Injector
) -> Callable[..., Awaitable[ApiResponse]]:
    """`LocalTransport.request` with errors before and after requests."""

    async def request(self: LocalTransport, method: str, path: str, **options: Any) -> ApiResponse:
        point = _caller()
        if point is not None and injector.strikes("before the request", point):
            raise InjectedError(f"injected before {method} {path}")
        response = await original(self, method, path, **options)
        if point is not None and injector.strikes("after the request", point):
            raise InjectedError(f"injected after {method} {path}")
        return response

    return request


def injected_watch(
    original: Callable[..., AsyncGenerator[list[Object], None]], injector: Injector
) -> Callable[..., AsyncGenerator[list[Object], None]]:
    """`LocalTransport.watch` with errors instead of the watch, and instead of a batch of events."""

    async def watch(self: LocalTransport, path: str, **options: Any) -> AsyncGenerator[list[Object], None]:
        point = (f"watch of {path.partition('?')[0]}", 0)
        if injector.strikes("before the watch", point):
            raise InjectedError(f"injected before the watch of {path}")
        async with aclosing(original(self, path, **options)) as batches:
            async for batch in batches:
                if injector.strikes("during the watch", point):
                    raise InjectedError(f"injected during the watch of {path}")
                yield batch

    return watch
