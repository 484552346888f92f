"""What a misspelled name in a message of the server probably means: a field, or an object that does not exist."""

from __future__ import annotations

import re

from torchyard.api import gvr
from torchyard.api.errors import YardError
from torchyard.api.group_version import GroupVersionResource
from torchyard.api.objects import Object
from torchyard.api.queue import names as queue
from torchyard.api.suggestions import closest
from torchyard.kube.client import Client
from torchyard.kube.schema_fields import declared_fields, steps

# Server-side apply reports the first form, strict decoding the second.
_FIELD = re.compile(r"(\.[^\s:]+): field not declared in schema|unknown field \"([^\"]+)\"")
_OBJECT = re.compile(
    r"(?P<kind>[A-Za-z]+)(?:\.[a-z0-9.]+)? (?:with name )?\"?(?P<name>[a-z0-9][a-z0-9.-]*)\"?"
    r" (?:not found|doesn't exist|was found)"
)
_KINDS: dict[str, GroupVersionResource] = {
    "persistentvolumeclaim": gvr.PERSISTENT_VOLUME_CLAIMS,
    "persistentvolume": gvr.PERSISTENT_VOLUMES,
    "configmap": gvr.CONFIG_MAPS,
    "secret": gvr.SECRETS,
    "serviceaccount": gvr.SERVICE_ACCOUNTS,
    "namespace": gvr.NAMESPACES,
    "storageclass": gvr.STORAGE_CLASSES,
    "runtimeclass": gvr.RUNTIME_CLASSES,
    "priorityclass": GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False),
    "localqueue": GroupVersionResource(queue.GROUP, queue.STORED, "localqueues"),
    "clusterqueue": GroupVersionResource(queue.GROUP, queue.STORED, "clusterqueues", namespaced=False),
    "workloadpriorityclass": GroupVersionResource(
        queue.GROUP, queue.STORED, "workloadpriorityclasses", namespaced=False
    ),
}


async def suggest_field(client: Client, message: str, objects: list[Object]) -> str:
    """A question for a message about an unknown field of one of these objects; empty if nothing is similar."""
    match = _FIELD.search(message)
    if match is None:
        return ""
    *path, name = steps(match[1] or match[2])
    for kind in dict.fromkeys((obj["apiVersion"], obj["kind"]) for obj in objects):
        similar = closest(name, await _declared(client, kind, path))
        if similar:
            return f"did you mean {similar}?"
    return ""


async def suggest_object(client: Client, message: str, namespace: str) -> str:
    """What to do about an object that does not exist: a similar name; for a namespace, its creation; else empty."""
    for match in _OBJECT.finditer(message):
        resource = _KINDS.get(match["kind"].lower()) or _KINDS.get(match["kind"].lower().removesuffix("s"))
        if resource is not None:
            similar = closest(match["name"], await _names(client, resource, namespace))
            if not similar and resource is gvr.NAMESPACES:
                return f"create it: `kubectl create namespace {match['name']}`"
            return f"did you mean {similar}?" if similar else ""
    return ""


async def with_suggestion(client: Client, message: str, namespace: str) -> str:
    """The message, with a question behind it if it names an object that does not exist."""
    suggestion = await suggest_object(client, message, namespace)
    return f"{message} ({suggestion})" if suggestion else message


async def _declared(client: Client, kind: tuple[str, str], path: list[str]) -> list[str]:
    try:
        return await declared_fields(client, *kind, path)
    except YardError:  # the message itself is shown without a suggestion
        return []


async def _names(client: Client, resource: GroupVersionResource, namespace: str) -> list[str]:
    """The names of a resource; none if the user may not list it or the server does not serve it."""
    try:
        objects = await client.list(resource, namespace if resource.namespaced else "", metadata_only=True)
    except YardError:
        return []
    return [str(obj["metadata"]["name"]) for obj in objects.items]
