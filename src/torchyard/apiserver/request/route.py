"""The URL grammar: from a method and a path to a verb and a resource."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"get": "list", "delete": "deletecollection"}
_NAMESPACE_SUBRESOURCES = frozenset(("finalize", "status"))


class Route(NamedTuple):
    """The parts of a resource path. `plural` is empty for the discovery paths of a group-version."""

    verb: str
    group: str
    version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""  # the path after the subresource, for proxies


@lru_cache(maxsize=1024)
def parse(method: str, path: str, *, watch: bool = False) -> Route | None:
    """The route of a path below /api or /apis, or None for anything else."""
    parts = path.strip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    if parts[0] == "api" and len(parts) > 1:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 2:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    verb = _VERBS.get(method, "")
    is_watch_path = len(rest) > 1 and rest[0] == "watch"  # the deprecated form of ?watch=true
    if is_watch_path:
        rest, watch = rest[1:], True
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *tail = rest if len(rest) > 2 else [*rest, "", "", ""][:3]
    if not name and plural:
        verb = _COLLECTION_VERBS.get(verb, verb)
    if (verb == "list" and watch) or (is_watch_path and verb == "get"):
        verb = "watch"
    # As upstream: a Namespace is in itself, for authorization too.
    if plural == "namespaces" and not group and name:
        namespace = name
    return Route(verb, group, version, plural, namespace, name, subresource, "/".join(part for part in tail if part))
