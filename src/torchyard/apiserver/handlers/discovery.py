"""/api, /apis and /openapi: documents built once for each state of the catalog, with ETags."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from torchyard.api import errors
from torchyard.api.resources import Resource
from torchyard.apiserver.registry.catalog import Catalog
from torchyard.apiserver.request.computation import LARGE_BYTES, compute
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import JSON, Response
from torchyard.apiserver.wire import discovery, openapi
from torchyard.apiserver.wire.negotiate import check_document

Document = dict[str, Any]


class DiscoveryHandler:
    """Serves discovery and OpenAPI documents. They are cached until the catalog changes."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        # The APIs of extension API servers; the catalog says when they change.
        self.aggregated: Callable[[], Iterable[discovery.AggregatedApi]] = tuple
        self._documents: dict[tuple[str, ...], tuple[bytes, str, str]] = {}
        self._builds: dict[str, asyncio.Task[bytes]] = {}  # of OpenAPI documents that are not cached yet
        catalog.on_change(self._documents.clear)
        catalog.on_change(self._builds.clear)

    def roots(self) -> list[str]:
        paths: set[str] = set()
        aggregated = {(group, version) for group, version, _, _ in self.aggregated()}
        for group, version in self._catalog.group_versions() | aggregated:
            if group:
                paths |= {f"/apis/{group}", f"/apis/{group}/{version}"}
            else:
                paths.add(f"/api/{version}")
        return sorted(paths)

    def discovery(self, path: str, request: Request) -> Response:
        path, accept = _normalized(path), request.headers.get("Accept", "")
        version = discovery.accepted(accept) if path in ("/api", "/apis") else None
        if version is None:
            check_document(accept)
        host = request.headers.get("Host", "") if path == "/api" and version is None else ""
        key = (path, version or "", host)
        cached = self._documents.get(key)
        if cached is None:
            if version is not None:
                document = discovery.aggregated(self._catalog, core=path == "/api", version=version)
                if path == "/apis":
                    document = discovery.add_aggregated(document, self.aggregated())
                media = discovery.content_type(version)
            else:
                document, media = self._listed(path, host), JSON
            body = orjson.dumps(document)
            cached = (body, media, discovery.etag(body))
            if not host:  # a client can send any host
                self._documents[key] = cached
        return _with_etag(cached, request)

    def _listed(self, path: str, host: str) -> Document:
        document: Document | None
        group = ""
        match path.strip("/").split("/"):
            case ["api"]:
                document = discovery.api_versions(host)
            case ["apis"]:
                document = discovery.add_groups(discovery.api_groups(self._catalog), self.aggregated())
            case ["api", version]:
                document = discovery.api_resources(self._catalog, "", version)
            case ["apis", group]:
                document = discovery.add_group(discovery.api_group(self._catalog, group), group, self.aggregated())
            case ["apis", group, version]:
                document = discovery.api_resources(self._catalog, group, version)
            case _:
                document = None
        if document is None:
            raise errors.no_such_path() if self._catalog.has_built_in_group(group) else errors.PageNotFound
        return document

    async def openapi(self, path: str, request: Request) -> Response:
        path = _normalized(path)
        # kubectl before 1.29 reads version 2 in protobuf only
        wants_protobuf = path == "/openapi/v2" and openapi.V2_PROTOBUF_REQUEST in request.headers.get("Accept", "")
        key = (path, "protobuf" if wants_protobuf else "")
        cached = self._documents.get(key)
        if cached is None:
            if wants_protobuf:
                body, media = openapi.V2_PROTOBUF, openapi.V2_PROTOBUF_RESPONSE
            else:
                body, media = await self._build(path), JSON
            cached = self._documents[key] = (body, media, discovery.etag(body))
        response = _with_etag(cached, request)
        response.is_raw = True
        if "hash" in request.query and response.status == 200:
            # The URL contains a hash of the document, so clients may cache it for ever.
            response.headers |= {"Cache-Control": "public, immutable", "Expires": "Fri, 31 Dec 2100 00:00:00 GMT"}
        return response

    async def _build(self, path: str) -> bytes:
        """An OpenAPI document, built in a thread, once for all requests that wait for it."""
        while True:
            build = self._builds.get(path)
            if build is None:
                coroutine = compute(LARGE_BYTES + 1, _openapi, path, list(self._catalog))
                build = self._builds[path] = asyncio.get_running_loop().create_task(coroutine)
            try:
                body = await asyncio.shield(build)
            except errors.StatusError:
                self._builds.pop(path, None)
                raise
            if self._builds.get(path) is build:
                del self._builds[path]
                return body
            if path not in self._builds:  # another request has taken it, or the catalog has changed meanwhile
                cached = self._documents.get((path, ""))
                if cached is not None:
                    return cached[0]


def _openapi(path: str, resources: list[Resource]) -> bytes:
    document: Document | None
    match path.strip("/").split("/"):
        case ["openapi", "v2"]:
            document = openapi.swagger(resources)
        case ["openapi", "v3"]:
            document = openapi.index(resources)
        case ["openapi", "v3", "api", version]:
            document = openapi.document(resources, "", version)
        case ["openapi", "v3", "apis", group, version]:
            document = openapi.document(resources, group, version)
        case _:
            document = None
    if document is None:
        raise errors.PageNotFound
    return orjson.dumps(document)


def _normalized(path: str) -> str:
    """The path without empty parts at its end, which there may be in any number."""
    return "/" + path.strip("/")


def _with_etag(cached: tuple[bytes, str, str], request: Request) -> Response:
    body, media, tag = cached
    headers = {"ETag": tag, "Vary": "Accept"}
    if request.headers.get("If-None-Match") == tag:
        return Response(304, b"", media, headers=headers)
    return Response(200, body, media, headers=headers)
