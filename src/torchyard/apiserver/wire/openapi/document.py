"""The index and the document of a group-version (OpenAPI version 3)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache

import orjson

import torchyard
from torchyard.api.resources import Resource
from torchyard.api.schema import builtin
from torchyard.api.schema.descriptions import descriptions
from torchyard.apiserver.wire.openapi.paths import paths_of
from torchyard.apiserver.wire.openapi.schemas import META, Document, Schemas

INFO = {"title": "Torchyard", "version": torchyard.__version__}
_SECURITY = {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}


def path_of(group: str, version: str) -> str:
    """The name of a group-version in the index: api/v1, apis/batch/v1."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def index(resources: Iterable[Resource]) -> Document:
    """/openapi/v3. The hash in a URL changes with its document, so clients may cache documents."""
    paths = {
        path_of(*named): {"serverRelativeURL": f"/openapi/v3/{path_of(*named)}?hash={fingerprint(served)}"}
        for named, served in versions(resources).items()
    }
    return {"paths": dict(sorted(paths.items()))}


def document(resources: Iterable[Resource], group: str, version: str) -> Document | None:
    """/openapi/v3/apis/<group>/<version>; None if nothing is served there."""
    served = versions(resources).get((group, version))
    if not served:
        return None
    schemas = Schemas()
    for resource in served:
        _add_kinds(schemas, resource)
    return {
        "openapi": "3.0.0",
        "info": INFO,
        "paths": {path: operations for resource in served for path, operations in paths_of(resource).items()},
        "components": {"schemas": schemas.sorted(), "securitySchemes": _SECURITY},
    }


def fingerprint(served: list[Resource]) -> str:
    """A hash that changes with the document, computed without building it."""
    digest = hashlib.sha256(f"{torchyard.__version__} {_tables()}".encode())
    for resource in sorted(served, key=lambda resource: resource.plural):
        digest.update(
            repr(
                (resource.group, resource.version, resource.plural, resource.kind, resource.namespaced, resource.verbs)
            ).encode()
        )
        digest.update(repr(sorted((sub.name, sub.gvk, sub.verbs) for sub in resource.subresources.values())).encode())
        if resource.custom is not None:
            digest.update(orjson.dumps(resource.custom.schema, option=orjson.OPT_SORT_KEYS))
    return digest.hexdigest().upper()


@cache
def _tables() -> str:
    """A hash of the built-in types and their descriptions."""
    return hashlib.sha256(builtin.table_bytes() + repr(descriptions()).encode()).hexdigest()


def versions(resources: Iterable[Resource]) -> dict[tuple[str, str], list[Resource]]:
    by_version: dict[tuple[str, str], list[Resource]] = {}
    for resource in resources:
        by_version.setdefault((resource.group, resource.version), []).append(resource)
    return by_version


def _add_kinds(schemas: Schemas, resource: Resource) -> None:
    """The kinds that the operations on a resource accept or return."""
    if resource.custom is not None:
        schemas.add_custom(resource)
    else:
        name = builtin.definition_of(resource.gvk)
        lists = (
            builtin.definition_of(resource.gvk._replace(kind=resource.list_kind)) if "list" in resource.verbs else None
        )
        for schema in (name, lists):
            if schema:
                schemas.add(schema)
    for sub in resource.subresources.values():
        name = builtin.definition_of(sub.gvk)
        if name:
            schemas.add(name)
    if "delete" in resource.verbs:
        schemas.add(META + "DeleteOptions")
        schemas.add(META + "Status")
    if "patch" in resource.verbs:
        schemas.add(META + "Patch")
