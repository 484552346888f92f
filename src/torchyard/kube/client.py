"""One client for every Kubernetes API: the embedded server in this process, or a real one far away.

Objects are plain dicts. The client knows paths, verbs and errors; it knows no kind. How bytes travel is the
transport's business.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import urlencode

import orjson

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object

PatchType = Literal["merge", "json", "strategic", "apply"]

JSON = "application/json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_PATCH_MEDIA: dict[PatchType, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiResponse(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]  # names in lower case


class Transport(Protocol):
    """Carries requests. Raises `Unreachable` when there is no answer."""

    async def request(
        self, method: str, path: str, *, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> ApiResponse: ...

    def stream(self, path: str, *, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        """The pieces of a streamed answer; raises the Status of a refusal."""
        ...

    def watch(self, path: str, *, accept: str = JSON) -> AsyncGenerator[list[Object], None]:
        """The events of a watch, as many at a time as there are; raises the Status of a refusal."""
        ...

    async def close(self) -> None: ...


class Unreachable(YardError):
    """The API server did not answer."""

    code = "Unreachable"
    temporary = True


class ObjectList(NamedTuple):
    items: list[Object]
    revision: str


class WatchEvent(NamedTuple):
    change: str  # ADDED, MODIFIED, DELETED, BOOKMARK
    object: Object


class Client:
    """The verbs of the Kubernetes API. `manager` names the writer in managed fields."""

    PAGE = 500

    def __init__(self, transport: Transport, *, manager: str) -> None:
        self._transport = transport
        # what we write names no field twice and none that nobody knows: the server need not look for it
        self._writes = urlencode({"fieldManager": manager, "fieldValidation": "Ignore"})

    async def close(self) -> None:
        await self._transport.close()

    async def get(self, ref: GroupVersionResource, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        return await self._send("GET", ref.path(namespace, name, subresource))

    async def find(self, ref: GroupVersionResource, name: str, namespace: str = "") -> Object | None:
        """Like `get`, but None when there is no such object."""
        try:
            return await self.get(ref, name, namespace)
        except StatusError as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self,
        ref: GroupVersionResource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int | None = None,
        metadata_only: bool = False,
    ) -> ObjectList:
        """Everything that matches, read page by page."""
        query: dict[str, str] = {"limit": str(self.PAGE if page is None else page)}
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        path = ref.path(namespace)
        items: list[Object] = []
        while True:
            answer = await self._send("GET", _with(path, query), accept=METADATA_LIST if metadata_only else JSON)
            items.extend(answer.get("items") or ())
            metadata = answer.get("metadata") or {}
            token = metadata.get("continue")
            if not token:
                return ObjectList(items, metadata.get("resourceVersion", ""))
            query["continue"] = token

    async def watch(
        self,
        ref: GroupVersionResource,
        namespace: str = "",
        *,
        since: str = "",
        labels: str = "",
        fields: str = "",
        initial: bool = False,
        seconds: int = 0,
        metadata_only: bool = False,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Changes after the revision `since`. `initial` asks for everything first (WatchList).

        An expired revision is raised as the 410 it is, whether it came as a status or as an event.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true"}
        if since:
            query["resourceVersion"] = since
        if initial:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        if seconds:
            query["timeoutSeconds"] = str(seconds)
        accept = METADATA if metadata_only else JSON
        async with aclosing(self._transport.watch(_with(ref.path(namespace), query), accept=accept)) as told:
            async for events in told:
                for event in events:
                    yield _event(event)

    async def create(
        self, ref: GroupVersionResource, obj: Object, namespace: str = "", *, name: str = "", subresource: str = ""
    ) -> Object:
        namespace = namespace or (obj.get("metadata") or {}).get("namespace", "")
        return await self._send("POST", f"{ref.path(namespace, name, subresource)}?{self._writes}", obj)

    async def update(self, ref: GroupVersionResource, obj: Object, *, subresource: str = "") -> Object:
        metadata = obj["metadata"]
        path = ref.path(metadata.get("namespace", ""), metadata["name"], subresource)
        return await self._send("PUT", f"{path}?{self._writes}", obj)

    async def patch(
        self,
        ref: GroupVersionResource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        kind: PatchType = "merge",
        subresource: str = "",
        force: bool = False,
    ) -> Object:
        query = f"{self._writes}&force=true" if force else self._writes
        path = f"{ref.path(namespace, name, subresource)}?{query}"
        return await self._send("PATCH", path, patch, content_type=_PATCH_MEDIA[kind])

    async def delete(
        self,
        ref: GroupVersionResource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        revision: str = "",
        propagation: str = "Background",
        grace: int | None = None,
    ) -> Object:
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        preconditions = {"uid": uid, "resourceVersion": revision}
        options["preconditions"] = {key: value for key, value in preconditions.items() if value}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return await self._send("DELETE", ref.path(namespace, name), options)

    async def logs(
        self, ref: GroupVersionResource, name: str, namespace: str, *, container: str = "", follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """What a pod's container wrote, as it comes."""
        query = {"container": container, "follow": "true" if follow else ""}
        path = _with(ref.path(namespace, name, "log"), {key: value for key, value in query.items() if value})
        async with aclosing(self._transport.stream(path, accept="*/*")) as pieces:
            async for piece in pieces:
                yield piece

    async def raw(self, method: str, path: str, body: Any = None) -> Object:
        """Any path: discovery, version, reviews."""
        return await self._send(method, path, body)

    async def _send(
        self, method: str, path: str, body: Any = None, *, content_type: str = JSON, accept: str = JSON
    ) -> Object:
        data = b"" if body is None else orjson.dumps(body)
        answer = await self._transport.request(
            method, path, body=data, content_type=content_type if data else "", accept=accept
        )
        if answer.status >= 400:
            raise status_error(answer)
        read: Object = orjson.loads(answer.body) if answer.body else {}
        return read


async def decode_watch_events(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[list[Object], None]:
    """The events of a watch that comes as bytes, one on a line."""
    rest = b""
    async with aclosing(pieces):
        async for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            yield [orjson.loads(line) for line in lines if line]


def status_error(answer: ApiResponse) -> StatusError:
    """The Status of a refusal as an exception; an answer that is no Status (a proxy's page) still says what it said."""
    try:
        status = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        status = {}
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = answer.body[:500].decode(errors="replace").strip()
        return StatusError(answer.status, "", text or f"the server answered {answer.status}")
    return StatusError(
        answer.status,
        status.get("reason") or "",
        status.get("message") or "",
        details=status.get("details"),
        headers=answer.headers,
        metadata=status.get("metadata"),
    )


def _with(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _event(read: Object) -> WatchEvent:
    if read["type"] == "ERROR":
        status = read["object"]
        raise StatusError(status.get("code") or 500, status.get("reason") or "", status.get("message") or "")
    return WatchEvent(read["type"], read["object"])
