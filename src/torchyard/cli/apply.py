"""Applies one object of a manifest, as `kubectl apply --server-side` does. A job is never changed behind its pods."""

from __future__ import annotations

import re
from contextlib import aclosing
from dataclasses import dataclass, replace

from torchyard.api.errors import StatusError, YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.core.run.changes import content_diff, needs_new_pods, overlay
from torchyard.core.run.state import RUNNABLE, run_state
from torchyard.kube.client import Client
from torchyard.kube.discovery import find_resource
from torchyard.kube.job_lookup import qualified_name

_SUFFIX_LENGTH = 5  # of a generated name


@dataclass(frozen=True, slots=True)
class ManifestObject:
    """An object of a manifest and where it belongs."""

    gvr: GroupVersionResource
    namespace: str
    object: Object

    @property
    def name(self) -> str:
        return str(self.object["metadata"].get("name", ""))


@dataclass(frozen=True, slots=True)
class Plan:
    """What applying an object does. `existing` is the object on the cluster, `diff` the change of its content."""

    target: ManifestObject
    action: str  # created, configured, unchanged or replaced
    existing: Object | None = None
    diff: str = ""


async def locate(client: Client, obj: Object, namespace: str) -> ManifestObject:
    gvr = await find_resource(client, obj["apiVersion"], obj["kind"])
    return ManifestObject(gvr, (obj["metadata"].get("namespace") or namespace) if gvr.namespaced else "", obj)


async def plan(client: Client, target: ManifestObject, *, replace: bool) -> Plan:
    """Decide how to apply an object. Raises YardError if a job has to be replaced and `replace` does not allow it."""
    existing = await client.find(target.gvr, target.name, target.namespace) if target.name else None
    if existing is None:
        return Plan(target, "created")
    existing = {"kind": target.object["kind"], **existing}
    refused: StatusError | None = None
    try:
        changed = await _send(client, target, dry_run=True)
    except StatusError as error:
        if error.status != 422 or existing["kind"] not in RUNNABLE:
            raise
        refused, changed = error, overlay(existing, {"spec": target.object.get("spec") or {}})
    diff = content_diff(existing, changed)
    if existing["kind"] in RUNNABLE:
        obstacle = _obstacle(target, existing, changed, diff, refused)
        if obstacle is not None and not replace:
            raise obstacle
        if obstacle is not None:
            return Plan(target, "replaced", existing, diff)
    return Plan(target, "configured" if diff else "unchanged", existing, diff)


def _obstacle(
    target: ManifestObject, existing: Object, changed: Object, diff: str, refused: StatusError | None
) -> YardError | None:
    """Why an existing job cannot be applied in place; None if it can."""
    name = qualified_name(target.gvr, existing)
    state = run_state(existing)
    if state.done:
        return YardError(
            f"{name} already exists and has finished ({state.state})",
            hint="use --replace to delete it first, or choose another name",
            code="AlreadyExists",
        )
    if refused is None and not needs_new_pods(existing, changed):
        return None
    reason = refused.message if refused is not None else "its pods keep the template they were created with"
    return YardError(
        f"{name} exists, is {state.state}, and cannot be changed in place: {reason}\n{diff}",
        hint="use --replace to delete the job and its pods and start it again, or choose another name",
        code="CannotChangeInPlace",
    )


async def check(client: Client, planned: Plan) -> None:
    """Let the server validate a job that is to be created, before anything is written or deleted for it.

    Errors of other kinds may be due to objects of the same manifest that do not exist yet.
    """
    target = planned.target
    prefix = target.name[:-_SUFFIX_LENGTH]
    if planned.action == "replaced":  # its name is in use: validated with a generated one of the same length
        metadata = {key: value for key, value in target.object["metadata"].items() if key != "name"}
        target = replace(target, object={**target.object, "metadata": {**metadata, "generateName": prefix or "job-"}})
    elif planned.action != "created":
        return
    try:
        await _send(client, target, dry_run=True)
    except StatusError as error:
        if error.status not in (400, 422):
            return
        generated = rf"\b{re.escape(prefix or 'job-')}[a-z0-9]{{{_SUFFIX_LENGTH}}}\b"
        message = error.message if target is planned.target else re.sub(generated, planned.target.name, error.message)
        raise StatusError(error.status, error.reason, message) from error


async def apply(client: Client, planned: Plan) -> tuple[GroupVersionResource, Object]:
    """Carry out a plan; an object that has only a `generateName` is created."""
    target = planned.target
    applied = await _send(client, target)
    return target.gvr, {"kind": target.object["kind"], **applied}


async def dry_run(client: Client, target: ManifestObject) -> Object:
    """The object as the server would store it."""
    checked = await _send(client, target, dry_run=True)
    return {"apiVersion": target.object["apiVersion"], "kind": target.object["kind"], **checked}


async def _send(client: Client, target: ManifestObject, *, dry_run: bool = False) -> Object:
    if not target.name:
        return await client.create(target.gvr, target.object, target.namespace, dry_run=dry_run, strict=True)
    return await client.patch(
        target.gvr, target.name, target.object, target.namespace, kind="apply", force=True, dry_run=dry_run
    )


async def delete_replaced(client: Client, planned: Plan) -> None:
    """Delete a job that is replaced, with its pods and files, so that the new one starts without them."""
    if planned.action != "replaced" or planned.existing is None:
        return
    target, metadata = planned.target, planned.existing["metadata"]
    await client.delete(target.gvr, target.name, target.namespace, uid=metadata["uid"], propagation="Foreground")
    fields = f"metadata.name={target.name}"
    while True:  # a server ends watches after some minutes
        current = await client.list(target.gvr, target.namespace, fields=fields)
        if all(obj["metadata"]["uid"] != metadata["uid"] for obj in current.items):
            return
        since = current.resource_version  # that of the object may be too old to watch from
        async with aclosing(client.watch(target.gvr, target.namespace, since=since, fields=fields)) as changes:
            async for change, _ in changes:
                if change == "DELETED":
                    break
