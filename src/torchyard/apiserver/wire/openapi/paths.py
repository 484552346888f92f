"""The paths of an OpenAPI document: which operations there are on a resource, and on what lies below its objects.

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
# action -> HTTP method, verb of the resource, and the word that an operation's id begins with
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
# What opens a stream or passes a request on, whatever its method.
_CONNECTING = frozenset(("attach", "exec", "portforward", "proxy"))


def paths_of(one: Resource) -> dict[str, Document]:
    """Path -> operations by HTTP method."""
    root = f"/apis/{one.group}/{one.version}" if one.group else f"/api/{one.version}"
    scope = "/namespaces/{namespace}" if one.namespaced else ""
    collection = f"{root}{scope}/{one.plural}"
    found: dict[str, Document] = {}
    _add(found, collection, _operations(one, _ON_COLLECTION, one.verbs), one)
    if one.namespaced and "list" in one.verbs:
        everywhere = _operation(one, "list", one.gvk, f"list{_prefix(one)}{one.kind}ForAllNamespaces")
        found[f"{root}/{one.plural}"] = {"get": everywhere}
    _add(found, collection + "/{name}", _operations(one, _ON_OBJECT, one.verbs), one)
    for sub in one.subresources.values():
        _add(found, f"{collection}/{{name}}/{sub.name}", _below(one, sub), one)
    return found


def _add(found: dict[str, Document], path: str, operations: Document, one: Resource) -> None:
    if not operations:
        return
    parameters = [_in_path("name")] if "{name}" in path else []
    if one.namespaced:
        parameters.append(_in_path("namespace"))
    found[path] = {**operations, "parameters": parameters} if parameters else operations


def _operations(one: Resource, table: dict[str, tuple[str, str, str]], verbs: tuple[str, ...]) -> Document:
    made: Document = {}
    scope = "Namespaced" if one.namespaced else ""
    for action, (method, verb, word) in table.items():
        if verb in verbs:
            collection = "Collection" if action == "deletecollection" else ""
            name = f"{word}{_prefix(one)}{collection}{scope}{one.kind}"
            made[method] = _operation(one, action, one.gvk, name)
    return made


def _below(one: Resource, sub: Subresource) -> Document:
    made: Document = {}
    scope = "Namespaced" if one.namespaced else ""
    suffix = "".join(part.capitalize() for part in sub.name.split("-"))
    for action, (method, verb, word) in _BELOW_OBJECT.items():
        if verb not in sub.verbs:
            continue
        if sub.name in _CONNECTING:
            name = f"connect{_prefix(one)}{method.capitalize()}{scope}{one.kind}{suffix}"
            made[method] = _operation(one, "connect", sub.gvk, name)
        else:
            made[method] = _operation(one, action, sub.gvk, f"{word}{_prefix(one)}{scope}{one.kind}{suffix}")
    return made


def _prefix(one: Resource) -> str:
    """BatchV1, CoreV1, RbacAuthorizationV1, as clients name their classes."""
    group = one.group.removesuffix(".k8s.io") or "core"
    words = [*re.split(r"[.\-]", group), one.version]
    return "".join(word[:1].upper() + word[1:] for word in words)


def _operation(one: Resource, action: str, gvk: GroupVersionKind, name: str) -> Document:
    made: Document = {"operationId": name, "tags": [_tag(one)]}
    if _PARAMETERS[action]:
        made["parameters"] = _PARAMETERS[action]
    body = _body(one, action, gvk)
    if body:
        made["requestBody"] = {"content": body, "required": action not in ("delete", "deletecollection")}
    made["responses"] = _responses(one, action, gvk)
    made["x-kubernetes-action"] = action
    made["x-kubernetes-group-version-kind"] = gvk._asdict()
    return made


def _tag(one: Resource) -> str:
    group = one.group.removesuffix(".k8s.io") or "core"
    first, *rest = re.split(r"[.\-]", group)
    return f"{first}{''.join(word.capitalize() for word in rest)}_{one.version}"


def _body(one: Resource, action: str, gvk: GroupVersionKind) -> Document | None:
    if action == "patch":
        content = {"schema": {"$ref": f"{REF}{META}Patch"}}
        return dict.fromkeys(_MERGES if one.custom is not None else (*_MERGES, _STRATEGIC), content)
    if action in ("delete", "deletecollection"):
        return {"application/json": {"schema": {"$ref": f"{REF}{META}DeleteOptions"}}}
    if action in ("post", "put"):
        return {"application/json": {"schema": _schema(one, gvk)}}
    return None


def _responses(one: Resource, action: str, gvk: GroupVersionKind) -> Document:
    if action == "connect":
        return {"200": {"description": "OK", "content": {"*/*": {"schema": {"type": "string"}}}}}
    answered = gvk._replace(kind=one.list_kind) if action == "list" else gvk
    schema = {"$ref": f"{REF}{META}Status"} if action == "deletecollection" else _schema(one, answered)
    answer = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    codes = {"post": ("200", "201", "202"), "put": ("200", "201"), "patch": ("200", "201"), "delete": ("200", "202")}
    return dict.fromkeys(codes.get(action, ("200",)), answer)


def _schema(one: Resource, gvk: GroupVersionKind) -> Document:
    name = builtin.definition_of(gvk)
    if name is None and one.custom is not None:
        name = custom_name(gvk.group, gvk.version, gvk.kind)
    return {"$ref": REF + name} if name else {"type": "string"}
