"""Many watches and logs in one response: a browser opens only six connections to a server of HTTP/1.1.

`POST /streams` begins a response that lasts until the browser closes it; `POST /streams/ID` opens and closes watches
and logs in it. Both have the body `{"open": [{"id": "pods", "path": "/api/v1/pods?watch=true"}], "close": ["logs"]}`.
The response is one JSON document a line: `{"stream": ID}` first, then for each open path

- `{"id": "pods", "event": {"type": "ADDED", …}}`: an event of a watch, as the API server wrote it;
- `{"id": "logs", "text": "…"}`: a piece of a log;
- `{"id": "pods", "error": {"kind": "Status", …}}`: the request failed, now or after it began;
- `{"id": "pods", "end": true}`: the API server ended it. Nothing else follows for this id.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qs

import orjson

from torchyard.api import errors
from torchyard.api.errors import StatusError, YardError
from torchyard.console.kubernetes_path import check_kubernetes_path
from torchyard.console.request import ConsoleBackend, ConsoleRequest, ConsoleResponse, KubernetesRequest

MAX_OPEN = 128  # watches and logs of one response
MAX_RESPONSES = 64  # of one user
MAX_ID = 128
# Lines that wait for the browser. Then the watches and logs wait too, and with them the API server.
_MAX_WAITING = 256

CallerT = TypeVar("CallerT")


class _Opening(NamedTuple):
    id: str
    request: KubernetesRequest
    is_log: bool


class StreamHub(Generic[CallerT]):
    """The responses that are under way, by their ids, which only those who began them know."""

    def __init__(self, backend: ConsoleBackend[CallerT], user_of: Callable[[CallerT], object]) -> None:
        self._backend, self._user_of = backend, user_of
        self._responses: dict[str, _Multiplexer[CallerT]] = {}

    async def handle(self, request: ConsoleRequest, caller: CallerT) -> ConsoleResponse:
        if request.method != "POST":
            raise errors.method_not_allowed()
        openings, closings = _read_change(request.body)
        identity = request.path.removeprefix("/streams").removeprefix("/")
        if identity:
            multiplexer = self._responses.get(identity)
            if multiplexer is None or multiplexer.caller != caller:
                raise StatusError(404, "NotFound", "this stream has ended; begin another with POST /console/streams")
            multiplexer.change(openings, closings)
            return ConsoleResponse(204)
        user = self._user_of(caller)
        if sum(self._user_of(other.caller) == user for other in self._responses.values()) >= MAX_RESPONSES:
            raise errors.too_many_requests("too many pages of the console are open")
        return ConsoleResponse(200, self._run(caller, openings), "application/x-ndjson")

    async def _run(self, caller: CallerT, openings: list[_Opening]) -> AsyncGenerator[bytes, None]:
        identity = secrets.token_urlsafe(16)
        multiplexer = self._responses[identity] = _Multiplexer(self._backend, caller)
        try:
            yield orjson.dumps({"stream": identity}, option=orjson.OPT_APPEND_NEWLINE)
            multiplexer.change(openings, [])
            async with aclosing(multiplexer.lines()) as lines:
                async for chunk in lines:
                    yield chunk
        finally:
            del self._responses[identity]
            await multiplexer.close()


class _Multiplexer(Generic[CallerT]):
    def __init__(self, backend: ConsoleBackend[CallerT], caller: CallerT) -> None:
        self.caller = caller
        self._backend = backend
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(_MAX_WAITING)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def change(self, openings: list[_Opening], closings: list[str]) -> None:
        for identity in closings:
            task = self._tasks.pop(identity, None)
            if task is not None:
                task.cancel()
        repeated = [opening.id for opening in openings if opening.id in self._tasks]
        if repeated:
            raise errors.bad_request(f"open[].id: {repeated[0]!r} is open already; close it first")
        if len(self._tasks) + len(openings) > MAX_OPEN:
            raise errors.bad_request(f"open: at most {MAX_OPEN} watches and logs may be open")
        for opening in openings:
            task = asyncio.get_running_loop().create_task(self._follow(opening))
            self._tasks[opening.id] = task
            task.add_done_callback(lambda done, identity=opening.id: self._forget(identity, done))  # type: ignore[misc]

    def _forget(self, identity: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(identity) is task:
            del self._tasks[identity]
        if not task.cancelled():
            task.result()  # a defect is logged by the loop, not lost

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """The lines of all that is open; those that wait leave together."""
        queue = self._queue
        while True:
            batch = [await queue.get()]
            while not queue.empty():
                batch.append(queue.get_nowait())
            yield b"".join(batch)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, opening: _Opening) -> None:
        try:
            await self._copy(opening)
            await self._put(opening, end=True)
        except StatusError as error:
            await self._put(opening, error=error.body())
        except YardError as error:
            await self._put(opening, error=errors.unavailable(error.message).body())

    async def _copy(self, opening: _Opening) -> None:
        response = await self._backend.kubernetes(self.caller, opening.request)
        body = response.body
        if isinstance(body, bytes):
            if response.status >= 400:
                await self._put(opening, error=_status(response.status, body))
            elif body:
                await self._put(opening, text=body.decode(errors="replace"))
            return
        async with aclosing(body) as chunks:
            if opening.is_log:
                await self._copy_log(opening, chunks)
            else:
                await self._copy_events(opening, chunks)

    async def _copy_events(self, opening: _Opening, chunks: AsyncGenerator[bytes, None]) -> None:
        """Events as they came: they are not decoded here."""
        start, rest = b'{"id":' + orjson.dumps(opening.id) + b',"event":', b""
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            events = b"".join(start + line + b"}\n" for line in lines if line)
            if events:
                await self._queue.put(events)

    async def _copy_log(self, opening: _Opening, chunks: AsyncGenerator[bytes, None]) -> None:
        """Pieces that end with a line, so that no character is cut; the last one may not."""
        rest = b""
        async for chunk in chunks:
            lines, newline, rest_of_chunk = chunk.rpartition(b"\n")
            if newline:
                await self._put(opening, text=(rest + lines + newline).decode(errors="replace"))
                rest = rest_of_chunk
            else:
                rest += chunk
            if len(rest) > 1 << 20:  # a program that prints no newline
                await self._put(opening, text=rest.decode(errors="replace"))
                rest = b""
        if rest:
            await self._put(opening, text=rest.decode(errors="replace"))

    async def _put(self, opening: _Opening, **document: Any) -> None:
        await self._queue.put(orjson.dumps({"id": opening.id, **document}, option=orjson.OPT_APPEND_NEWLINE))


def _status(status: int, body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return StatusError(status, "", body[:500].decode(errors="replace")).body()


def _read_change(body: bytes) -> tuple[list[_Opening], list[str]]:
    try:
        document = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"the body is not valid JSON: {error}") from None
    if not isinstance(document, dict) or document.keys() - {"open", "close"}:
        raise errors.bad_request('the body must be {"open": [{"id": "…", "path": "…"}], "close": ["…"]}')
    openings, closings = document.get("open") or [], document.get("close") or []
    if not isinstance(openings, list) or not isinstance(closings, list) or len(openings) > MAX_OPEN:
        raise errors.bad_request(f"open and close must be lists, of at most {MAX_OPEN} items")
    return [_read_opening(opening) for opening in openings], [str(identity) for identity in closings]


def _read_opening(opening: Any) -> _Opening:
    identity = opening.get("id") if isinstance(opening, dict) else None
    target = opening.get("path") if isinstance(opening, dict) else None
    if not isinstance(identity, str) or not 0 < len(identity) <= MAX_ID or not isinstance(target, str):
        raise errors.bad_request(f"open[]: id (at most {MAX_ID} characters) and path must be strings")
    path, _, query = target.partition("?")
    check_kubernetes_path(path, query)
    is_log = path.endswith("/log")
    if not is_log and parse_qs(query, keep_blank_values=True).get("watch", ["0"])[0] not in ("1", "true"):
        raise errors.bad_request(f"open[].path: {target!r} is neither a watch (watch=true) nor a log")
    return _Opening(identity, KubernetesRequest("GET", path, query, "application/json, */*", "", b""), is_log)
