"""Discovery and OpenAPI as clients fetch them: made once for each state of the catalog, with tags to revalidate."""

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
    """Answers below /api, /apis and /openapi. What was made for one generation of the catalog is kept for it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._made: dict[tuple[str, ...], tuple[bytes, str, str]] = {}
        catalog.on_change(self._made.clear)

    def roots(self) -> list[str]:
        found: set[str] = set()
        for group, version in self._catalog.group_versions():
            if group:
                found |= {f"/apis/{group}", f"/apis/{group}/{version}"}
            else:
                found.add(f"/api/{version}")
        return sorted(found)

    def discovery(self, path: str, request: Request) -> Response:
        wanted = discovery.accepted(request.headers.get("Accept", "")) if path in ("/api", "/apis") else None
        host = request.headers.get("Host", "") if path == "/api" and wanted is None else ""
        key = (path, wanted or "", host)
        made = self._made.get(key)
        if made is None:
            if wanted is not None:
                document = discovery.aggregated(self._catalog, core=path == "/api", version=wanted)
                media = discovery.content_type(wanted)
            else:
                document, media = self._listed(path, host), JSON
            body = orjson.dumps(document)
            made = self._made[key] = (body, media, discovery.etag(body))
        return _tagged(made, request)

    def _listed(self, path: str, host: str) -> Document:
        found: Document | None
        match path.strip("/").split("/"):
            case ["api"]:
                found = discovery.api_versions(host)
            case ["apis"]:
                found = discovery.api_groups(self._catalog)
            case ["api", version]:
                found = discovery.api_resources(self._catalog, "", version)
            case ["apis", group]:
                found = discovery.api_group(self._catalog, group)
            case ["apis", group, version]:
                found = discovery.api_resources(self._catalog, group, version)
            case _:
                found = None
        if found is None:
            raise errors.no_such_path()
        return found

    def openapi(self, path: str, request: Request) -> Response:
        # kubectl before 1.29 reads version 2 in protobuf only
        wants_protobuf = path == "/openapi/v2" and openapi.V2_PROTOBUF_REQUEST in request.headers.get("Accept", "")
        key = (path, "protobuf" if wants_protobuf else "")
        made = self._made.get(key)
        if made is None:
            if wants_protobuf:
                body, media = openapi.V2_PROTOBUF, openapi.V2_PROTOBUF_ANSWER
            else:
                body, media = orjson.dumps(self._openapi(path)), JSON
            made = self._made[key] = (body, media, discovery.etag(body))
        response = _tagged(made, request)
        if "hash" in request.query and response.status == 200:
            # The address names the contents: a client that has it need never ask again.
            response.headers |= {"Cache-Control": "public, immutable", "Expires": "Fri, 31 Dec 2100 00:00:00 GMT"}
        return response

    def _openapi(self, path: str) -> Document:
        found: Document | None
        match path.strip("/").split("/"):
            case ["openapi", "v2"]:
                found = openapi.swagger(self._catalog)
            case ["openapi", "v3"]:
                found = openapi.index(self._catalog)
            case ["openapi", "v3", "api", version]:
                found = openapi.document(self._catalog, "", version)
            case ["openapi", "v3", "apis", group, version]:
                found = openapi.document(self._catalog, group, version)
            case _:
                found = None
        if found is None:
            raise errors.no_such_path()
        return found


def _tagged(made: tuple[bytes, str, str], request: Request) -> Response:
    body, media, tag = made
    headers = {"ETag": tag, "Vary": "Accept"}
    if request.headers.get("If-None-Match") == tag:
        return Response(304, b"", media, headers=headers)
    return Response(200, body, media, headers=headers)
