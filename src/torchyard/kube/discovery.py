"""Finding the resource of a kind through the discovery API."""

from __future__ import annotations

import asyncio

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.suggestions import closest
from torchyard.kube.client import Client


async def find_resource(client: Client, api_version: str, kind: str) -> GroupVersionResource:
    """Return the resource of a kind. Raises `YardError` if the server does not serve it."""
    group, _, version = api_version.rpartition("/")
    for resource in await _resources(client, api_version):
        if resource["kind"] == kind:
            return GroupVersionResource(group, version, resource["name"], bool(resource["namespaced"]))
    raise YardError(
        f'the server does not serve kind "{kind}" of {api_version}',
        hint=await _suggestion(client, api_version, kind) or "list the served kinds with `kubectl api-resources`",
        code="UnknownKind",
    )


async def _resources(client: Client, api_version: str) -> list[Object]:
    """The resources of a version of a group, without subresources; none if it is not served."""
    try:
        answer = await client.raw("GET", f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}")
    except StatusError as error:
        if error.status != 404:
            raise
        return []
    return [resource for resource in answer.get("resources") or () if "/" not in resource["name"]]


async def _suggestion(client: Client, api_version: str, kind: str) -> str:
    """Where the kind is served, or which served kind or version is similar; '' if the server does not tell."""
    try:
        return await _similar(client, api_version, kind)
    except YardError:  # one group that does not answer must not hide that the kind is unknown
        return ""


async def _similar(client: Client, api_version: str, kind: str) -> str:
    groups = (await client.raw("GET", "/apis")).get("groups") or ()
    versions = ["v1", *(version["groupVersion"] for group in groups for version in group["versions"])]
    lists = await asyncio.gather(*(_resources(client, version) for version in versions))
    kinds = {
        version: [resource["kind"] for resource in resources]
        for version, resources in zip(versions, lists, strict=True)
    }
    elsewhere = next((version for version in versions if kind in kinds[version]), "")
    if elsewhere:
        return f"did you mean apiVersion: {elsewhere}?"
    if api_version in kinds:
        similar = closest(kind, kinds[api_version])
        return f"did you mean kind: {similar}?" if similar else ""
    similar = closest(api_version, versions)
    return f"did you mean apiVersion: {similar}?" if similar else ""
