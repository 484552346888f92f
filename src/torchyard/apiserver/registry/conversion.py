"""Conversion between the version that a client uses and the version that is stored."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api.event import conversion as events
from torchyard.api.objects import Object
from torchyard.api.queue import conversion as queues
from torchyard.api.queue import names as queue_names
from torchyard.api.resources import Resource
from torchyard.api.workload import autoscaler_v1

Conversion = Callable[[Object], Object]

# (group, version, plural): to the stored version, and back.
_CONVERSIONS: dict[tuple[str, str, str], tuple[Conversion, Conversion]] = {
    ("autoscaling", "v1", "horizontalpodautoscalers"): (autoscaler_v1.from_v1, autoscaler_v1.to_v1),
    ("events.k8s.io", "v1", "events"): (events.to_core, events.from_core),
} | {(queue_names.GROUP, queue_names.OLD, plural): pair for plural, pair in queues.CONVERSIONS.items()}


def is_converted(group: str, version: str, plural: str) -> bool:
    """Whether a version differs from the stored one, so that only the stored version can be validated."""
    return (group, version, plural) in _CONVERSIONS


def to_storage(resource: Resource, storage: Resource, obj: Object) -> Object:
    """The object in its storage version. Only the versions in the table differ by more than their apiVersion."""
    if resource is storage:
        return obj
    pair = _CONVERSIONS.get((resource.group, resource.version, resource.plural))
    if pair:
        obj = pair[0](obj)
    obj["apiVersion"], obj["kind"] = storage.api_version, storage.kind
    return obj


def prune_to_storage(resource: Resource, storage: Resource, obj: Object) -> None:
    """Prune and default a custom resource by the schema of its storage version; the last step before the store."""
    if resource is not storage and storage.custom is not None:
        storage.custom.normalize(obj)


def from_storage(resource: Resource, storage: Resource, obj: Object) -> Object:
    """The stored object in the version of `resource`; of a custom resource, only the fields that both versions have.

    An object that was stored before its definition got another storage version still has the earlier one.
    """
    if resource is storage:
        if resource.custom is not None and obj["apiVersion"] != resource.api_version:
            resource.custom.normalize(obj)
        return obj
    pair = _CONVERSIONS.get((resource.group, resource.version, resource.plural))
    if resource.custom is not None and storage.custom is not None:
        if pair:
            storage.custom.normalize(obj)
            obj = pair[1](obj)
            obj["apiVersion"] = resource.api_version
            resource.custom.prune(obj)
        else:
            resource.custom.normalize(obj)
        return obj
    if pair:
        obj = pair[1](obj)
    obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
    return obj
