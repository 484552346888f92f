"""Between the version a client speaks and the version an object is kept in."""

from __future__ import annotations

from collections.abc import Callable

from torchyard.api.event import conversion as events
from torchyard.api.objects import Object
from torchyard.api.queue import conversion as queues
from torchyard.api.queue import names as queue_names
from torchyard.api.resources import Resource
from torchyard.api.workload import autoscaler_v1

Conversion = Callable[[Object], Object]

# (resource, version): to the stored form, and back.
_CONVERSIONS: dict[tuple[str, str, str], tuple[Conversion, Conversion]] = {
    ("autoscaling", "v1", "horizontalpodautoscalers"): (autoscaler_v1.from_v1, autoscaler_v1.to_v1),
    ("events.k8s.io", "v1", "events"): (events.to_core, events.from_core),
} | {(queue_names.GROUP, queue_names.OLD, plural): pair for plural, pair in queues.CONVERSIONS.items()}


def is_converted(group: str, version: str, plural: str) -> bool:
    """Whether a version's objects look different from the stored ones, so that only the stored form can be judged."""
    return (group, version, plural) in _CONVERSIONS


def to_storage(resource: Resource, storage: Resource, obj: Object) -> Object:
    """The object on its way into the store. Only the pairs above differ by more than their apiVersion."""
    if resource is storage:
        return obj
    pair = _CONVERSIONS.get((resource.group, resource.version, resource.plural))
    if pair:
        obj = pair[0](obj)
    obj["apiVersion"], obj["kind"] = storage.api_version, storage.kind
    return obj


def keep(resource: Resource, storage: Resource, obj: Object) -> None:
    """Bring a custom resource into the form of the version it is kept in; the last step before it is."""
    if resource is not storage and storage.custom is not None:
        storage.custom.normalize(obj)


def from_storage(resource: Resource, storage: Resource, obj: Object) -> Object:
    """The stored object as a client of `resource`'s version sees it: custom ones with what both versions have."""
    if resource is storage:
        return obj
    pair = _CONVERSIONS.get((resource.group, resource.version, resource.plural))
    if resource.custom is not None and storage.custom is not None:
        storage.custom.normalize(obj)
        if pair:
            obj = pair[1](obj)
        obj["apiVersion"] = resource.api_version
        resource.custom.prune(obj)
        return obj
    if pair:
        obj = pair[1](obj)
    obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
    return obj
