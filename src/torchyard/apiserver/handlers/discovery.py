"""/api, /apis and /openapi: documents built once for each state of the catalog, with ETags."""

from __future__ import annotations

from typing import Any

import orjson

from torchyard.api import errors
from torchyard.apiserver.registry.catalog import Catalog
from torchyard.apiserver.request.request import Request
from torchyard.apiserver.request.response import JSON, Response
from torchyard.apiserver.wire import discovery, openapi

Document = dict[str, Any]


class DiscoveryHandler:
    """Serves discovery and OpenAPI documents. They are cached until the catalog changes."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._documents: dict[tuple[str, ...], tuple[bytes, str, str]] = {}
        catalog.on_change(self._documents.clear)

    def roots(self) -> list[str]:
        paths: set[str] = set()
        for group, version in self._catalog.group_versions():
            if group:
                paths |= {f"/apis/{group}", f"/apis/{group}/{version}"}
            else:
                paths.add(f"/api/{version}")
        return sorted(paths)

    def discovery(self, path: str, request: Request) -> Response:
        version = discovery.accepted(request.headers.get("Accept", "")) if path in ("/api", "/apis") else None
        host = request.headers.get("Host", "") if path == "/api" and version is None else ""
        key = (path, version or "", host)
        cached = self._documents.get(key)
        if cached is None:
            if version is not None:
                document = discovery.aggregated(self._catalog, core=path == "/api", version=version)
                media = discovery.content_type(version)
            else:
                document, media = self._listed(path, host), JSON
            body = orjson.dumps(document)
            cached = self._documents[key] = (body, media, discovery.etag(body))
        return _with_etag(cached, request)

    def _listed(self, path: str, host: str) -> Document:
        document: Document | None
        match path.strip("/").split("/"):
            case ["api"]:
                document = discovery.api_versions(host)
            case ["apis"]:
                document = discovery.api_groups(self._catalog)
            case ["api", version]:
                document = discovery.api_resources(self._catalog, "", version)
            case ["apis", group]:
                document = discovery.api_group(self._catalog, group)
            case ["apis", group, version]:
                document = discovery.api_resources(self._catalog, group, version)
            case _:
                document = None
        if document is None:
            raise errors.no_such_path()
        return document

    def openapi(self, path: str, request: Request) -> Response:
        # kubectl before 1.29 reads version 2 in protobuf only
        wants_protobuf = path == "/openapi/v2" and openapi.V2_PROTOBUF_REQUEST in request.headers.get("Accept", "")
        key = (path, "protobuf" if wants_protobuf else "")
        cached = self._documents.get(key)
        if cached is None:
            if wants_protobuf:
                body, media = openapi.V2_PROTOBUF, openapi.V2_PROTOBUF_RESPONSE
            else:
                body, media = orjson.dumps(self._openapi(path)), JSON
            cached = self._documents[key] = (body, media, discovery.etag(body))
        response = _with_etag(cached, request)
        if "hash" in request.query and response.status == 200:
            # The URL contains a hash of the document, so clients may cache it for ever.
            response.headers |= {"Cache-Control": "public, immutable", "Expires": "Fri, 31 Dec 2100 00:00:00 GMT"}
        return response

    def _openapi(self, path: str) -> Document:
        document: Document | None
        match path.strip("/").split("/"):
            case ["openapi", "v2"]:
                document = openapi.swagger(self._catalog)
            case ["openapi", "v3"]:
                document = openapi.index(self._catalog)
            case ["openapi", "v3", "api", version]:
                document = openapi.document(self._catalog, "", version)
            case ["openapi", "v3", "apis", group, version]:
                document = openapi.document(self._catalog, group, version)
            case _:
                document = None
        if document is None:
            raise errors.no_such_path()
        return document


def _with_etag(cached: tuple[bytes, str, str], request: Request) -> Response:
    body, media, tag = cached
    headers = {"ETag": tag, "Vary": "Accept"}
    if request.headers.get("If-None-Match") == tag:
        return Response(304, b"", media, headers=headers)
    return Response(200, body, media, headers=headers)
