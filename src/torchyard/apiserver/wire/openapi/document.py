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
    """What the index calls a group-version: api/v1, apis/batch/v1."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def index(resources: Iterable[Resource]) -> Document:
    """/openapi/v3. The hash in an address changes with the document, so clients keep what they have."""
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
    for one in served:
        _add_kinds(schemas, one)
    return {
        "openapi": "3.0.0",
        "info": INFO,
        "paths": {path: operations for one in served for path, operations in paths_of(one).items()},
        "components": {"schemas": schemas.sorted(), "securitySchemes": _SECURITY},
    }


def fingerprint(served: list[Resource]) -> str:
    """Tells whether a document is still the same, without making it."""
    said = hashlib.sha256(f"{torchyard.__version__} {_tables()}".encode())
    for one in sorted(served, key=lambda each: each.plural):
        said.update(repr((one.group, one.version, one.plural, one.kind, one.namespaced, one.verbs)).encode())
        said.update(repr(sorted((sub.name, sub.gvk, sub.verbs) for sub in one.subresources.values())).encode())
        if one.custom is not None:
            said.update(orjson.dumps(one.custom.schema, option=orjson.OPT_SORT_KEYS))
    return said.hexdigest().upper()


@cache
def _tables() -> str:
    """Stands for the built-in types and the words about them."""
    return hashlib.sha256(builtin.table_bytes() + repr(descriptions()).encode()).hexdigest()


def versions(resources: Iterable[Resource]) -> dict[tuple[str, str], list[Resource]]:
    found: dict[tuple[str, str], list[Resource]] = {}
    for one in resources:
        found.setdefault((one.group, one.version), []).append(one)
    return found


def _add_kinds(schemas: Schemas, one: Resource) -> None:
    """The kinds an operation on a resource takes or answers."""
    if one.custom is not None:
        schemas.add_custom(one)
    else:
        name = builtin.definition_of(one.gvk)
        lists = builtin.definition_of(one.gvk._replace(kind=one.list_kind)) if "list" in one.verbs else None
        for each in (name, lists):
            if each:
                schemas.add(each)
    for sub in one.subresources.values():
        name = builtin.definition_of(sub.gvk)
        if name:
            schemas.add(name)
    if "delete" in one.verbs:
        schemas.add(META + "DeleteOptions")
        schemas.add(META + "Status")
    if "patch" in one.verbs:
        schemas.add(META + "Patch")
