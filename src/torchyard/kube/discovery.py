"""Which resource an object belongs to, asked of the server."""

from __future__ import annotations

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.kube.client import Client


async def find_resource(client: Client, api_version: str, kind: str) -> GroupVersionResource:
    """The resource whose objects are of this kind, as discovery names it."""
    group, _, version = api_version.rpartition("/")
    try:
        found = await client.raw("GET", f"/apis/{api_version}" if group else f"/api/{version}")
    except StatusError as error:
        if error.status != 404:
            raise
        found = {}
    for one in found.get("resources") or ():
        if one["kind"] == kind and "/" not in one["name"]:
            return GroupVersionResource(group, version, one["name"], bool(one["namespaced"]))
    raise YardError(
        f'the server knows no kind "{kind}" in {api_version}',
        hint="kubectl api-resources shows those it knows",
        code="UnknownKind",
    )
