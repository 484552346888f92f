"""From a method and a path to what is asked of which resource. Knows the URL grammar and nothing else."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_VERBS_OF_ALL = {"get": "list", "delete": "deletecollection"}
_NAMESPACE_PARTS = frozenset(("finalize", "status"))


class Route(NamedTuple):
    """A resource path taken apart. `plural` is empty for the discovery paths of a group version."""

    verb: str
    group: str
    version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""  # what follows the subresource, for proxies


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
    old_watch = len(rest) > 1 and rest[0] == "watch"  # the old spelling of ?watch=true
    if old_watch:
        rest, watch = rest[1:], True
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in _NAMESPACE_PARTS:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *tail = rest if len(rest) > 2 else [*rest, "", "", ""][:3]
    if not name and plural:
        verb = _VERBS_OF_ALL.get(verb, verb)
    if (verb == "list" and watch) or (old_watch and verb == "get"):
        verb = "watch"
    # A namespace is named like an object in itself, for authorisation too.
    if plural == "namespaces" and not group and name:
        namespace = name
    return Route(verb, group, version, plural, namespace, name, subresource, "/".join(one for one in tail if one))
