"""The resources that an extension API server lists. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from torchyard.api.objects import Object

_TEXTS = ("kind", "singularName", "group", "version")
_LISTS = ("verbs", "shortNames", "categories")


def listed_resources(body: bytes) -> list[Object]:
    """The entries of an APIResourceList; none if the response is something else.

    Entries become part of the discovery documents of this server, so those with fields of a wrong type are left out.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return []
    listed = document.get("resources") if isinstance(document, dict) else None
    return [each for each in listed if _is_resource(each)] if isinstance(listed, list) else []


def _is_resource(entry: Any) -> bool:
    """Whether the fields have the types of an APIResource. All but the name may be missing, or null as in Go."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and all(isinstance(entry.get(name), str | None) for name in _TEXTS)
        and all(_is_text_list(entry.get(name)) for name in _LISTS)
        and isinstance(entry.get("namespaced"), bool | None)
    )


def _is_text_list(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, str) for each in value))
