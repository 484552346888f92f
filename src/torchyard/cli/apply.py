"""Applies one object of a manifest, as `kubectl apply --server-side` would."""

from __future__ import annotations

from contextlib import aclosing

from torchyard.api.errors import YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.core.run.outcome import RUNNABLE, outcome
from torchyard.kube.client import Client
from torchyard.kube.discovery import find_resource


async def apply(client: Client, obj: Object, namespace: str, *, replace: bool) -> tuple[GroupVersionResource, Object]:
    """Server-side apply, as this command; an object without a name is created."""
    ref = await find_resource(client, obj["apiVersion"], obj["kind"])
    metadata = obj["metadata"]
    where = (metadata.get("namespace") or namespace) if ref.namespaced else ""
    if "name" not in metadata:
        made = await client.create(ref, obj, where)
    else:
        await _make_room(client, ref, metadata["name"], where, replace=replace)
        made = await client.patch(ref, metadata["name"], obj, where, kind="apply", force=True)
    return ref, {"kind": obj["kind"], **made}


async def _make_room(client: Client, ref: GroupVersionResource, name: str, namespace: str, *, replace: bool) -> None:
    """A job that has ended does not run again by being applied again."""
    there = await client.find(ref, name, namespace)
    if there is None or there["kind"] not in RUNNABLE or not outcome(there).done:
        return
    if not replace:
        raise YardError(
            f"{called(ref, there)} is there already and has ended ({outcome(there).state})",
            hint="--replace deletes it first; or give the new one another name",
            code="AlreadyExists",
        )
    await client.delete(ref, name, namespace, uid=there["metadata"]["uid"], propagation="Foreground")
    since = there["metadata"]["resourceVersion"]
    async with aclosing(client.watch(ref, namespace, since=since, fields=f"metadata.name={name}")) as changes:
        async for change, _ in changes:
            if change == "DELETED":
                return


def called(ref: GroupVersionResource, obj: Object) -> str:
    """As kubectl names an object: `job.batch/mnist`."""
    kind = obj["kind"].lower()
    return f"{kind}.{ref.group}/{obj['metadata']['name']}" if ref.group else f"{kind}/{obj['metadata']['name']}"
