"""A client of the Kubernetes API, for the embedded server and for remote ones.

Objects are plain dicts. The client knows paths, verbs and errors, but no kinds. A transport sends the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import urlencode

import orjson

from torchyard.api.errors import PageNotFound, StatusError, YardError
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
    """Sends requests. Raises `Unreachable` without a response."""

    async def request(
        self, method: str, path: str, *, body: bytes = b"", content_type: str = "", accept: str = JSON
    ) -> ApiResponse: ...

    def stream(self, path: str, *, accept: str = JSON) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of a streamed response; raises `StatusError` for an error response."""
        ...

    def watch(self, path: str, *, accept: str = JSON) -> AsyncGenerator[list[Object], None]:
        """Yield batches of watch events; raises `StatusError` for an error response."""
        ...

    async def close(self) -> None: ...


class Unreachable(YardError):
    """The API server did not respond."""

    code = "Unreachable"
    temporary = True


class ObjectList(NamedTuple):
    items: list[Object]
    resource_version: str


class WatchEvent(NamedTuple):
    type: str  # ADDED, MODIFIED, DELETED, BOOKMARK
    object: Object


WatchBatch = list[WatchEvent]  # changes that arrived together


class Client:
    """The verbs of the Kubernetes API. `manager` is the field manager of all writes."""

    PAGE = 500

    def __init__(self, transport: Transport, *, manager: str) -> None:
        self._transport = transport
        # our objects have no duplicate or unknown fields, so the server can skip the check
        self._writes = urlencode({"fieldManager": manager, "fieldValidation": "Ignore"})

    async def close(self) -> None:
        await self._transport.close()

    async def get(self, ref: GroupVersionResource, name: str, namespace: str = "", *, subresource: str = "") -> Object:
        return await self._send("GET", ref.path(namespace, name, subresource))

    async def find(self, ref: GroupVersionResource, name: str, namespace: str = "") -> Object | None:
        """Like `get`, but return None if the object does not exist."""
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
        """Return all matching objects, fetched page by page."""
        items: list[Object] = []
        resource_version = ""
        pages = self.list_pages(ref, namespace, labels=labels, fields=fields, page=page, metadata_only=metadata_only)
        async with aclosing(pages):
            async for listed in pages:
                items.extend(listed.items)
                resource_version = listed.resource_version
        return ObjectList(items, resource_version)

    async def list_pages(
        self,
        ref: GroupVersionResource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int | None = None,
        metadata_only: bool = False,
    ) -> AsyncGenerator[ObjectList, None]:
        """Like `list`, but yield the pages, for callers that keep only a part of each object."""
        query: dict[str, str] = {"limit": str(self.PAGE if page is None else page)}
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        path = ref.path(namespace)
        while True:
            response = await self._send(
                "GET", _with_query(path, query), accept=METADATA_LIST if metadata_only else JSON
            )
            metadata = response.get("metadata") or {}
            yield ObjectList(response.get("items") or [], metadata.get("resourceVersion", ""))
            token = metadata.get("continue")
            if not token:
                return
            query["continue"] = token
            await asyncio.sleep(0)  # a server in this process answers without a pause

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
        """Yield changes after the resource version `since`. `initial` sends all objects first (WatchList).

        An expired resource version raises a 410 `StatusError`, whether it arrives as a response or as an event.
        """
        batches = self.watch_batches(
            ref,
            namespace,
            since=since,
            labels=labels,
            fields=fields,
            initial=initial,
            seconds=seconds,
            metadata_only=metadata_only,
        )
        async with aclosing(batches):
            async for events in batches:
                for event in events:
                    yield event

    async def watch_batches(
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
    ) -> AsyncGenerator[WatchBatch, None]:
        """Like `watch`, but yield the changes that arrive together as one list, which takes less time."""
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
        async with aclosing(self._transport.watch(_with_query(ref.path(namespace), query), accept=accept)) as batches:
            async for events in batches:
                changes: WatchBatch = []
                for event in events:
                    if event["type"] == "ERROR":
                        yield changes
                        raise _watch_error(event["object"])
                    changes.append(WatchEvent(event["type"], event["object"]))
                yield changes

    async def create(
        self,
        ref: GroupVersionResource,
        obj: Object,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
        strict: bool = False,
    ) -> Object:
        """Create an object. `strict` refuses fields that the server does not know instead of dropping them."""
        namespace = namespace or (obj.get("metadata") or {}).get("namespace", "")
        query = self._writes.replace("=Ignore", "=Strict") if strict else self._writes
        query += "&dryRun=All" if dry_run else ""
        return await self._send("POST", f"{ref.path(namespace, name, subresource)}?{query}", obj)

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
        dry_run: bool = False,
    ) -> Object:
        query = f"{self._writes}&force=true" if force else self._writes
        if dry_run:
            query += "&dryRun=All"
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

    async def logs(  # noqa: PLR0913 - one parameter per parameter of the subresource
        self,
        ref: GroupVersionResource,
        name: str,
        namespace: str,
        *,
        container: str = "",
        follow: bool = False,
        previous: bool = False,
        since_seconds: int | None = None,
        tail_lines: int | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the log of a container as it arrives. With `timestamps`, each line has its time in front."""
        query = {
            "container": container,
            "follow": "true" if follow else "",
            "previous": "true" if previous else "",
            "sinceSeconds": "" if since_seconds is None else str(since_seconds),
            "tailLines": "" if tail_lines is None else str(tail_lines),
            "timestamps": "true" if timestamps else "",
        }
        path = _with_query(ref.path(namespace, name, "log"), {key: value for key, value in query.items() if value})
        async with aclosing(self._transport.stream(path, accept="*/*")) as chunks:
            async for chunk in chunks:
                yield chunk

    async def raw(self, method: str, path: str, body: Any = None) -> Object:
        """Send a request to any path: discovery, version, reviews."""
        return await self._send(method, path, body)

    async def _send(
        self, method: str, path: str, body: Any = None, *, content_type: str = JSON, accept: str = JSON
    ) -> Object:
        data = b"" if body is None else _encode(body)
        response = await self._transport.request(
            method, path, body=data, content_type=content_type if data else "", accept=accept
        )
        if response.status >= 400:
            raise status_error(response)
        obj: Object = orjson.loads(response.body) if response.body else {}
        return obj


def _encode(body: Any) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError as error:  # such as an argument or a file name that is not UTF-8
        raise YardError(f"the object cannot be sent as JSON: {error}", code="BadManifest") from None


async def decode_watch_events(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[list[Object], None]:
    """Decode the newline-delimited events of a watch."""
    rest = b""
    async with aclosing(chunks):
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            yield [orjson.loads(line) for line in lines if line]


def status_error(response: ApiResponse) -> StatusError:
    """Convert an error response to an exception. Without a Status (a proxy's page) the body becomes the message."""
    try:
        status = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        status = {}
    if not isinstance(status, dict) or status.get("kind") != "Status":
        if response.body == PageNotFound.text:
            return PageNotFound()
        text = response.body[:500].decode(errors="replace").strip()
        return StatusError(response.status, "", text or f"the server responded with status {response.status}")
    return StatusError(
        response.status,
        status.get("reason") or "",
        status.get("message") or "",
        details=status.get("details"),
        headers=response.headers,
        metadata=status.get("metadata"),
    )


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _watch_error(status: Object) -> StatusError:
    return StatusError(status.get("code") or 500, status.get("reason") or "", status.get("message") or "")
