"""A tiny synchronous HTTP client for tests that judge every byte a Kubernetes client would see.

It adds the bearer token and nothing else; the rest of a request is what the test wrote.
"""

from __future__ import annotations

import http.client
import json
import queue
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

Query = Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """A response as it was on the wire."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @cached_property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def reason(self) -> str:
        """The machine-readable reason of a Status."""
        return str(self.json.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.json.get("message", ""))

    @property
    def causes(self) -> list[dict[str, str]]:
        causes: list[dict[str, str]] = self.json.get("details", {}).get("causes", [])
        return causes

    @property
    def warnings(self) -> list[str]:
        return self.headers.get_all("Warning") or []

    def __repr__(self) -> str:
        return f"<{self.status} {self.body[:2000]!r}>"


class Watch:
    """One open watch. A thread reads lines, so that a test can wait for the next event with a time limit."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self._connection = connection
        self._socket: socket.socket | None = connection.sock
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.refusal: Answer | None = None
        if response.status == 200:
            self._reader = threading.Thread(target=self._read, args=(response,), daemon=True)
            self._reader.start()
        else:
            self.refusal = Answer(response.status, response.headers, response.read())
            self._events.put(None)

    def _read(self, response: http.client.HTTPResponse) -> None:
        with suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            while line := response.readline():
                self._events.put(json.loads(line))
        self._events.put(None)

    def next(self, timeout: float = 15) -> dict[str, Any]:
        """The next event; AssertionError when none comes in time or the server ended the stream."""
        event = self.next_or_end(timeout)
        assert event is not None, "the server ended the watch"
        return event

    def next_or_end(self, timeout: float = 15) -> dict[str, Any] | None:
        """The next event, or None when the server ended the stream."""
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"no watch event within {timeout} s") from None

    def quiet(self, seconds: float = 0.3) -> bool:
        """Whether no event arrives for a moment."""
        try:
            event = self._events.get(timeout=seconds)
        except queue.Empty:
            return True
        self._events.put(event)
        return False

    def take(self, count: int, timeout: float = 15) -> list[dict[str, Any]]:
        return [self.next(timeout) for _ in range(count)]

    def until_end(self, timeout: float = 15) -> Iterator[dict[str, Any]]:
        while (event := self.next_or_end(timeout)) is not None:
            yield event

    def close(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _PersistentConnection:
    """A connection that is closed with its thread or its client."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        self.connection.close()


@dataclass(frozen=True)
class Client:
    """Requests to one server as one user. Threads may share it; each keeps its own connection."""

    url: str
    token: str = ""
    ca: str = ""
    certificate: tuple[str, str] | None = None  # paths of a client certificate and its key
    timeout: float = 30

    def as_user(self, token: str, certificate: tuple[str, str] | None = None) -> Client:
        return replace(self, token=token, certificate=certificate)

    @cached_property
    def _local(self) -> threading.local:
        return threading.local()

    @cached_property
    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca or None)
        if self.certificate is not None:
            context.load_cert_chain(*self.certificate)
        return context

    def connect(self, timeout: float | None = None) -> http.client.HTTPConnection:
        """A connection of its own."""
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port or 443
        limit = self.timeout if timeout is None else timeout
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=limit)
        return http.client.HTTPSConnection(host, port, timeout=limit, context=self._context)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request. A body that is not bytes or str is sent as JSON."""
        target, data, sent = self._prepare(path, body, query, headers)
        for fresh in (False, True):
            connection = self._persistent_connection(fresh=fresh).connection
            try:
                connection.request(method, target, data, sent)
                response = connection.getresponse()
                return Answer(response.status, response.headers, response.read())
            except (
                http.client.RemoteDisconnected,
                ConnectionResetError,
                BrokenPipeError,
                http.client.CannotSendRequest,
                ssl.SSLEOFError,
            ):
                # The server may have closed an idle connection; only then is the request sent again.
                connection.close()
                if fresh:
                    raise
            except BaseException:
                connection.close()
                raise
        raise AssertionError("unreachable")

    def once(self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> Answer:
        """Send one request, and never a second time, for tests that count acknowledgements."""
        target, data, sent = self._prepare(path, body, None, headers)
        connection = self._persistent_connection(fresh=False).connection
        try:
            connection.request(method, target, data, sent)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        except BaseException:
            connection.close()
            raise

    def get(self, path: str, **more: Any) -> Answer:
        return self.request("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.request("POST", path, body, **more)

    def put(self, path: str, body: Any, **more: Any) -> Answer:
        return self.request("PUT", path, body, **more)

    def delete(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.request("DELETE", path, body, **more)

    def patch(self, path: str, body: Any, kind: str = MERGE, *, query: Query | None = None) -> Answer:
        return self.request("PATCH", path, body, query=query, headers={"Content-Type": kind})

    def apply(self, path: str, body: Any, manager: str = "tester", *, query: Query | None = None) -> Answer:
        return self.patch(path, body, APPLY, query={"fieldManager": manager, **(query or {})})

    def watch(
        self,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> Watch:
        """Open a watch (`watch=true` is added unless the query says otherwise)."""
        target, _, sent = self._prepare(path, None, {"watch": "true", **(query or {})}, headers)
        connection = self.connect(timeout)
        try:
            connection.request("GET", target, headers=sent)
            return Watch(connection, connection.getresponse())
        except BaseException:
            connection.close()
            raise

    def _persistent_connection(self, *, fresh: bool) -> _PersistentConnection:
        connection: _PersistentConnection | None = getattr(self._local, "connection", None)
        if connection is None or fresh:
            connection = self._local.connection = _PersistentConnection(self.connect())
        return connection

    def _prepare(
        self, path: str, body: Any, query: Query | None, headers: Mapping[str, str] | None
    ) -> tuple[str, bytes | None, dict[str, str]]:
        target = path
        if query:
            target += ("&" if "?" in path else "?") + urlencode(query, doseq=True, quote_via=quote)
        sent = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        data: bytes | None
        if body is None or isinstance(body, bytes):
            data = body
        elif isinstance(body, str):
            data = body.encode()
        else:
            data = json.dumps(body).encode()
            sent["Content-Type"] = JSON
        sent.update(headers or {})
        return target, data, sent
