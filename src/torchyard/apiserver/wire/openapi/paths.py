"""The paths of an OpenAPI document: the operations on a resource and its subresources.

kubectl looks for an operation tagged with a kind: `get` to explain it, and `patch` with the query parameter
fieldValidation and the content types it may send.
"""

from __future__ import annotations

import re
from typing import Any

from torchyard.api.group_version import GroupVersionKind
from torchyard.api.resources import Resource, Subresource
from torchyard.api.schema import builtin
from torchyard.apiserver.wire.openapi.schemas import META, REF, custom_name

Document = dict[str, Any]


def _query(name: str, type: str = "string") -> Document:
    return {"name": name, "in": "query", "schema": {"type": type, "uniqueItems": True}}


def _in_path(name: str) -> Document:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}


_WRITE = [_query(name) for name in ("dryRun", "fieldManager", "fieldValidation")]
_DELETE = [
    _query("dryRun"),
    _query("gracePeriodSeconds", "integer"),
    _query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    _query("orphanDependents", "boolean"),
    _query("propagationPolicy"),
]
_SELECT = [
    _query("allowWatchBookmarks", "boolean"),
    _query("continue"),
    _query("fieldSelector"),
    _query("labelSelector"),
    _query("limit", "integer"),
    _query("resourceVersion"),
    _query("resourceVersionMatch"),
    _query("sendInitialEvents", "boolean"),
    _query("timeoutSeconds", "integer"),
    _query("watch", "boolean"),
]
_PARAMETERS: dict[str, list[Document]] = {
    "list": _SELECT,
    "post": _WRITE,
    "put": _WRITE,
    "patch": [*_WRITE, _query("force", "boolean")],
    "delete": _DELETE,
    "deletecollection": [*_DELETE, *_SELECT],
    "get": [],
    "connect": [],
}
_MERGES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_STRATEGIC = "application/strategic-merge-patch+json"
# By action: HTTP method, verb of the resource, and the first word of the operation's id.
_ON_COLLECTION = {
    "list": ("get", "list", "list"),
    "post": ("post", "create", "create"),
    "deletecollection": ("delete", "deletecollection", "delete"),
}
_ON_OBJECT = {
    "get": ("get", "get", "read"),
    "put": ("put", "update", "replace"),
    "delete": ("delete", "delete", "delete"),
    "patch": ("patch", "patch", "patch"),
}
_BELOW_OBJECT = {**_ON_OBJECT, "post": ("post", "create", "create")}
# These open a stream or proxy a request, whatever its method.
_CONNECTING = frozenset(("attach", "exec", "portforward", "proxy"))


def paths_of(resource: Resource) -> dict[str, Document]:
    """By path: operations by HTTP method."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"{root}{scope}/{resource.plural}"
    paths: dict[str, Document] = {}
    _add(paths, collection, _operations(resource, _ON_COLLECTION, resource.verbs), resource)
    if resource.namespaced and "list" in resource.verbs:
        all_namespaces = _operation(
            resource, "list", resource.gvk, f"list{_prefix(resource)}{resource.kind}ForAllNamespaces"
        )
        paths[f"{root}/{resource.plural}"] = {"get": all_namespaces}
    _add(paths, collection + "/{name}", _operations(resource, _ON_OBJECT, resource.verbs), resource)
    for sub in resource.subresources.values():
        _add(paths, f"{collection}/{{name}}/{sub.name}", _subresource_operations(resource, sub), resource)
    return paths


def _add(paths: dict[str, Document], path: str, operations: Document, resource: Resource) -> None:
    if not operations:
        return
    parameters = [_in_path("name")] if "{name}" in path else []
    if resource.namespaced:
        parameters.append(_in_path("namespace"))
    paths[path] = {**operations, "parameters": parameters} if parameters else operations


def _operations(resource: Resource, table: dict[str, tuple[str, str, str]], verbs: tuple[str, ...]) -> Document:
    operations: Document = {}
    scope = "Namespaced" if resource.namespaced else ""
    for action, (method, verb, word) in table.items():
        if verb in verbs:
            collection = "Collection" if action == "deletecollection" else ""
            name = f"{word}{_prefix(resource)}{collection}{scope}{resource.kind}"
            operations[method] = _operation(resource, action, resource.gvk, name)
    return operations


def _subresource_operations(resource: Resource, sub: Subresource) -> Document:
    operations: Document = {}
    scope = "Namespaced" if resource.namespaced else ""
    suffix = "".join(part.capitalize() for part in sub.name.split("-"))
    for action, (method, verb, word) in _BELOW_OBJECT.items():
        if verb not in sub.verbs:
            continue
        if sub.name in _CONNECTING:
            name = f"connect{_prefix(resource)}{method.capitalize()}{scope}{resource.kind}{suffix}"
            operations[method] = _operation(resource, "connect", sub.gvk, name)
        else:
            operations[method] = _operation(
                resource, action, sub.gvk, f"{word}{_prefix(resource)}{scope}{resource.kind}{suffix}"
            )
    return operations


def _prefix(resource: Resource) -> str:
    """BatchV1, CoreV1, RbacAuthorizationV1, as clients name their classes."""
    group = resource.group.removesuffix(".k8s.io") or "core"
    parts = [*re.split(r"[.\-]", group), resource.version]
    return "".join(part[:1].upper() + part[1:] for part in parts)


def _operation(resource: Resource, action: str, gvk: GroupVersionKind, name: str) -> Document:
    operation: Document = {"operationId": name, "tags": [_tag(resource)]}
    if _PARAMETERS[action]:
        operation["parameters"] = _PARAMETERS[action]
    body = _body(resource, action, gvk)
    if body:
        operation["requestBody"] = {"content": body, "required": action not in ("delete", "deletecollection")}
    operation["responses"] = _responses(resource, action, gvk)
    operation["x-kubernetes-action"] = action
    operation["x-kubernetes-group-version-kind"] = gvk._asdict()
    return operation


def _tag(resource: Resource) -> str:
    group = resource.group.removesuffix(".k8s.io") or "core"
    first, *rest = re.split(r"[.\-]", group)
    return f"{first}{''.join(word.capitalize() for word in rest)}_{resource.version}"


def _body(resource: Resource, action: str, gvk: GroupVersionKind) -> Document | None:
    if action == "patch":
        content = {"schema": {"$ref": f"{REF}{META}Patch"}}
        return dict.fromkeys(_MERGES if resource.custom is not None else (*_MERGES, _STRATEGIC), content)
    if action in ("delete", "deletecollection"):
        return {"application/json": {"schema": {"$ref": f"{REF}{META}DeleteOptions"}}}
    if action in ("post", "put"):
        return {"application/json": {"schema": _schema(resource, gvk)}}
    return None


def _responses(resource: Resource, action: str, gvk: GroupVersionKind) -> Document:
    if action == "connect":
        return {"200": {"description": "OK", "content": {"*/*": {"schema": {"type": "string"}}}}}
    returned = gvk._replace(kind=resource.list_kind) if action == "list" else gvk
    schema = {"$ref": f"{REF}{META}Status"} if action == "deletecollection" else _schema(resource, returned)
    response = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    codes = {"post": ("200", "201", "202"), "put": ("200", "201"), "patch": ("200", "201"), "delete": ("200", "202")}
    return dict.fromkeys(codes.get(action, ("200",)), response)


def _schema(resource: Resource, gvk: GroupVersionKind) -> Document:
    name = builtin.definition_of(gvk)
    if name is None and resource.custom is not None:
        name = custom_name(gvk.group, gvk.version, gvk.kind)
    return {"$ref": REF + name} if name else {"type": "string"}
