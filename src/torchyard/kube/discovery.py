"""Finding the resource of a kind through the discovery API."""

from __future__ import annotations

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.kube.client import Client


async def find_resource(client: Client, api_version: str, kind: str) -> GroupVersionResource:
    """Return the resource of a kind. Raises `YardError` if the server does not serve it."""
    group, _, version = api_version.rpartition("/")
    try:
        resources = await client.raw("GET", f"/apis/{api_version}" if group else f"/api/{version}")
    except StatusError as error:
        if error.status != 404:
            raise
        resources = {}
    for resource in resources.get("resources") or ():
        if resource["kind"] == kind and "/" not in resource["name"]:
            return GroupVersionResource(group, version, resource["name"], bool(resource["namespaced"]))
    raise YardError(
        f'the server does not serve kind "{kind}" of {api_version}',
        hint="list the served kinds with `kubectl api-resources`",
        code="UnknownKind",
    )
