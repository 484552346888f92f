"""Applies one object of a manifest, as `kubectl apply --server-side` does."""

from __future__ import annotations

from contextlib import aclosing

from torchyard.api.errors import YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.core.run.state import RUNNABLE, run_state
from torchyard.kube.client import Client
from torchyard.kube.discovery import find_resource


async def apply(client: Client, obj: Object, namespace: str, *, replace: bool) -> tuple[GroupVersionResource, Object]:
    """Apply an object on the server; create it if it has only a `generateName`."""
    gvr = await find_resource(client, obj["apiVersion"], obj["kind"])
    metadata = obj["metadata"]
    target = (metadata.get("namespace") or namespace) if gvr.namespaced else ""
    if "name" not in metadata:
        applied = await client.create(gvr, obj, target)
    else:
        await _remove_finished(client, gvr, metadata["name"], target, replace=replace)
        applied = await client.patch(gvr, metadata["name"], obj, target, kind="apply", force=True)
    return gvr, {"kind": obj["kind"], **applied}


async def _remove_finished(
    client: Client, gvr: GroupVersionResource, name: str, namespace: str, *, replace: bool
) -> None:
    """Delete a finished job of this name: applying it again would not run it again."""
    existing = await client.find(gvr, name, namespace)
    if existing is None or existing["kind"] not in RUNNABLE or not run_state(existing).done:
        return
    if not replace:
        raise YardError(
            f"{qualified_name(gvr, existing)} already exists and has finished ({run_state(existing).state})",
            hint="use --replace to delete it first, or choose another name",
            code="AlreadyExists",
        )
    await client.delete(gvr, name, namespace, uid=existing["metadata"]["uid"], propagation="Foreground")
    since = existing["metadata"]["resourceVersion"]
    async with aclosing(client.watch(gvr, namespace, since=since, fields=f"metadata.name={name}")) as changes:
        async for change, _ in changes:
            if change == "DELETED":
                return


def qualified_name(gvr: GroupVersionResource, obj: Object) -> str:
    """Return an object's name as kubectl prints it: `job.batch/mnist`."""
    kind = obj["kind"].lower()
    return f"{kind}.{gvr.group}/{obj['metadata']['name']}" if gvr.group else f"{kind}/{obj['metadata']['name']}"
