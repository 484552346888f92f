"""The fields that the server's OpenAPI document declares beside a misspelled one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torchyard.api.objects import Object
from torchyard.kube.client import Client

_STEP = re.compile(r"\.?([^.\[\]]+)|(\[[^\]]*\])")
_REFERENCE = "#/components/schemas/"


async def declared_fields(client: Client, api_version: str, kind: str, path: list[str]) -> list[str]:
    """The fields of the object at `path` of a kind; none if the server has no schema for it."""
    group = f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"
    document = await client.raw("GET", f"/openapi/v3/{group}")
    schemas: dict[str, Object] = (document.get("components") or {}).get("schemas") or {}
    schema = next((schema for schema in schemas.values() if _is_of(schema, api_version, kind)), None)
    for step in path:
        schema = _below(schemas, schema, step)
    return sorted(_properties(schemas, schema))


def steps(path: str) -> list[str]:
    """The steps of a field path such as `.spec.containers[name="a"].image`; an item of a list is `[…]`."""
    return [name or item for name, item in _STEP.findall(path)]


def _is_of(schema: Object, api_version: str, kind: str) -> bool:
    group, _, version = api_version.rpartition("/")
    gvk = {"group": group, "version": version, "kind": kind}
    return gvk in (schema.get("x-kubernetes-group-version-kind") or ())


def _below(schemas: dict[str, Object], schema: Any, step: str) -> Any:
    for part in _parts(schemas, schema):
        below = part.get("items") if step.startswith("[") else (part.get("properties") or {}).get(step)
        below = below or part.get("additionalProperties")
        if isinstance(below, dict):
            return below
    return None


def _properties(schemas: dict[str, Object], schema: Any) -> set[str]:
    return {name for part in _parts(schemas, schema) for name in part.get("properties") or ()}


def _parts(schemas: dict[str, Object], schema: Any) -> Iterator[Object]:
    """A schema and those that it refers to."""
    if not isinstance(schema, dict):
        return
    yield schema
    for part in schema.get("allOf") or ():
        yield from _parts(schemas, part)
    reference = schema.get("$ref", "")
    if reference.startswith(_REFERENCE):
        yield from _parts(schemas, schemas.get(reference.removeprefix(_REFERENCE)))
