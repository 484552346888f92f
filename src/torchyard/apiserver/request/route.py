"""The URL grammar: from a method and a path to a verb and a resource."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from torchyard.api import errors

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"get": "list", "delete": "deletecollection"}
_NAMESPACE_SUBRESOURCES = frozenset(("finalize", "status"))
# Deprecated: `/api/v1/watch/pods` for `?watch=true`; proxies have become subresources and are not served here.
_VERB_PREFIXES = frozenset(("watch", "proxy"))


class Route(NamedTuple):
    """The parts of a path below /api or /apis. Without `is_resource` it is the discovery path of a group-version."""

    verb: str
    group: str
    version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""  # the path after the subresource, for proxies
    prefix: str = ""  # `watch` or `proxy`, for the deprecated paths that begin with a verb
    is_resource: bool = True
    # Authorization ignores empty segments, as upstream, but no handler serves such a path.
    is_canonical: bool = True


_BAD_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")


def decode_path(target: str) -> str:
    """The path of a request's target. Routes and authorization see the decoded path, as upstream."""
    if "%" not in target:
        return target
    if _BAD_ESCAPE.search(target):
        raise errors.bad_request(f"invalid URL escape in {target!r}")
    return unquote(target)


@lru_cache(maxsize=1024)
def parse(method: str, path: str, *, watch: bool = False) -> Route | None:
    """The route of a decoded path below /api or /apis, or None for anything else (upstream's RequestInfoFactory)."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 1:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 2:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    is_canonical = not path.startswith("//") and bool(group or parts[0] == "api")
    verb, prefix = _VERBS.get(method, ""), ""
    if not rest:
        return Route(verb, group, version, is_resource=False, is_canonical=is_canonical)
    if len(rest) > 1 and rest[0] in _VERB_PREFIXES:
        verb = prefix = rest[0]
        rest = rest[1:]
    namespace = ""
    if len(rest) > 1 and rest[0] == "namespaces":
        namespace = rest[1]  # a Namespace is in itself, for authorization too
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
            is_canonical = is_canonical and rest[0] != "namespaces"
    plural, name, subresource, *tail = rest if len(rest) > 2 else [*rest, "", "", ""][:3]
    if prefix == "proxy":
        subresource, tail = "", [subresource, *tail]
    if not name:
        verb = _COLLECTION_VERBS.get(verb, verb)
    if verb == "list" and watch:
        verb = "watch"
    rest_of_path = "/".join(part for part in tail if part)
    return Route(
        verb, group, version, plural, namespace, name, subresource, rest_of_path, prefix, is_canonical=is_canonical
    )
